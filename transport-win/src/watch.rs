//! Wakes clients that wait for a board to change.

use crate::Windows;
use crate::prelude::*;
use std::sync::{Arc, Mutex, Weak};

use bellwire_shm::{lock, platform};

use crate::doorbell::Event;
use crate::link::Link;
use crate::region::OwnRegion;

/// The sessions whose clients may wait for a board. Each is woken by its own event: on Windows several processes cannot wait
/// on a word of shared memory.
#[derive(Debug, Default)]
pub struct Watchers(Mutex<Vec<Weak<Event>>>);

impl platform::Watchers<Windows> for Watchers {
    fn join(&self, link: &Link) {
        let Some(event) = link.bells.peer() else { return };
        let mut events = lock(&self.0);
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
        for event in lock(&self.0).iter().filter_map(Weak::upgrade) {
            event.ring();
        }
    }
}
