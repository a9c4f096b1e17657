//! Spinning for an event loop, which serves others between two looks.

use super::CallDriver;
use crate::{Instant, Observer, Port, SpinCounter};

/// What [`CallDriver::look`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// There is something to take or to report.
    Moved,
    /// Nothing: look again at once.
    Again,
    /// Nothing for a while: serve others, then look again.
    Later,
    /// Spinning no longer pays: arm, and sleep.
    RanOut,
}

impl<P: Port, O: Observer> CallDriver<P, O> {
    /// Starts to spin for the next answer, or goes on with it. Returns false when the policy says to sleep instead.
    #[inline]
    pub fn begin_spin(&mut self) -> bool {
        if self.looks.is_none() {
            let budget = self.spin_budget();
            self.looks = (budget > 0).then(|| SpinCounter::new(budget));
        }
        self.looks.is_some()
    }

    /// Looks once whether the peer has published anything, within the spin that [`CallDriver::begin_spin`] started. Reads
    /// the clock, and yields the processor where others want it, once in many looks.
    #[inline]
    pub fn look(&mut self) -> Look {
        let Some(counter) = &mut self.looks else { return Look::RanOut };
        if self.end.has_moved() || self.has_untaken {
            return Look::Moved;
        }
        self.end.prefetch();
        if !counter.count() && !self.spin.yields_at_once() {
            return Look::Again;
        }
        let port = &self.end.port;
        let poll_after_yield = || {
            port.yield_now();
            self.end.has_moved()
        };
        if !self.spin.tick(counter, || port.now(), poll_after_yield) {
            self.looks = None;
            return Look::RanOut;
        }
        Look::Later
    }

    /// Ends the spin: `found` reports that the peer has answered meanwhile.
    #[inline]
    pub fn end_spin(&mut self, found: bool) {
        if let Some(counter) = self.looks.take() {
            if found {
                self.spin.hit(counter.spun());
            }
        }
    }

    /// Reports to the spin policy that the peer rang an event loop that had waited since `began`.
    pub fn woke(&mut self, began: Instant) {
        self.learn(began, self.end.port.now());
    }

    /// Returns how long to spin now, in nanoseconds, given what was exchanged since the last wait.
    pub(super) fn spin_budget(&mut self) -> u64 {
        let exchanged = self.end.lanes.exchanged();
        self.spin.exchanged(exchanged.wrapping_sub(self.exchanged));
        self.exchanged = exchanged;
        self.spin.budget()
    }
}
