//! Where descriptors go that a peer sent and nobody verified.
//!
//! Closing one can block: a socket with `SO_LINGER` and unsent data, a file on a stopped FUSE server; and a socket on
//! which such a one is queued. So it happens on threads of their own, started with the first descriptor; a close that
//! does not return holds up only its own thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use bellwire_transport::Reaper;
pub use bellwire_transport::reap_for;
use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::fork::Home;
use crate::pass::{self, ReceiveError};
use crate::peer::User;

/// Messages that are taken off a socket before it is closed: more than one holds.
const MOST_QUEUED: usize = 1024;
/// Messages without bytes in a row that are taken for the end of them.
const MOST_EMPTY: usize = 16;

static REAPER: Reaper<OwnedFd> = Reaper::new(close);
/// Where the threads are.
static HOME: OnceLock<Home> = OnceLock::new();

/// Closes `fd` on a reaper thread. Does not wait for it.
///
/// The queue has no bound of its own and needs none: each entry is an open descriptor, so
/// `RLIMIT_NOFILE` is its bound. Whoever admits peers can look at [`backlog`].
pub fn reap(fd: OwnedFd) {
    if HOME.get_or_init(Home::here).is_here() {
        REAPER.reap(fd);
    } else {
        // A child of fork has no threads but its own.
        close(fd);
    }
}

/// Closes all of `fds` on the reaper thread.
pub fn reap_all(fds: impl IntoIterator<Item = OwnedFd>) {
    fds.into_iter().for_each(reap);
}

/// How many descriptors wait to be closed. A number that stays high means that a peer sent something
/// whose closing blocks.
pub fn backlog() -> usize {
    REAPER.backlog()
}

/// Whether so many closes do not return that nothing more is closed, and among them one of what this user sent.
pub fn is_stuck_by(user: User) -> bool {
    REAPER.is_stuck_by(&user)
}

fn close(fd: OwnedFd) {
    // Otherwise one socket with a linger time of hours would hold up all that come after it. Other
    // descriptors refuse this, which is fine.
    let _ = rustix::net::sockopt::set_socket_linger(&fd, None);
    empty(fd.as_fd());
    drop(fd);
}

/// Takes everything off a socket. What is queued there would be closed with it, as it is: descriptors that come off it
/// join this queue instead.
fn empty(socket: BorrowedFd<'_>) {
    // Nobody puts anything on it from here on. What is no socket refuses this.
    if rustix::net::shutdown(socket, Shutdown::Both).is_err_and(|error| error == Errno::NOTSOCK) {
        return;
    }
    let mut empty = 0;
    for _ in 0..MOST_QUEUED {
        match pass::receive(socket, &mut [0], 0) {
            Err(ReceiveError::WouldBlock | ReceiveError::System { .. }) => return,
            // The end, or a message without bytes.
            Err(ReceiveError::Closed) if empty == MOST_EMPTY => return,
            Err(ReceiveError::Closed) => empty += 1,
            _ => empty = 0,
        }
    }
}
