use std::fmt;
use std::sync::{Arc, OnceLock};

use bellwire_core::sync::{AtomicU32, Ordering, fence};

use crate::platform::{Platform, WakeEvent};

/// Wakes a thread that is parked in a link, from any other thread. Clones share the link.
#[derive(Clone, Debug)]
pub struct Canceller<P: Platform>(Arc<Cancel<P>>);

/// Whether the next wait of a link is cancelled.
pub struct Cancel<P: Platform> {
    /// Not 0 from a cancellation until it is taken.
    word: AtomicU32,
    /// For waits that no word ends.
    event: OnceLock<P::WakeEvent>,
}

impl<P: Platform> Canceller<P> {
    /// Ends the wait of the thread that is parked in the link, or its next one.
    pub fn cancel(&self) {
        self.0.word.store(1, Ordering::Release);
        // The kernel compares for the wait under the same lock under which this wake looks for waiters.
        P::wake(&self.0.word);
        if let Some(event) = self.0.event.get() {
            event.ring();
        }
    }
}

impl<P: Platform> Cancel<P> {
    /// Creates a canceller; the first one that `needs_event` creates the event.
    ///
    /// # Errors
    /// At the limit of descriptors, handles or memory.
    pub fn canceller(self: &Arc<Self>, needs_event: bool) -> Result<Canceller<P>, P::Error> {
        if needs_event && self.event.get().is_none() {
            // If another thread was faster, its event is used.
            let _ = self.event.set(P::WakeEvent::create()?);
        }
        Ok(Canceller(Arc::clone(self)))
    }

    /// Returns whether the next wait is cancelled.
    pub fn is_set(&self) -> bool {
        self.word.load(Ordering::Acquire) != 0
    }

    /// Resets the cancellation and returns whether there was one.
    pub fn take(&self) -> bool {
        let was_set = self.word.swap(0, Ordering::AcqRel) != 0;
        self.settle();
        was_set
    }

    /// Resets the event, which may be that of a cancellation taken before. Check [`Cancel::is_set`] between this call and the
    /// next wait: a cancellation that came before it has already stored its word.
    pub fn settle(&self) {
        if let Some(event) = self.event.get() {
            event.drain();
        }
    }

    /// Returns the word to park on; it is 0 while not set.
    pub fn word(&self) -> &AtomicU32 {
        &self.word
    }

    /// Returns the event that ends waits, if there is one.
    pub fn event(&self) -> Option<&P::WakeEvent> {
        self.event.get()
    }

    /// Returns whether there are cancellers. If not, the effects of the last one are visible from now on: the fence pairs
    /// with the Release decrement when it was dropped.
    pub fn is_held(self: &Arc<Self>) -> bool {
        let held = Arc::strong_count(self) > 1;
        fence(Ordering::Acquire);
        held
    }
}

impl<P: Platform> Default for Cancel<P> {
    fn default() -> Self {
        Self { word: AtomicU32::new(0), event: OnceLock::new() }
    }
}

impl<P: Platform> fmt::Debug for Cancel<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("is_set", &self.is_set()).finish_non_exhaustive()
    }
}
