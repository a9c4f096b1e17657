//! The clock that both processes share, and what a process has used.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::Outcome;

/// `CLOCK_MONOTONIC`, in ns: the same in all processes.
#[inline]
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// What all threads of a process have used so far: getrusage(2).
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// Time on a processor, user and system, ns.
    pub(crate) cpu_ns: u64,
    /// Voluntary context switches.
    pub(crate) sleeps: u64,
    /// Involuntary context switches.
    pub(crate) preempted: u64,
}

impl Usage {
    pub(crate) fn of_this_process() -> Outcome<Self> {
        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
        let switches = usage.voluntary_context_switches();
        Ok(Self {
            cpu_ns: u64::try_from(micros).unwrap_or(0) * 1_000,
            sleeps: u64::try_from(switches).unwrap_or(0),
            preempted: u64::try_from(usage.involuntary_context_switches()).unwrap_or(0),
        })
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            sleeps: self.sleeps.saturating_sub(before.sleeps),
            preempted: self.preempted.saturating_sub(before.preempted),
        }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns + other.cpu_ns,
            sleeps: self.sleeps + other.sleeps,
            preempted: self.preempted + other.preempted,
        }
    }
}
