use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bellwire_core::lane::Epoch;
use bellwire_core::resize::{FollowError, Shortage};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::Doorbell;
use bellwire_core::{Bell, Instant, Park, PeerMemory, Port, Woken, Word};

use crate::{Event, Peer, Sim, SimEnd, SimOwn, SimPeer, Step};

/// The virtual time of one poll of a spinning end.
const RELAX: Duration = Duration::from_nanos(20);
/// A peer that takes this many steps in one wait, without progress of time or of the driven end, never stops.
const ENDLESS: u32 = 1_000_000;

/// The driven end of a simulated session. The peer runs while this end spins or is parked.
pub struct SimPort {
    sim: Sim,
    end: SimEnd,
    other: Mutex<Other>,
    /// The number of rings of this end when it last woke up.
    heard: u64,
    parks: u64,
    rings: Mutex<u64>,
    yields: Mutex<u64>,
}

/// The peer and its state.
struct Other {
    end: SimEnd,
    peer: Box<dyn Peer + Send>,
    doing: Step,
    /// The number of rings of the peer when it last ran.
    heard: u64,
    steps: u64,
}

impl SimPort {
    pub(super) fn new(sim: Sim, end: SimEnd, other: SimEnd, peer: Box<dyn Peer + Send>) -> Self {
        let other = Other { end: other, peer, doing: Step::Again, heard: 0, steps: 0 };
        let (rings, yields) = (Mutex::new(0), Mutex::new(0));
        Self { sim, end, other: Mutex::new(other), heard: 0, parks: 0, rings, yields }
    }

    /// Returns this end.
    pub fn end(&self) -> &SimEnd {
        &self.end
    }

    /// Runs a closure on the other end.
    pub fn at_peer<R>(&self, ask: impl FnOnce(&SimEnd) -> R) -> R {
        ask(&self.other().end)
    }

    /// Returns how often this end rang the peer.
    pub fn rings(&self) -> u64 {
        *self.rings.lock().expect("no panic while it is locked")
    }

    /// Returns how often this end yielded.
    pub fn yields(&self) -> u64 {
        *self.yields.lock().expect("no panic while it is locked")
    }

    /// Returns how often this end parked.
    pub fn parks(&self) -> u64 {
        self.parks
    }

    /// Returns how many steps the peer took.
    pub fn steps(&self) -> u64 {
        self.other().steps
    }

    /// Schedules an event in `span` from now.
    pub fn after(&self, span: Duration, event: Event) {
        self.end.after(span, event);
    }

    /// Runs the peer until it has nothing to do at the current time.
    pub fn run_peer(&self) {
        let mut steps = 0;
        while self.other().turn() {
            steps += 1;
            assert!(steps < ENDLESS, "endless: the peer never stops");
        }
    }

    /// Advances both ends by `span`.
    pub fn run_for(&self, span: Duration) {
        let over = self.end.now().after(span);
        self.run_peer();
        while let Some(next) = self.next_time().filter(|next| *next < over) {
            self.end.shared().advance(next);
            self.run_peer();
        }
        self.end.shared().advance(over);
        self.run_peer();
    }

    /// Returns when the next timed event is: the peer's or the script's.
    fn next_time(&self) -> Option<Instant> {
        self.other().next_time().into_iter().chain(self.end.shared().next_event()).min()
    }

    fn other(&self) -> MutexGuard<'_, Other> {
        self.other.lock().expect("the peer's step does not reach its own port")
    }

    /// Returns whether a futex would not sleep: the low half of a word has moved.
    fn moved(&self, park: Park) -> bool {
        let low = |value: u64| value & 0xffff_ffff;
        let differs = |word, seen| low(self.end.peer().load(word, Ordering::Acquire)) != low(seen);
        differs(Word::Tail, park.tail) || park.head.is_some_and(|head| differs(Word::Head, head))
    }
}

impl Other {
    /// Runs a step if it is the peer's turn.
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
        if !turn || self.end.shared().is_gone() {
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
            _ if self.end.shared().is_gone() => None,
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
        let shared = self.end.shared();
        if self.sim.doorbell == Doorbell::Futex {
            // A futex does not remember rings from before a sleep; it compares the word instead.
            self.heard = self.end.rung();
            if self.moved(park) {
                return Woken::Rung;
            }
        }
        let mut steps = 0;
        loop {
            if shared.take_cancel() {
                return Woken::Cancelled;
            }
            if self.end.rung() != self.heard {
                self.heard = self.end.rung();
                shared.advance(self.end.now().after(self.sim.wake));
                return Woken::Rung;
            }
            if shared.is_gone() {
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
            shared.advance(next);
        }
    }

    fn offer(&mut self, epoch: Epoch) -> Result<(), Shortage> {
        self.end.offer(epoch)
    }

    fn adopt(&mut self, epoch: Epoch) {
        self.end.adopt(epoch);
    }

    fn follow(&mut self, epoch: Epoch) -> Result<(), FollowError> {
        self.end.follow(epoch)
    }

    fn yield_now(&self) {
        *self.yields.lock().expect("no panic while it is locked") += 1;
        self.end.shared().advance(self.end.now().after(self.sim.yield_time));
        self.other().turn();
    }

    fn relax(&self) {
        self.end.shared().advance(self.end.now().after(RELAX));
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
