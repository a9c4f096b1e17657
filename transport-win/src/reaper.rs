//! Closes handles that a peer sent and nobody verified.
//!
//! Closing one can wait, for example the last handle of a file on a server that is gone. So the reaper has threads of its
//! own, started with the first handle. A close that does not return holds up only its own thread.

use std::os::windows::io::OwnedHandle;

use bellwire_shm::Reaper;
pub use bellwire_shm::reap_for;

pub(crate) static REAPER: Reaper<OwnedHandle> = Reaper::new(drop);

/// Closes `handle` on a reaper thread. Never waits.
///
/// The queue is unbounded: code that admits peers can check [`backlog`].
pub fn reap(handle: OwnedHandle) {
    REAPER.reap(handle);
}

/// Returns how many handles wait to be closed. A number that stays high means that a peer sent something whose close waits.
pub fn backlog() -> usize {
    REAPER.backlog()
}
