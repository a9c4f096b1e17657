//! Wakes clients that wait for a board to change.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::doorbell::Event;
use crate::link::Link;
use crate::region::OwnRegion;

/// The sessions whose clients may wait for a board. Each is woken by its own event: on Windows several processes cannot wait
/// on a word of shared memory.
#[derive(Debug, Default)]
pub struct Watchers(Mutex<Vec<Weak<Event>>>);

impl Watchers {
    /// Registers a session's client until its link is dropped. Also wakes it: it may have begun to wait before it was
    /// registered, and a publication in between woke only the others.
    pub fn join(&self, link: &Link) {
        let Some(event) = link.peer_event() else { return };
        let mut events = self.events();
        if events.len() == events.capacity() {
            events.retain(|event| event.strong_count() > 0);
        }
        events.push(Arc::downgrade(event));
        drop(events);
        // After the registration: later wakes reach it, and earlier ones had changed the word already.
        event.ring();
    }

    /// Wakes all clients when the word at `offset` of `board` has changed: one system call for each.
    pub fn wake(&self, board: &OwnRegion, offset: usize) {
        let _ = (board, offset);
        for event in self.events().iter().filter_map(Weak::upgrade) {
            event.ring();
        }
    }

    fn events(&self) -> MutexGuard<'_, Vec<Weak<Event>>> {
        // A panic of another thread cannot leave a list of events inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
