//! Closes unverified descriptors of peers.
//!
//! Closing one can block: a socket with `SO_LINGER` and unsent data, a file on a stopped FUSE server, or a socket on which
//! such a descriptor is queued. So the reaper has threads of its own, started with the first descriptor. A close that does
//! not return holds up only its own thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use bellwire_shm::Reaper;
pub use bellwire_shm::reap_for;
use rustix::net::sockopt::socket_domain;
use rustix::net::{AddressFamily, Shutdown};

use crate::fork::OwnerProcess;
use crate::pass::{self, ReceiveError};

/// How many messages are taken off a socket before it is closed; more than a socket can hold.
const MAX_QUEUED: usize = 1024;

pub(crate) static REAPER: Reaper<OwnedFd> = Reaper::new(close);
/// The process in which the threads run.
static OWNER: OnceLock<OwnerProcess> = OnceLock::new();

/// Closes `fd` on a reaper thread and does not wait for it.
///
/// The queue is unbounded and needs no bound: each entry is an open descriptor, so `RLIMIT_NOFILE` limits it. Code that
/// admits peers can check [`backlog`].
pub fn reap(fd: OwnedFd) {
    if OWNER.get_or_init(OwnerProcess::current).is_owner_process() {
        REAPER.reap(fd);
    } else {
        // A child of fork has none of its parent's other threads.
        close(fd);
    }
}

/// Returns how many descriptors wait to be closed. A number that stays high means that a peer sent something whose close
/// blocks.
pub fn backlog() -> usize {
    REAPER.backlog()
}

fn close(fd: OwnedFd) {
    // Otherwise one socket with a linger time of hours would hold up all descriptors behind it. Other descriptors refuse
    // this, which is fine.
    let _ = rustix::net::sockopt::set_socket_linger(&fd, None);
    empty(fd.as_fd());
    drop(fd);
}

/// Takes all messages off a socket. Closing the socket would close descriptors queued there; taken off, they join this queue.
fn empty(socket: BorrowedFd<'_>) {
    // Descriptors queue on Unix sockets only.
    if socket_domain(socket) != Ok(AddressFamily::UNIX) {
        return;
    }
    // Nothing can be queued from here on.
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
    for _ in 0..MAX_QUEUED {
        match pass::receive(socket, &mut [0], 0) {
            Err(ReceiveError::WouldBlock | ReceiveError::System { .. }) => return,
            // The end, or an empty message before it.
            Err(ReceiveError::Closed) if pass::is_empty(socket) => return,
            _ => {}
        }
    }
}
