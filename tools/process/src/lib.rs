//! Starts, stops and inspects processes for the command and the harnesses.

#[cfg(target_os = "linux")]
#[path = "linux/mod.rs"]
mod system;
#[cfg(windows)]
#[path = "windows/mod.rs"]
mod system;

mod child;
pub mod scratch;

pub use child::{Subprocess, at_end_of_input};
pub use system::*;

/// The resources that a process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceUsage {
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
pub struct CommandOutput {
    /// How it ended.
    pub status: std::process::ExitStatus,
    /// What it wrote to its standard output.
    pub stdout: Vec<u8>,
}
