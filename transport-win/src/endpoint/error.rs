//! Why a name is not taken or not reached.

use std::io;
use std::path::PathBuf;

use bellwire_core::ServiceName;

use crate::OsError;
use crate::peer::Sid;

/// Why a run directory is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunDirError {
    /// There is something else by that name; a link counts.
    #[error("{} is not a directory: remove it or name another run directory", .path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot use {} as the run directory: {source}; create it for this user alone", .path.display())]
    System {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Why a service's name was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The run directory is not usable.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// Another process, or another endpoint of this one, serves that name now.
    #[error("{service} is served by another process: it holds {}", .lock.display())]
    Taken {
        /// The service.
        service: ServiceName,
        /// The lock file that is held.
        lock: PathBuf,
    },
    /// The pipe is there although nobody holds the lock: a process that is not ours made it, or clients of a
    /// predecessor have not noticed its end.
    #[error("{pipe} is there and is not ours: end the processes that hold it, or try again soon")]
    Squatted {
        /// The pipe's name.
        pipe: String,
    },
    /// Groups cannot be told of who connects here.
    #[error("a group cannot be admitted on Windows: list its users, or admit anybody")]
    NoGroups,
    /// The system refused.
    #[error("cannot serve at {at}: {source}")]
    System {
        /// The file or the pipe concerned.
        at: String,
        /// What the system said.
        source: OsError,
    },
}

/// Why a service cannot be reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody serves it now: a state rather than a failure. Try again later.
    #[error("nobody serves {service} now")]
    Absent {
        /// The service.
        service: ServiceName,
    },
    /// The pipe belongs to somebody whom nothing makes trustworthy.
    #[error(
        "{pipe} belongs to {owner}, neither this process's user nor the system: not connecting"
    )]
    Squatted {
        /// The pipe's name.
        pipe: String,
        /// Its owner.
        owner: Sid,
    },
    /// This process's user may not connect.
    #[error("this user may not open {pipe}: have the provider admit it (bellwire provide --admit)")]
    Denied {
        /// The pipe's name.
        pipe: String,
    },
    /// As many connections wait to be accepted as may. Try again soon.
    #[error("{service} has too many connections waiting: try again")]
    Busy {
        /// The service.
        service: ServiceName,
    },
    /// The system refused.
    #[error("cannot connect to {pipe}: {source}")]
    System {
        /// The pipe's name.
        pipe: String,
        /// What the system said.
        source: OsError,
    },
}

/// Why a run directory was not listed.
#[derive(Debug, thiserror::Error)]
#[error("cannot list {}: {source}", .path.display())]
pub struct ListError {
    /// The directory.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl ConnectError {
    /// Whether whoever has the name is not to be trusted.
    pub const fn is_impostor(&self) -> bool {
        matches!(self, Self::Squatted { .. })
    }
}
