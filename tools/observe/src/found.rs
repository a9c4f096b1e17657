//! What an observer finds out about sessions of other processes.

use std::io;

/// A page that a process has mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageMap {
    /// The process id, as seen from this process.
    pub pid: u32,
    /// Whether the process created the page and may write it.
    pub is_owner: bool,
    /// Device and inode, which identify this memory.
    pub object: (u64, u64),
    /// Start and end address in the process.
    pub range: (u64, u64),
}

/// Why sessions cannot be observed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// This system does not show what another process has mapped.
    #[error("sessions cannot be observed on this system")]
    Unavailable,
    /// The processes cannot be listed.
    #[error("cannot list the processes: {0}")]
    List(#[source] io::Error),
    /// This process may not inspect that one. Run as root, or as its user where the system allows it
    /// (`kernel.yama.ptrace_scope` 0).
    #[error(
        "process {pid} may not be looked into: {source}; run as root, or as its user with kernel.yama.ptrace_scope 0"
    )]
    Denied {
        /// The process.
        pid: u32,
        /// The error from the system.
        source: io::Error,
    },
    /// The object is gone, or is not a page with the required seals.
    #[error("the page is gone or invalid")]
    Gone,
}
