//! Starts, stops and inspects processes for the command and the harnesses.

#[cfg(target_os = "linux")]
#[path = "linux/mod.rs"]
mod system;
#[cfg(windows)]
#[path = "windows/mod.rs"]
mod system;

pub mod scratch;

use std::time::Duration;

pub use system::*;

/// The resources that a process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Descriptors, or handles.
    pub descriptors: u64,
    /// Threads.
    pub threads: u64,
    /// Distinct memfds, or sections, that are mapped or open.
    pub memfds: u64,
    /// Resident memory in bytes, shared memory included.
    pub rss: u64,
}

/// What a command that ended left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// How it ended.
    pub status: std::process::ExitStatus,
    /// What it wrote to its standard output.
    pub stdout: Vec<u8>,
}

/// What a process has used since it began. Ended threads do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time, to the nanosecond.
    pub cpu: Duration,
    /// The share of CPU time spent in the kernel, in thousandths. Measured in clock ticks: over less than a second it means
    /// little.
    pub kernel: u32,
    /// Context switches of its threads, voluntary or not.
    pub switches: u64,
    /// Resident memory now in bytes, shared memory included.
    pub rss: u64,
}
