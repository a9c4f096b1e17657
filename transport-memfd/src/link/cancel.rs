//! Cancels a wait from another thread.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bellwire_core::sync::{AtomicU32, Ordering, fence};
use rustix::io::Errno;

use crate::doorbell::{Eventfd, FutexWord};
use crate::prelude::*;

/// Wakes a thread that is parked in a [`Link`](super::Link), from any other thread. Clones share the link.
#[derive(Clone, Debug)]
pub struct Canceller(pub(super) Arc<Cancel>);

#[derive(Default)]
pub(super) struct Cancel {
    // Not 0 from a cancellation until it is taken.
    word: AtomicU32,
    // For waits on descriptors, which no futex ends; created with the first canceller.
    pub(super) eventfd: OnceLock<Eventfd>,
}

impl Canceller {
    /// Ends the wait of the thread that is parked in the link, or its next one.
    pub fn cancel(&self) {
        self.0.word.store(1, Ordering::Release);
        // The kernel compares for the wait under the same lock under which this wake looks for waiters.
        self.0.word().wake_all();
        if let Some(eventfd) = self.0.eventfd.get() {
            eventfd.ring();
        }
    }
}

impl Cancel {
    /// Returns whether the next wait is cancelled.
    pub(super) fn is_set(&self) -> bool {
        self.word.load(Ordering::Acquire) != 0
    }

    /// Resets the cancellation and returns whether there was one.
    pub(super) fn take(&self) -> bool {
        if let Some(eventfd) = self.eventfd.get() {
            eventfd.drain();
        }
        self.word.swap(0, Ordering::AcqRel) != 0
    }

    /// Returns the word to park on; it is 0 while not set.
    pub(super) fn word(&self) -> FutexWord<'_> {
        FutexWord::new(&self.word)
    }

    /// Returns whether there are cancellers. If not, the effects of the last one are visible from now on: the fence pairs
    /// with the Release decrement when it was dropped.
    pub(super) fn is_held(self: &Arc<Self>) -> bool {
        let held = Arc::strong_count(self) > 1;
        fence(Ordering::Acquire);
        held
    }

    pub(super) fn make_eventfd(&self) -> Result<(), Errno> {
        if self.eventfd.get().is_none() {
            // If another thread was faster, its eventfd is used.
            let _ = self.eventfd.set(Eventfd::create()?);
        }
        Ok(())
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("is_set", &self.is_set()).finish_non_exhaustive()
    }
}
