//! Waking whoever waits for a board to change.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::doorbell::Event;
use crate::link::Link;
use crate::region::OwnRegion;

/// The sessions whose clients may wait for a board. Each is woken by its own event: Windows has nothing that several
/// processes can wait for at a word that they have mapped.
#[derive(Debug, Default)]
pub struct Watchers(Mutex<Vec<Weak<Event>>>);

impl Watchers {
    /// Counts a session's client in, until the link is dropped. Wakes it too: it may have waited before it was counted,
    /// and what was published then has woken the others only.
    pub fn join(&self, link: &Link) {
        let Some(event) = link.peer_event() else { return };
        let mut events = self.events();
        if events.len() == events.capacity() {
            events.retain(|event| event.strong_count() > 0);
        }
        events.push(Arc::downgrade(event));
        drop(events);
        // After it was counted: whoever wakes from now on wakes it, and whoever did before has moved the word before.
        event.ring();
    }

    /// Wakes them all when the word at `offset` of `board` has changed: one system call for each.
    pub fn wake(&self, board: &OwnRegion, offset: usize) {
        let _ = (board, offset);
        for event in self.events().iter().filter_map(Weak::upgrade) {
            event.ring();
        }
    }

    fn events(&self) -> MutexGuard<'_, Vec<Weak<Event>>> {
        // A list of events is whole whatever happened to another thread.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
