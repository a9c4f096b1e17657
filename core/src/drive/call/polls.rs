//! Spinning for an event loop, which serves others between two polls.

use super::CallDriver;
use crate::{Instant, Observer, Port, SpinCounter};

/// What [`CallDriver::poll_once`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpinPoll {
    /// There is something to take or to report.
    Moved,
    /// Nothing: poll again at once.
    Again,
    /// Nothing for a while: serve others, then poll again.
    Later,
    /// Spinning no longer pays: arm, and sleep.
    RanOut,
}

impl<P: Port, O: Observer> CallDriver<P, O> {
    /// Starts to spin for the next answer, or goes on with it. Returns false when the policy says to sleep instead.
    #[inline]
    pub fn begin_spin(&mut self) -> bool {
        if self.polls.is_none() {
            let budget = self.spin_budget();
            self.polls = (budget > 0).then(|| SpinCounter::new(budget));
        }
        self.polls.is_some()
    }

    /// Polls once whether the peer has published anything, within the spin that [`CallDriver::begin_spin`] started. Reads
    /// the clock, and yields the processor where others want it, once in many polls.
    #[inline]
    pub fn poll_once(&mut self) -> SpinPoll {
        let Some(counter) = &mut self.polls else { return SpinPoll::RanOut };
        if self.end.has_moved() || self.has_unread {
            return SpinPoll::Moved;
        }
        self.end.prefetch();
        if !counter.count() && !self.spin.yields_first() {
            return SpinPoll::Again;
        }
        let port = &self.end.port;
        let poll_after_yield = || {
            port.yield_now();
            self.end.has_moved()
        };
        if !self.spin.tick(counter, || port.now(), poll_after_yield) {
            self.polls = None;
            return SpinPoll::RanOut;
        }
        SpinPoll::Later
    }

    /// Ends the spin: `found` reports that the peer has answered meanwhile.
    #[inline]
    pub fn end_spin(&mut self, found: bool) {
        if let Some(counter) = self.polls.take() {
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
