//! Where handles go that a peer sent and nobody verified.
//!
//! Closing one can wait: the last handle of a file on a server that is gone. So it happens on one thread of
//! its own, started with the first handle.

use std::os::windows::io::OwnedHandle;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};

use bellwire_core::sync::{AtomicUsize, Ordering};

static QUEUE: OnceLock<Option<Sender<OwnedHandle>>> = OnceLock::new();
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Closes `handle` on the reaper thread. Never waits.
///
/// The queue has no bound of its own: whoever admits peers can look at [`backlog`].
pub fn reap(handle: OwnedHandle) {
    let queue = QUEUE.get_or_init(start);
    WAITING.fetch_add(1, Ordering::Relaxed);
    // Without a thread it is closed here: late is better than leaked.
    let sent = queue.as_ref().is_some_and(|queue| queue.send(handle).is_ok());
    if !sent {
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Closes all of `handles` on the reaper thread.
pub fn reap_all(handles: impl IntoIterator<Item = OwnedHandle>) {
    handles.into_iter().for_each(reap);
}

/// How many handles wait to be closed. A number that stays high means that a peer sent something whose
/// closing waits.
pub fn backlog() -> usize {
    WAITING.load(Ordering::Relaxed)
}

fn start() -> Option<Sender<OwnedHandle>> {
    let (queue, arrivals) = channel();
    let thread = std::thread::Builder::new().name("bellwire-reaper".into());
    thread.spawn(move || run(&arrivals)).ok()?;
    Some(queue)
}

fn run(arrivals: &Receiver<OwnedHandle>) {
    for handle in arrivals {
        drop(handle);
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}
