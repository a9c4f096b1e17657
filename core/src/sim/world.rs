use alloc::vec::Vec;
use std::sync::Mutex;

use crate::Instant;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// What happens to the driven end at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer's process ends: it runs no more, and every wait from now on says so.
    PeerGone,
    /// Another thread of the driven end's process cancels: one wait ends.
    Cancel,
}

/// What both ends share beside their memory: the time, the bells and the script.
#[derive(Debug)]
pub(super) struct World {
    now: AtomicU64,
    /// How often each end was rung.
    rung: [AtomicU64; 2],
    script: Mutex<Vec<(Instant, Event)>>,
    gone: AtomicBool,
    cancelled: AtomicBool,
}

impl Default for World {
    fn default() -> Self {
        Self {
            now: AtomicU64::new(0),
            rung: [AtomicU64::new(0), AtomicU64::new(0)],
            script: Mutex::new(Vec::new()),
            gone: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
        }
    }
}

impl World {
    pub(super) fn now(&self) -> Instant {
        Instant::from_nanos(self.now.load(Ordering::Relaxed))
    }

    /// Moves the time on, never back, and lets happen what was scripted up to then.
    pub(super) fn advance(&self, to: Instant) {
        let now = self.now().max(to);
        self.now.store(now.as_nanos(), Ordering::Relaxed);
        self.script.lock().expect("no panic while it is locked").retain(|(when, event)| {
            let flag = match event {
                Event::PeerGone => &self.gone,
                Event::Cancel => &self.cancelled,
            };
            if *when <= now {
                flag.store(true, Ordering::Relaxed);
            }
            *when > now
        });
    }

    pub(super) fn at(&self, when: Instant, event: Event) {
        self.script.lock().expect("no panic while it is locked").push((when, event));
        self.advance(self.now());
    }

    /// When the script goes on.
    pub(super) fn next_event(&self) -> Option<Instant> {
        let script = self.script.lock().expect("no panic while it is locked");
        script.iter().map(|(when, _)| *when).min()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Whether somebody cancelled, once.
    pub(super) fn take_cancel(&self) -> bool {
        self.cancelled.swap(false, Ordering::Relaxed)
    }

    pub(super) fn ring(&self, end: usize) {
        self.bell(end).fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn rung(&self, end: usize) -> u64 {
        self.bell(end).load(Ordering::Relaxed)
    }

    fn bell(&self, end: usize) -> &AtomicU64 {
        self.rung.get(end).expect("there are two ends")
    }
}
