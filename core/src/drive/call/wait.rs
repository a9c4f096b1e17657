//! Spinning and parking.

use super::{CallDriver, CallFailed};
use crate::end::{EndReason, SessionState};
use crate::lane::Armed;
use crate::sync::Ordering;
use crate::time::nanos;
use crate::{
    Deadline, Executed, Instant, Observer, OwnMemory, Park, PeerMemory, Port, SpinCounter, Woken,
    Word,
};

/// Waits between two readings of the clock.
const WAITS_BEFORE_CLOCK: u64 = 64;

/// How a wait ended.
enum Waited {
    Moved,
    Over(Woken),
}

impl<P: Port, O: Observer> CallDriver<P, O> {
    /// Spins, then parks, until the peer publishes, frees room (with `space`), or the wait is over. `executed` goes
    /// into the error.
    pub(super) fn wait(
        &mut self,
        space: bool,
        until: &mut Deadline,
        executed: Executed,
    ) -> Result<(), CallFailed> {
        self.waits += 1;
        // A peer that keeps publishing but never answers would end every wait before the clock is read.
        if self.has_unread || self.waits % WAITS_BEFORE_CLOCK == 0 {
            let now = self.end.port.now();
            if until.resolve(now).is_some_and(|until| now >= until) {
                return self.over(Woken::Deadline, executed);
            }
        }
        if self.has_unread {
            return Ok(());
        }
        let mut began = None;
        match self.spin_wait(space, until, &mut began)? {
            Waited::Moved => {
                // A wait long enough to read the clock is long enough for this too.
                if let Some(now) = began {
                    self.end.observer.waited(now);
                    self.end.shrink_idle(now);
                }
                return Ok(());
            }
            Waited::Over(woken) => self.over(woken, executed)?,
        }
        let began = began.unwrap_or_else(|| self.end.port.now());
        let until = until.resolve(began);
        loop {
            let Armed::Sleep { tail, head } = self.end.arm(space)? else { return Ok(()) };
            self.parks += 1;
            self.end.port.own().store(Word::Parks, self.parks, Ordering::Relaxed);
            let woken = self.park(Park { tail, head, until });
            self.end.disarm();
            if woken == Woken::Rung {
                let now = self.end.port.now();
                self.learn(began, now);
                self.end.observer.rung(now);
                self.end.observer.waited(began);
                self.end.shrink_idle(now);
                if self.end.has_moved() || (space && self.end.has_room()?) {
                    return Ok(());
                }
                continue;
            }
            // Records published before the peer's end are still read.
            if self.end.has_moved() && woken == Woken::PeerGone {
                self.end.peer_gone();
                return Ok(());
            }
            return self.over(woken, executed);
        }
    }

    fn park(&mut self, park: Park) -> Woken {
        let began = self.end.observer.sleeps(park.head.is_some()).then(|| self.end.port.now());
        let woken = self.end.port.park(park);
        if let Some(began) = began {
            self.end.observer.woke(woken, began, self.end.port.now());
        }
        woken
    }

    /// Returns `Moved` when something moved; `Over(Rung)` when the spin ran out.
    fn spin_wait(
        &mut self,
        space: bool,
        until: &mut Deadline,
        began: &mut Option<Instant>,
    ) -> Result<Waited, CallFailed> {
        if matches!(self.end.state(), SessionState::Closing) {
            return Ok(Waited::Over(Woken::PeerGone));
        }
        let budget = self.spin_budget();
        if budget == 0 {
            return Ok(Waited::Over(Woken::Rung));
        }
        let mut counter = SpinCounter::new(budget);
        loop {
            if self.end.has_moved() || (space && self.end.has_room()?) {
                self.spin.hit(counter.spun());
                *began = counter.began();
                return Ok(Waited::Moved);
            }
            self.end.prefetch();
            self.end.port.relax();
            if !counter.count() && !self.spin.yields_first() {
                continue;
            }
            let now = self.end.port.now();
            self.spin.shorten(&mut counter, now);
            let ran_out = counter.tick(now);
            *began = counter.began();
            if until.resolve(now).is_some_and(|until| now >= until) {
                return Ok(Waited::Over(Woken::Deadline));
            }
            if ran_out {
                self.spin.ran_out();
                return Ok(Waited::Over(Woken::Rung));
            }
            if self.spin.should_yield(now) {
                self.end.port.yield_now();
                let moved = self.end.has_moved();
                self.spin.yielded(now, self.end.port.now(), moved);
            }
        }
    }

    /// Reports a park to the spin policy, with the peer's timestamp where it is plausible.
    pub(super) fn learn(&mut self, began: Instant, now: Instant) {
        let rung = Instant::from_nanos(self.end.port.peer().load(Word::RungAt, Ordering::Relaxed));
        let is_possible = rung >= began && rung <= now;
        let gap = is_possible.then(|| nanos(rung.since(began)));
        let latency = is_possible.then(|| nanos(now.since(rung)));
        self.spin.parked(gap, latency);
    }

    fn over(&mut self, woken: Woken, executed: Executed) -> Result<(), CallFailed> {
        match woken {
            Woken::Rung => Ok(()),
            Woken::Deadline => Err(CallFailed::Deadline(executed)),
            Woken::Cancelled => Err(CallFailed::Cancelled(executed)),
            Woken::PeerGone => {
                self.end.end(EndReason::Gone);
                Err(CallFailed::PeerGone(executed))
            }
        }
    }
}
