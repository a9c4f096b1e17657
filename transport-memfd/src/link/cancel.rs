//! Cancels a wait from another thread.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bellwire_core::sync::{Ordering, fence};
use rustix::io::Errno;

use crate::doorbell::{CancelWord, Eventfd};

/// Wakes a thread that is parked in a [`Link`](super::Link), from any other thread. Clones share the link.
#[derive(Clone, Debug)]
pub struct Canceller(pub(super) Arc<Cancel>);

#[derive(Default)]
pub(super) struct Cancel {
    pub(super) word: CancelWord,
    // For waits on descriptors, which no futex ends; created with the first canceller.
    pub(super) eventfd: OnceLock<Eventfd>,
}

impl Canceller {
    /// Ends the wait of the thread that is parked in the link, or its next one.
    pub fn cancel(&self) {
        self.0.word.set();
        if let Some(eventfd) = self.0.eventfd.get() {
            eventfd.ring();
        }
    }
}

impl Cancel {
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
        f.debug_struct("Cancel").field("is_set", &self.word.is_set()).finish_non_exhaustive()
    }
}
