//! Why a name could not be taken or listed.

use std::path::PathBuf;

use bellwire_core::ServiceName;
use rustix::io::Errno;

use super::InheritError;
use crate::peer;

/// Why a run directory is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunDirError {
    /// Something else has that name, possibly a symbolic link.
    #[error("{} is not a directory: remove it or name another run directory", .path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// It belongs to another user, who could replace its contents.
    #[error(
        "{} belongs to uid {owner}, neither this process's user nor root: chown it or name another", .path.display()
    )]
    ForeignOwner {
        /// The path.
        path: PathBuf,
        /// Its owner's uid.
        owner: u32,
    },
    /// Other users may replace its contents.
    #[error(
        "{} has mode {mode:04o}, so that other users may replace what is in it: chmod go-w, or set its sticky bit", .path.display()
    )]
    WritableByOthers {
        /// The path.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It existed already, and the users to be admitted cannot pass through it.
    #[error(
        "{} has mode {mode:04o} and group {group}, so that {admitted} cannot reach its sockets: chmod o+x, or chgrp and chmod g+x, or have it made by removing it", .path.display()
    )]
    Closed {
        /// The path.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// Its group's gid.
        group: u32,
        /// The users whom the server was to admit.
        admitted: String,
    },
    /// This process may not give the directory, or its socket, to the group to be admitted.
    #[error(
        "cannot give {} to {group}: run as root, or as a member of that group (systemd: SupplementaryGroups=)", .path.display()
    )]
    NotInGroup {
        /// The path.
        path: PathBuf,
        /// The group.
        group: peer::Group,
    },
    /// The system refused.
    #[error("cannot use {} as the run directory: {source}; create it with mode 0700", .path.display())]
    System {
        /// The path.
        path: PathBuf,
        /// The error from the kernel.
        source: Errno,
    },
}

/// Why a service's name could not be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The run directory is not safe.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// A socket that the service manager handed over is not used.
    #[error(transparent)]
    Inherited(#[from] InheritError),
    /// Another process, or another endpoint of this one, serves that name.
    #[error("{service} is served already: its provider holds {}", .lock.display())]
    Taken {
        /// The service.
        service: ServiceName,
        /// The lock file that is held.
        lock: PathBuf,
    },
    /// Something that is not this library's socket has the socket's name.
    #[error("{} exists and is not this user's socket: remove it", .path.display())]
    Squatted {
        /// The path.
        path: PathBuf,
    },
    /// Another user's file has the lock's name, or another user holds the lock.
    #[error("{} is not this user's lock: remove it, or use a run directory that nobody else may write", .path.display())]
    LockSquatted {
        /// The path.
        path: PathBuf,
    },
    /// The path does not fit into a socket address.
    #[error("{} has {len} bytes where a socket's path has at most 107: use a shorter run directory", .path.display())]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        len: usize,
    },
    /// The system refused.
    #[error("cannot serve at {}: {source}", .path.display())]
    System {
        /// The file concerned.
        path: PathBuf,
        /// The error from the kernel.
        source: Errno,
    },
}
