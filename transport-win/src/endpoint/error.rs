//! Why a name could not be taken or reached.

use std::io;
use std::path::PathBuf;

use bellwire_core::ServiceName;
use bellwire_shm::platform;

use crate::{OsError, Windows};

/// Why a run directory is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunDirError {
    /// Something else has that name, possibly a link.
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
        /// The error from the system.
        source: io::Error,
    },
}

/// Why a service's name could not be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The run directory is not usable.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// Another process, or another endpoint of this one, serves that name.
    #[error("{service} is served already: its provider holds {}", .lock.display())]
    Taken {
        /// The service.
        service: ServiceName,
        /// The lock file that is held.
        lock: PathBuf,
    },
    /// The pipe exists although no process holds the lock: an unrelated process created it, or clients of a predecessor have
    /// not noticed its end.
    #[error("{pipe} belongs to another process: end the processes that hold it, or try again soon")]
    Squatted {
        /// The pipe's name.
        pipe: String,
    },
    /// The groups of a connecting user are not known on Windows.
    #[error("a group cannot be admitted on Windows: list its users, or admit anybody")]
    NoGroups,
    /// The system refused.
    #[error("cannot serve at {at}: {source}")]
    System {
        /// The file or the pipe concerned.
        at: String,
        /// The error from the system.
        source: OsError,
    },
}

/// Why a service cannot be reached.
pub type ConnectError = platform::ConnectError<Windows>;
