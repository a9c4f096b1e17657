//! Where handles go that a peer sent and nobody verified.
//!
//! Closing one can wait: the last handle of a file on a server that is gone. So it happens on threads
//! of their own, started with the first handle; a close that does not return holds up only its own thread.

use std::os::windows::io::OwnedHandle;

use bellwire_transport::Reaper;
pub use bellwire_transport::reap_for;

use crate::peer::User;

static REAPER: Reaper<OwnedHandle> = Reaper::new(drop);

/// Closes `handle` on the reaper thread. Never waits.
///
/// The queue has no bound of its own: whoever admits peers can look at [`backlog`].
pub fn reap(handle: OwnedHandle) {
    REAPER.reap(handle);
}

/// Closes all of `handles` on the reaper thread.
pub fn reap_all(handles: impl IntoIterator<Item = OwnedHandle>) {
    handles.into_iter().for_each(reap);
}

/// How many handles wait to be closed. A number that stays high means that a peer sent something whose
/// closing waits.
pub fn backlog() -> usize {
    REAPER.backlog()
}

/// Whether so many closes do not return that nothing more is closed, and among them one of what this user sent.
pub fn is_stuck_by(user: User) -> bool {
    REAPER.is_stuck_by(&user)
}
