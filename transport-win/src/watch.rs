//! Wakes clients that wait for a board to change.

use crate::Windows;
use crate::prelude::*;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bellwire_shm::platform;

use crate::doorbell::Event;
use crate::link::Link;
use crate::region::OwnRegion;

/// The sessions whose clients may wait for a board. Each is woken by its own event: on Windows several processes cannot wait
/// on a word of shared memory.
#[derive(Debug, Default)]
pub struct Watchers(Mutex<Vec<Weak<Event>>>);

impl Watchers {
    fn events(&self) -> MutexGuard<'_, Vec<Weak<Event>>> {
        // A panic of another thread cannot leave a list of events inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl platform::Watchers<Windows> for Watchers {
    fn join(&self, link: &Link) {
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

    fn wake(&self, board: &OwnRegion, offset: usize) {
        let _ = (board, offset);
        for event in self.events().iter().filter_map(Weak::upgrade) {
            event.ring();
        }
    }
}
