//! A client's way to an endpoint.

use std::path::Path;
use std::time::Duration;

use bellwire_core::{Instant, ServiceName};
use bellwire_shm::platform;
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::run_dir::is_trusted;
use super::{MAX_PATH, no_follow, seqpacket, socket_path};
use crate::pass::Channel;
use crate::peer::User;
use crate::prelude::*;
use crate::{Linux, clock};

/// How long a client waits for room in a full backlog at a time: so late it sees that its call was cancelled.
const BUSY_SLICE: Duration = Duration::from_millis(100);

/// Why a service cannot be reached.
pub type ConnectError = platform::ConnectError<Linux>;

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
            ConnectError::Forbidden { at: path.display().to_string(), user: User::own() }
        }
        source => ConnectError::System { at: path.display().to_string(), source },
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
    let owner = User::from(stat.st_uid);
    if !is_trusted(stat.st_uid) && !owners.contains(&owner) {
        return Err(ConnectError::Squatted { at: path.display().to_string(), owner });
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
