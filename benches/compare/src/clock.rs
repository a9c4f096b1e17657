//! The clock that both processes share, and what a process has used.

use std::fs;

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

/// The run delay of all threads, from `/proc/self/task/*/schedstat`. The kernel counts a `sched_yield` as an involuntary
/// context switch: such a count would disqualify whoever polls and yields.
fn waited() -> Outcome<u64> {
    let mut all = 0;
    for task in fs::read_dir("/proc/self/task")? {
        // A thread may have ended meanwhile.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        all += text.split(' ').nth(1).and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(all)
}

/// What all threads of a process have used so far: getrusage(2).
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// Time on a processor, user and system, ns.
    pub(crate) cpu_ns: u64,
    /// Of that, system.
    pub(crate) kernel_ns: u64,
    /// Voluntary context switches.
    pub(crate) sleeps: u64,
    /// Time for which threads that live could have run and did not: another thread had their processor, ns.
    pub(crate) waited_ns: u64,
    /// Memory that is resident now, bytes.
    pub(crate) resident: u64,
}

impl Usage {
    pub(crate) fn of_this_process() -> Outcome<Self> {
        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        let [user, kernel_ns] = [usage.user_time(), usage.system_time()]
            .map(|time| u64::try_from(time.num_microseconds()).unwrap_or(0) * 1_000);
        let switches = usage.voluntary_context_switches();
        Ok(Self {
            cpu_ns: user + kernel_ns,
            kernel_ns,
            sleeps: u64::try_from(switches).unwrap_or(0),
            waited_ns: waited()?,
            resident: bellwire_process::resource_usage(std::process::id())?.rss,
        })
    }

    pub(crate) fn since(self, before: Self) -> Self {
        self.with(before, u64::saturating_sub)
    }

    pub(crate) fn with(self, other: Self, each: fn(u64, u64) -> u64) -> Self {
        Self {
            cpu_ns: each(self.cpu_ns, other.cpu_ns),
            kernel_ns: each(self.kernel_ns, other.kernel_ns),
            sleeps: each(self.sleeps, other.sleeps),
            waited_ns: each(self.waited_ns, other.waited_ns),
            resident: self.resident,
        }
    }
}
