//! Where descriptors go that a peer sent and nobody verified.
//!
//! Closing one can block: a socket with `SO_LINGER` and unsent data, a file on a stopped FUSE server. So
//! it happens on one thread of its own, started with the first descriptor.

use std::os::fd::OwnedFd;

use bellwire_transport::Reaper;

static REAPER: Reaper<OwnedFd> = Reaper::new(close);

/// Closes `fd` on the reaper thread. Never blocks.
///
/// The queue has no bound of its own and needs none: each entry is an open descriptor, so
/// `RLIMIT_NOFILE` is its bound. Whoever admits peers can look at [`backlog`].
pub fn reap(fd: OwnedFd) {
    REAPER.reap(fd);
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

fn close(fd: OwnedFd) {
    // Otherwise one socket with a linger time of hours would hold up all that come after it. Other
    // descriptors refuse this, which is fine.
    let _ = rustix::net::sockopt::set_socket_linger(&fd, None);
    drop(fd);
}
