//! What an observer finds out about sessions of other processes.

use std::{error, fmt, io};

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
#[derive(Debug)]
#[non_exhaustive]
pub enum ObserveError {
    /// This system does not show what another process has mapped.
    Unavailable,
    /// The processes cannot be listed.
    List(io::Error),
    /// This process may not inspect that one. Run as root, or as its user where the system allows it
    /// (`kernel.yama.ptrace_scope` 0).
    Denied {
        /// The process.
        pid: u32,
        /// The error from the system.
        source: io::Error,
    },
    /// The object is gone, or is not a page with the required seals.
    Gone,
}

impl fmt::Display for ObserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable => f.write_str("sessions cannot be observed on this system"),
            Self::List(source) => write!(f, "cannot list the processes: {source}"),
            Self::Denied { pid, source } => write!(
                f,
                "process {pid} may not be looked into: {source}; run as root, or as its user with kernel.yama.ptrace_scope 0"
            ),
            Self::Gone => f.write_str("the page is gone, or is none"),
        }
    }
}

impl error::Error for ObserveError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::List(source) | Self::Denied { source, .. } => Some(source),
            Self::Unavailable | Self::Gone => None,
        }
    }
}
