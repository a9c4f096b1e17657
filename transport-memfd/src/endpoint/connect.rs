//! A client's way to an endpoint.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bellwire_core::{Instant, ServiceName};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::run_dir::is_trusted;
use super::{MAX_PATH, no_follow, seqpacket, socket_path};
use crate::clock;
use crate::pass::Channel;
use crate::peer::{User, own_uid};
use crate::prelude::*;

/// How long a client waits for room in a full backlog at a time: so late it sees that its call was cancelled.
const BUSY_SLICE: Duration = Duration::from_millis(100);

/// Why a service cannot be reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody serves it now. This is a state rather than a failure: try again later.
    #[error("no provider of {service} is running")]
    Absent {
        /// The service.
        service: ServiceName,
    },
    /// The object with the socket's name is not a socket; possibly a symbolic link.
    #[error("{} is not a socket: remove it, or name the right run directory", .path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The socket belongs to a user who is not trusted.
    #[error(
        "{} belongs to uid {owner}, neither this process's user nor root: remove it, or list that user in the client's trusted users", .path.display()
    )]
    Squatted {
        /// The path.
        path: PathBuf,
        /// Its owner's uid.
        owner: u32,
    },
    /// This user may not reach the socket or may not connect to it.
    #[error(
        "uid {uid} may not connect to {}: run the client as the provider's user, or have the provider admit it (bellwire provide --admit), which lets it reach the run directory and the socket", .path.display()
    )]
    Forbidden {
        /// The path.
        path: PathBuf,
        /// This process's user.
        uid: u32,
    },
    /// The queue of connections that wait for accept is full. Try again soon.
    #[error("{service} has too many connections waiting: try again")]
    Busy {
        /// The service.
        service: ServiceName,
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
    #[error("cannot connect to {}: {source}", .path.display())]
    System {
        /// The path.
        path: PathBuf,
        /// The error from the kernel.
        source: Errno,
    },
}

impl ConnectError {
    /// Returns whether an untrusted process has the name.
    pub const fn is_impostor(&self) -> bool {
        matches!(self, Self::NotASocket { .. } | Self::Squatted { .. })
    }
}

/// Connects to a service whose socket belongs to this user or to root.
///
/// # Errors
/// [`ConnectError`]; [`ConnectError::Absent`] when no process serves it.
pub fn connect(run_dir: &Path, service: ServiceName) -> Result<Channel, ConnectError> {
    connect_trusting(run_dir, service, &[], None)
}

/// Connects to a service whose socket belongs to this user, to root, or to one of `owners`.
///
/// Blocks only while the backlog is full, for 100 ms and until `until` at most, and not at all without it. The channel is
/// non-blocking and `CLOEXEC`. The caller still checks the [`credentials`](crate::peer::credentials) of the peer.
///
/// # Errors
/// [`ConnectError`]; [`ConnectError::Absent`] when no process serves it.
pub fn connect_trusting(
    run_dir: &Path,
    service: ServiceName,
    owners: &[User],
    until: Option<Instant>,
) -> Result<Channel, ConnectError> {
    let path = socket_path(run_dir, service);
    let system = |source| match source {
        Errno::ACCESS | Errno::PERM => {
            ConnectError::Forbidden { path: path.clone(), uid: own_uid() }
        }
        source => ConnectError::System { path: path.clone(), source },
    };
    let len = path.as_os_str().len();
    if len > MAX_PATH {
        return Err(ConnectError::PathTooLong { path, len });
    }
    let stat = match no_follow(&path) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Err(ConnectError::Absent { service }),
        Err(source) => return Err(system(source)),
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Err(ConnectError::NotASocket { path });
    }
    let owner = stat.st_uid;
    if !is_trusted(owner) && !owners.contains(&User::from(owner)) {
        return Err(ConnectError::Squatted { path, owner });
    }
    let address = SocketAddrUnix::new(&path).map_err(system)?;
    let channel = Channel::open(seqpacket).map_err(system)?;
    match rustix::net::connect(channel.arrived(), &address) {
        Ok(()) => Ok(channel),
        Err(Errno::NOENT | Errno::CONNREFUSED) => Err(ConnectError::Absent { service }),
        Err(Errno::AGAIN) => match connect_waiting(&channel, &address, until) {
            Ok(()) => Ok(channel),
            Err(Errno::AGAIN | Errno::INTR) => Err(ConnectError::Busy { service }),
            Err(Errno::NOENT | Errno::CONNREFUSED) => Err(ConnectError::Absent { service }),
            Err(source) => Err(system(source)),
        },
        // A socket of another type is never an endpoint.
        Err(Errno::PROTOTYPE) => Err(ConnectError::NotASocket { path }),
        Err(source) => Err(system(source)),
    }
}

/// Connects, and waits in the kernel's queue for room in the backlog, until `until` or [`BUSY_SLICE`]: a client that retried
/// instead would lose each place to one that retries faster.
///
/// # Errors
/// `EAGAIN` when there was none.
fn connect_waiting(
    channel: &Channel,
    address: &SocketAddrUnix,
    until: Option<Instant>,
) -> Result<(), Errno> {
    let left = until.unwrap_or_default().since(clock::now()).min(BUSY_SLICE);
    if left < Duration::from_millis(1) {
        return Err(Errno::AGAIN);
    }
    let socket = channel.arrived();
    let flags = fcntl_getfl(socket)?;
    set_socket_timeout(socket, Timeout::Send, Some(left))?;
    fcntl_setfl(socket, flags - OFlags::NONBLOCK)?;
    let connected = rustix::net::connect(socket, address);
    fcntl_setfl(socket, flags)?;
    connected
}
