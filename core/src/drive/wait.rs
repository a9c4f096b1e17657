//! Spinning and parking.

use super::{CallFailed, Drive, poison, ring};
use crate::lane::Armed;
use crate::sync::Ordering;
use crate::time::nanos;
use crate::{
    Deadline, Executed, Instant, OwnMemory, Park, PeerMemory, Port, SpinCounter, Woken, Word,
    probes, resize,
};

/// Waits between two readings of the clock.
const WAITS_BEFORE_CLOCK: u32 = 64;

/// How a wait ended.
enum Waited {
    LookAgain,
    Over(Woken),
}

impl<P: Port> Drive<P> {
    /// Spins, then parks, until the peer publishes, frees room (with `space`), or the wait is over. `executed` goes
    /// into the error.
    pub(super) fn wait(
        &mut self,
        space: bool,
        until: &mut Deadline,
        executed: Executed,
    ) -> Result<(), CallFailed> {
        self.waits = self.waits.wrapping_add(1);
        // A peer that keeps publishing but never answers would end every wait before the clock is read.
        if self.unread || self.waits.is_multiple_of(WAITS_BEFORE_CLOCK) {
            let now = self.port.now();
            if until.resolve(now).is_some_and(|until| now >= until) {
                return self.over(Woken::Deadline, executed);
            }
        }
        if self.unread {
            return Ok(());
        }
        let mut began = None;
        match self.spin_wait(space, until, &mut began)? {
            Waited::LookAgain => {
                // A wait long enough to read the clock is long enough for this too.
                if let Some(now) = began {
                    self.shrink_idle(now);
                }
                return Ok(());
            }
            Waited::Over(woken) => self.over(woken, executed)?,
        }
        let began = began.unwrap_or_else(|| self.port.now());
        let until = until.resolve(began);
        loop {
            let armed = self.lanes.arm(self.port.own(), self.port.peer(), space);
            let (armed, wake) = armed.map_err(|fault| poison(&mut self.poisoned, fault))?;
            self.rings += ring(&self.port, &self.trace, wake);
            let Armed::Sleep { tail, head } = armed else { return Ok(()) };
            self.parks += 1;
            self.port.own().store(Word::Parks, self.parks, Ordering::Relaxed);
            let woken = self.park(Park { tail, head, until });
            self.lanes.disarm(self.port.own());
            if woken == Woken::Rung {
                let now = self.port.now();
                self.learn(began, now);
                self.trace.slept(now);
                self.shrink_idle(now);
                if self.lanes.moved(self.port.peer()) || (space && self.room()?) {
                    return Ok(());
                }
                continue;
            }
            // Records published before the peer's end are still read.
            if self.lanes.moved(self.port.peer()) && woken == Woken::PeerGone {
                self.gone = true;
                return Ok(());
            }
            return self.over(woken, executed);
        }
    }

    fn park(&mut self, park: Park) -> Woken {
        probes::park_begin(self.trace.session(), park.head.is_some());
        if !probes::wants_park_end() {
            return self.port.park(park);
        }
        let began = self.port.now();
        let woken = self.port.park(park);
        let slept = nanos(self.port.now().since(began));
        probes::park_end(self.trace.session(), woken.number(), slept);
        woken
    }

    /// Returns `LookAgain` when something moved; `Over(Rung)` when the spin ran out.
    fn spin_wait(
        &mut self,
        space: bool,
        until: &mut Deadline,
        began: &mut Option<Instant>,
    ) -> Result<Waited, CallFailed> {
        if self.gone {
            return Ok(Waited::Over(Woken::PeerGone));
        }
        let exchanged = self.lanes.exchanged();
        self.spin.exchanged(exchanged.wrapping_sub(self.exchanged));
        self.exchanged = exchanged;
        let budget = self.spin.budget();
        if budget == 0 {
            return Ok(Waited::Over(Woken::Rung));
        }
        let mut counter = SpinCounter::new(budget);
        loop {
            if self.lanes.moved(self.port.peer()) || (space && self.room()?) {
                self.spin.hit(counter.spun());
                *began = counter.began();
                return Ok(Waited::LookAgain);
            }
            self.lanes.prefetch(self.port.own());
            self.port.relax();
            if !counter.count() {
                continue;
            }
            let now = self.port.now();
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
            if self.spin.gives_way(now) {
                self.port.yield_now();
                self.spin.gave_way(now, self.port.now());
            }
        }
    }

    /// Reports a park to the spin policy, with the peer's timestamp where it is plausible.
    fn learn(&mut self, began: Instant, now: Instant) {
        let rung = Instant::from_nanos(self.port.peer().load(Word::RungAt, Ordering::Relaxed));
        let honest = rung >= began && rung <= now;
        let gap = honest.then(|| nanos(rung.since(began)));
        let latency = honest.then(|| nanos(now.since(rung)));
        self.spin.parked(gap, latency);
    }

    fn shrink_idle(&mut self, now: Instant) {
        if self.lanes.is_grown()
            && resize::shrink_idle(&mut self.port, &mut self.lanes, now, self.shrink_after)
        {
            self.trace_resized();
            self.publish();
        }
    }

    fn room(&mut self) -> Result<bool, CallFailed> {
        self.lanes.has_room(self.port.peer()).map_err(|fault| poison(&mut self.poisoned, fault))
    }

    fn over(&mut self, woken: Woken, executed: Executed) -> Result<(), CallFailed> {
        match woken {
            Woken::Rung => Ok(()),
            Woken::Deadline => Err(CallFailed::Deadline(executed)),
            Woken::Cancelled => Err(CallFailed::Cancelled(executed)),
            Woken::PeerGone => {
                self.gone = true;
                Err(CallFailed::PeerGone(executed))
            }
        }
    }
}
