use std::collections::VecDeque;
use std::rc::Rc;

use bellwire_core::drive::{CallDriver, ServeDriver};
use bellwire_core::lane::{Epoch, Growth, LaneTerms, Lanes};
use bellwire_core::resize::{FollowError, Shortage};
use bellwire_core::sync::{AtomicU64, Ordering};
use bellwire_core::{
    Bell, Geometry, Instant, Limit, Park, PeerFault, Port, SpinPolicy, Woken, Word,
};
use loom::sync::Mutex;

use crate::{Client, Doorbells, Lane, Server, Side, Sleep, View};

/// What the two ends share. Loom runs every thread of a model on one, so an `Rc` suffices.
pub struct Session {
    sides: [Side; 2],
    bells: [Doorbells; 2],
    /// What was passed to each end.
    control: [Mutex<VecDeque<Passed>>; 2],
    /// Set by another thread of the client's process.
    cancel: AtomicU64,
}

/// The memory of an epoch of a lane, on its way.
type Passed = (Epoch, Rc<Lane>);

/// An end's memory, and everything that the two ends share.
pub struct EndPort {
    session: Rc<Session>,
    me: usize,
    own: View,
    peer: View,
    offered: Option<Passed>,
    /// Whether a wait ends when another thread cancels it. Once it has, there is nobody to cancel the next one.
    is_cancellable: bool,
}

impl Session {
    /// Two ends of a new session, each with a lane of `lane` bytes, that sleep like this.
    pub fn open(lane: u32, sleep: Sleep) -> (Client, Server) {
        Self::with_terms(LaneTerms::fixed(Geometry::tiny(lane)), sleep)
    }

    /// Like [`Session::open`], with lanes of any size from `least` to `most`.
    pub fn resizing([lane, least, most]: [u32; 3], sleep: Sleep) -> (Client, Server) {
        let no_limit = Limit::smaller(u64::MAX, u64::MAX);
        let terms = LaneTerms {
            size: Geometry::tiny(lane),
            least: Geometry::tiny(least),
            most: Geometry::tiny(most),
            message: no_limit,
            shared: no_limit,
        };
        Self::with_terms(terms, sleep)
    }

    fn with_terms(terms: LaneTerms, sleep: Sleep) -> (Client, Server) {
        let session = Rc::new(Self {
            sides: [Side::default(), Side::default()],
            bells: [Doorbells::new(sleep), Doorbells::new(sleep)],
            control: [Mutex::new(VecDeque::new()), Mutex::new(VecDeque::new())],
            cancel: AtomicU64::new(0),
        });
        let memory = [Lane::new(terms.size), Lane::new(terms.size)];
        let port = |me: usize| {
            let own = View::new(&session, me, &memory[me]);
            Lanes::open(&own);
            let peer = View::new(&session, 1 - me, &memory[1 - me]);
            let session = Rc::clone(&session);
            EndPort { session, me, own, peer, offered: None, is_cancellable: false }
        };
        let lanes = || Lanes::with_terms(terms, terms);
        let mut calls = CallDriver::new(port(0), lanes(), SpinPolicy::NEVER);
        let mut serves = ServeDriver::new(port(1), lanes(), u64::MAX, ());
        // A lane grows only where a model says so.
        calls.end_mut().set_growth(Growth::Never);
        serves.end_mut().set_growth(Growth::Never);
        (Client::new(calls), Server::new(serves))
    }

    pub(crate) fn side(&self, which: usize) -> &Side {
        &self.sides[which]
    }
}

impl EndPort {
    /// Lets this end's next wait be cancelled. Returns what cancels it, for another thread.
    pub fn canceller(&mut self) -> impl FnOnce() + use<> {
        self.is_cancellable = true;
        let (session, me) = (Rc::clone(&self.session), self.me);
        move || {
            session.cancel.store(1, Ordering::Relaxed);
            session.bells[me].ring(&session.cancel);
        }
    }
}

impl Port for EndPort {
    type Own = View;
    type Peer = View;

    fn own(&self) -> &View {
        &self.own
    }

    fn peer(&self) -> &View {
        &self.peer
    }

    fn now(&self) -> Instant {
        Instant::default()
    }

    fn ring(&self, bell: Bell) {
        let word = match bell {
            Bell::Data => Word::Tail,
            Bell::Space => Word::Head,
        };
        let mine = &self.session.sides[self.me];
        self.session.bells[1 - self.me].ring(mine.word(word).unwrap());
    }

    fn park(&mut self, park: Park) -> Woken {
        let Self { session, me, .. } = self;
        let theirs = &session.sides[1 - *me];
        let mut words = vec![(theirs.word(Word::Tail).unwrap(), park.tail)];
        words.extend(park.head.map(|head| (theirs.word(Word::Head).unwrap(), head)));
        words.extend(self.is_cancellable.then_some((&session.cancel, 0)));
        session.bells[*me].sleep(&words);
        if self.is_cancellable && session.cancel.load(Ordering::Relaxed) != 0 {
            self.is_cancellable = false;
            return Woken::Cancelled;
        }
        Woken::Rung
    }

    fn offer(&mut self, epoch: Epoch) -> Result<(), Shortage> {
        let lane = Lane::new(epoch.size);
        let mut control = self.session.control[1 - self.me].lock().unwrap();
        control.push_back((epoch, Rc::clone(&lane)));
        self.offered = Some((epoch, lane));
        Ok(())
    }

    fn adopt(&mut self, epoch: Epoch) {
        let (offered, lane) = self.offered.take().expect("it was offered");
        assert_eq!(offered, epoch);
        self.own.switch(lane);
    }

    fn follow(&mut self, epoch: Epoch) -> Result<(), FollowError> {
        let passed = self.session.control[self.me].lock().unwrap().pop_front();
        match passed {
            Some((passed, lane)) if passed == epoch => {
                self.peer.switch(lane);
                Ok(())
            }
            _ => Err(PeerFault::Memory { what: "a lane", why: "another was passed" }.into()),
        }
    }
}
