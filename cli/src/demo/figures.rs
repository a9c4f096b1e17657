//! What the demo measured, as its JSON has it.

use serde::{Deserialize, Serialize};

use super::burst::{Arrivals, Burst, SessionFigures};

/// The provider's counters.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Served {
    /// Sessions opened since the start.
    pub(super) sessions: u64,
    pub(super) handshakes_failed: u64,
    pub(super) accepted: u64,
    pub(super) answered: u64,
    pub(super) refused: u64,
    pub(super) lost: u64,
    pub(super) poisoned: u64,
    pub(super) rings: u64,
    pub(super) parks: u64,
    pub(super) generations: u64,
    /// Scans that failed.
    pub(super) failed_scans: u64,
    /// The burst's requests, as its handler counted them.
    pub(super) burst: Arrivals,
}

/// One second of work.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Second {
    pub(super) second: u64,
    pub(super) generation: u64,
    pub(super) cgroups: usize,
    pub(super) lookups_per_second: f64,
    pub(super) refreshes_per_second: f64,
    pub(super) changed: u64,
    pub(super) calls: u64,
    pub(super) rtt_p50_nanos: u64,
    pub(super) rtt_p99_nanos: u64,
    pub(super) rings_per_call: f64,
    pub(super) errors: u64,
}

/// The whole run.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Totals {
    pub(super) seconds: f64,
    /// Of the session for calls of 64 bytes.
    pub(super) calls: Calls,
    /// `None` if it was not reached.
    pub(super) burst: Option<Burst>,
    /// All sessions except the one for snapshots.
    pub(super) sessions: Vec<SessionFigures>,
    pub(super) rtt_nanos: Times,
    pub(super) lookups: Lookups,
    pub(super) refreshes: Refreshes,
    pub(super) events: Events,
    pub(super) errors: u64,
    /// The first few.
    pub(super) messages: Vec<String>,
}

/// The calls, as counted by the session and by the consumer.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Calls {
    pub(super) made: u64,
    pub(super) answered: u64,
    pub(super) failed: u64,
    pub(super) in_flight: u64,
    /// Answers that were compared with the expected ones and are equal.
    pub(super) verified: u64,
    pub(super) wrong: u64,
    pub(super) rings: u64,
    pub(super) parks: u64,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Times {
    pub(super) min: u64,
    pub(super) mean: f64,
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p99: u64,
    pub(super) p999: u64,
    pub(super) max: u64,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Lookups {
    pub(super) made: u64,
    /// Look-ups that did not return the requested cgroup.
    pub(super) wrong: u64,
    /// Of these, look-ups of a name that no cgroup has; unless counted as wrong, they found nothing.
    pub(super) of_absent: u64,
    pub(super) absent_found: u64,
    pub(super) nanos_each: f64,
}

/// The events, as the consumer counted them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Events {
    pub(super) taken: u64,
    /// Reported as missed.
    pub(super) missed: u64,
    /// Events with other contents than their number says, or out of order.
    pub(super) wrong: u64,
    /// The number of the last one.
    pub(super) last: u64,
    /// Those before the first one, which was the oldest that the provider kept.
    pub(super) before: u64,
    pub(super) nanos_each: f64,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Refreshes {
    pub(super) unchanged: u64,
    pub(super) unchanged_nanos_each: f64,
    pub(super) changed: u64,
    pub(super) changed_nanos: Times,
    pub(super) unavailable: u64,
    /// Snapshots that were validated a second time with an equal result.
    pub(super) revalidated: u64,
    pub(super) not_revalidated: u64,
    pub(super) first_generation: u64,
    pub(super) last_generation: u64,
    /// How often a generation was not above the previous one.
    pub(super) went_back: u64,
}
