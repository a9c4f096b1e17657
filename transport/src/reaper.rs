use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use bellwire_core::sync::{AtomicUsize, Ordering};

/// Where descriptors or handles go that a peer sent and nobody verified: closing one can block, so it happens on one
/// thread of its own, started with the first of them. A process has one, in a `static`.
#[derive(Debug)]
pub struct Reaper<H: 'static> {
    queue: OnceLock<Option<Sender<H>>>,
    waiting: AtomicUsize,
    close: fn(H),
}

impl<H: Send> Reaper<H> {
    /// One that closes by `close`, and has no thread yet.
    pub const fn new(close: fn(H)) -> Self {
        Self { queue: OnceLock::new(), waiting: AtomicUsize::new(0), close }
    }

    /// Closes `handle` on the reaper's thread. Never blocks.
    ///
    /// The queue has no bound of its own: whoever admits peers can look at [`Reaper::backlog`].
    pub fn reap(&'static self, handle: H) {
        let queue = self.queue.get_or_init(|| self.start());
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // Without a thread (no memory, no process slots) it is closed here: late is better than leaked.
        let sent = queue.as_ref().is_some_and(|queue| queue.send(handle).is_ok());
        if !sent {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// How many wait to be closed. A number that stays high means that a peer sent something whose closing blocks.
    pub fn backlog(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn start(&'static self) -> Option<Sender<H>> {
        let (queue, arrivals) = channel();
        let thread = thread::Builder::new().name("bellwire-reaper".into());
        thread.spawn(move || self.run(&arrivals)).ok()?;
        Some(queue)
    }

    fn run(&self, arrivals: &Receiver<H>) {
        for handle in arrivals {
            (self.close)(handle);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
