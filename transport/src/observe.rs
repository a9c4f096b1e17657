//! What an observer finds of sessions that are not its own.

use std::{error, fmt, io};

/// A page that a process has mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageMap {
    /// The process, as this one sees it.
    pub pid: u32,
    /// The process may write it: it made it.
    pub is_owner: bool,
    /// What the memory is called, without what the system adds.
    pub name: String,
    /// Tells this memory from all other: device and inode.
    pub object: (u64, u64),
    /// Where the process has it: from, and to.
    pub range: (u64, u64),
}

/// Why sessions cannot be observed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ObserveError {
    /// This system shows nobody what another process has mapped.
    Unavailable,
    /// The processes cannot be listed.
    List(io::Error),
    /// The process may not be looked into by this one: run as root, or as its user where the system lets one
    /// (`kernel.yama.ptrace_scope` 0).
    Denied {
        /// The process.
        pid: u32,
        /// What the system said.
        source: io::Error,
    },
    /// It is no page that is sealed as a page has to be, or it is gone.
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
