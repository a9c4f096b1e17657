use alloc::boxed::Box;
use core::fmt;
use core::time::Duration;
use std::sync::{Mutex, MutexGuard};

use super::{Event, Peer, Sim, SimEnd, SimOwn, SimPeer, Step};
use crate::lane::Epoch;
use crate::resize::{FollowError, Shortage};
use crate::sync::Ordering;
use crate::wire::Doorbell;
use crate::{Bell, Instant, Park, PeerMemory, Port, Woken, Word};

/// What one look of a spinning end takes.
const RELAX: Duration = Duration::from_nanos(20);
/// A peer that takes so many steps during one wait, without time or the driven end moving, never stops.
const ENDLESS: u32 = 1_000_000;

/// The driven end of a simulated session. The peer runs while this end spins or is parked.
pub struct SimPort {
    sim: Sim,
    end: SimEnd,
    other: Mutex<Other>,
    /// How often this end had been rung when it last woke up.
    heard: u64,
    parks: u64,
    rings: Mutex<u64>,
    gave_way: Mutex<u64>,
}

/// The peer, and what it is doing.
struct Other {
    end: SimEnd,
    peer: Box<dyn Peer + Send>,
    doing: Step,
    /// How often the peer had been rung when it last ran.
    heard: u64,
    steps: u64,
}

impl SimPort {
    pub(super) fn new(sim: Sim, end: SimEnd, other: SimEnd, peer: Box<dyn Peer + Send>) -> Self {
        let other = Other { end: other, peer, doing: Step::Again, heard: 0, steps: 0 };
        let (rings, gave_way) = (Mutex::new(0), Mutex::new(0));
        Self { sim, end, other: Mutex::new(other), heard: 0, parks: 0, rings, gave_way }
    }

    /// This end.
    pub fn end(&self) -> &SimEnd {
        &self.end
    }

    /// Asks or tells the other end something.
    pub fn at_peer<R>(&self, ask: impl FnOnce(&SimEnd) -> R) -> R {
        ask(&self.other().end)
    }

    /// How often this end rang the peer.
    pub fn rings(&self) -> u64 {
        *self.rings.lock().expect("no panic while it is locked")
    }

    /// How often this end gave way to others.
    pub fn gave_way(&self) -> u64 {
        *self.gave_way.lock().expect("no panic while it is locked")
    }

    /// How often this end parked.
    pub fn parks(&self) -> u64 {
        self.parks
    }

    /// How many steps the peer took.
    pub fn steps(&self) -> u64 {
        self.other().steps
    }

    /// Lets this happen in `span` from now.
    pub fn after(&self, span: Duration, event: Event) {
        self.end.after(span, event);
    }

    /// Runs the peer until it has nothing to do at this time.
    pub fn run_peer(&self) {
        let mut steps = 0;
        while self.other().turn() {
            steps += 1;
            assert!(steps < ENDLESS, "endless: the peer never stops");
        }
    }

    /// Lets `span` pass for both ends.
    pub fn run_for(&self, span: Duration) {
        let over = self.end.now().after(span);
        self.run_peer();
        while let Some(next) = self.next_time().filter(|next| *next < over) {
            self.end.world().advance(next);
            self.run_peer();
        }
        self.end.world().advance(over);
        self.run_peer();
    }

    /// When something happens by itself: the peer's time, or the script's.
    fn next_time(&self) -> Option<Instant> {
        self.other().next_time().into_iter().chain(self.end.world().next_event()).min()
    }

    fn other(&self) -> MutexGuard<'_, Other> {
        self.other.lock().expect("the peer's step does not reach its own port")
    }

    /// Whether a futex would not sleep: a word's low half has moved on.
    fn moved(&self, park: Park) -> bool {
        let low = |value: u64| value & 0xffff_ffff;
        let differs = |word, seen| low(self.end.peer().load(word, Ordering::Acquire)) != low(seen);
        differs(Word::Tail, park.tail) || park.head.is_some_and(|head| differs(Word::Head, head))
    }
}

impl Other {
    /// Takes a step if it is the peer's turn.
    fn turn(&mut self) -> bool {
        let now = self.end.now();
        let turn = match self.doing {
            Step::Again => true,
            Step::Busy(until) => until <= now,
            Step::Parked(until) => {
                self.end.rung() != self.heard || until.is_some_and(|until| until <= now)
            }
            Step::Gone => false,
        };
        if !turn || self.end.world().is_gone() {
            return false;
        }
        self.heard = self.end.rung();
        self.steps += 1;
        self.doing = self.peer.step(&self.end);
        if self.doing == Step::Gone {
            self.end.after(Duration::ZERO, Event::PeerGone);
        }
        true
    }

    fn next_time(&self) -> Option<Instant> {
        match self.doing {
            _ if self.end.world().is_gone() => None,
            Step::Busy(until) => Some(until),
            Step::Parked(until) => until,
            Step::Again | Step::Gone => None,
        }
    }
}

impl Port for SimPort {
    type Own = SimOwn;
    type Peer = SimPeer;

    fn own(&self) -> &SimOwn {
        self.end.own()
    }

    fn peer(&self) -> &SimPeer {
        self.end.peer()
    }

    fn now(&self) -> Instant {
        self.end.now()
    }

    fn ring(&self, _bell: Bell) {
        *self.rings.lock().expect("no panic while it is locked") += 1;
        self.end.ring();
    }

    fn park(&mut self, park: Park) -> Woken {
        self.parks += 1;
        let world = self.end.world();
        if self.sim.doorbell == Doorbell::Futex {
            // A futex forgets the rings that nobody slept through, and compares instead.
            self.heard = self.end.rung();
            if self.moved(park) {
                return Woken::Rung;
            }
        }
        let mut steps = 0;
        loop {
            if world.take_cancel() {
                return Woken::Cancelled;
            }
            if self.end.rung() != self.heard {
                self.heard = self.end.rung();
                world.advance(self.end.now().after(self.sim.wake));
                return Woken::Rung;
            }
            if world.is_gone() {
                return Woken::PeerGone;
            }
            if park.until.is_some_and(|until| until <= self.end.now()) {
                return Woken::Deadline;
            }
            if self.other().turn() {
                steps += 1;
                assert!(steps < ENDLESS, "endless: the peer never stops, at {park:?}");
                continue;
            }
            let next = self.next_time().into_iter().chain(park.until).min();
            let Some(next) = next else {
                panic!("deadlock: nobody rings and nothing will happen, at {park:?}, {self:?}");
            };
            world.advance(next);
        }
    }

    fn offer(&mut self, epoch: Epoch) -> Result<(), Shortage> {
        (&self.end).offer(epoch)
    }

    fn adopt(&mut self, epoch: Epoch) {
        (&self.end).adopt(epoch);
    }

    fn follow(&mut self, epoch: Epoch) -> Result<(), FollowError> {
        (&self.end).follow(epoch)
    }

    fn give_way(&self) {
        *self.gave_way.lock().expect("no panic while it is locked") += 1;
        self.end.world().advance(self.end.now().after(self.sim.crowd));
        self.other().turn();
    }

    fn relax(&self) {
        self.end.world().advance(self.end.now().after(RELAX));
        self.other().turn();
    }
}

impl fmt::Debug for SimPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let other = self.other();
        let words = |memory: &SimPeer| {
            [Word::Tail, Word::Head, Word::WantData, Word::WantSpace]
                .map(|word| (word, memory.load(word, Ordering::Acquire)))
        };
        f.debug_struct("SimPort")
            .field("now", &self.end.now())
            .field("own", &words(other.end.peer()))
            .field("peer", &words(self.end.peer()))
            .field("peer_is", &other.doing)
            .finish_non_exhaustive()
    }
}
