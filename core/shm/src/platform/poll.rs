//! Waiting for many descriptors or handles.

use std::time::Duration;

use bellwire_core::{Backend, BackendStatus, Instant};

use super::Platform;

/// Waits for many descriptors or handles. It belongs to the thread that created it.
pub trait Poller<P: Platform>: Sized {
    /// Whether a peer's hang-up is reported even if nothing else about its channel is of interest.
    const REPORTS_HANGUP: bool;

    /// Room for the events of one wait, reused from one to the next.
    type Events;

    /// Creates an empty poller with the `wanted` backend where available, and returns which backend it uses.
    ///
    /// # Errors
    /// At the limit of descriptors, handles or memory.
    fn choose(wanted: Backend) -> Result<(Self, BackendStatus), P::Error>;

    /// Watches `object`, which is not watched, from the next wait on. Delete it before it is closed. No token may be `u64::MAX`.
    ///
    /// # Errors
    /// At a limit of the system; where the system notices, it is watched already.
    fn add(
        &mut self,
        object: P::Borrowed<'_>,
        token: u64,
        interest: Interest,
    ) -> Result<(), P::Error>;

    /// Changes what an already watched `object` is watched for.
    ///
    /// # Errors
    /// At a limit of the system; where the system notices, it is not watched.
    fn modify(
        &mut self,
        object: P::Borrowed<'_>,
        token: u64,
        interest: Interest,
    ) -> Result<(), P::Error>;

    /// Stops watching `object` and releases it: its last owner may close it. Returns whether it was watched.
    fn delete(&mut self, object: P::Borrowed<'_>) -> bool;

    /// Waits until something is ready or `timeout` is over (`None`: forever), and returns the number of events. A signal ends
    /// the wait with none.
    ///
    /// # Errors
    /// None in a correct program.
    fn wait(
        &mut self,
        events: &mut Self::Events,
        timeout: Option<Duration>,
    ) -> Result<usize, P::Error>;

    /// Waits until something is ready or `until` has passed (`None`: forever), and returns the number of events; `now` is the
    /// current time. It may end earlier without an event. For callers that wait often with a deadline that rarely expires, which
    /// some systems set at less cost than that of each wait.
    ///
    /// # Errors
    /// As [`Poller::wait`].
    fn sleep(
        &mut self,
        events: &mut Self::Events,
        now: Instant,
        until: Option<Instant>,
    ) -> Result<usize, P::Error> {
        self.wait(events, until.map(|until| until.since(now)))
    }
}

/// Something that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PollEvent {
    /// The token passed to `add`.
    pub token: u64,
    /// It can be read, or it is a process that ended.
    pub readable: bool,
    /// It can be written.
    pub writable: bool,
    /// The other end hung up, or it failed; where [hang-ups are reported](Poller::REPORTS_HANGUP).
    pub hung_up: bool,
}

/// When something that stays ready is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// At each wait while it stays ready.
    Level,
    /// Once for each event; it need not be read.
    Edge,
}

/// What to report, besides a hang-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interest {
    /// Report when it can be read.
    pub readable: bool,
    /// Report when it can be written, where the system can tell.
    pub writable: bool,
    /// When a ready object is reported.
    pub trigger: Trigger,
}

impl Interest {
    /// Reports readable, with this trigger.
    pub const fn readable(trigger: Trigger) -> Self {
        Self { readable: true, writable: false, trigger }
    }

    /// Reports whichever of the two is wanted, as long as it lasts.
    pub const fn exchange(readable: bool, writable: bool) -> Self {
        Self { readable, writable, trigger: Trigger::Level }
    }
}
