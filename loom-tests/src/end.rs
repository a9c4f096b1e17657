use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::rc::Rc;

use bellwire_core::call::{Arrival, CallMachine, Reply, SubmitError, Ticket};
use bellwire_core::end;
use bellwire_core::lane::{Armed, Epoch, Growth, LaneTerms, Lanes, PushError, Record};
use bellwire_core::resize::{FollowError, ResizeError, Shortage};
use bellwire_core::serve::{Flushed, Incoming, RespondError, ServeMachine};
use bellwire_core::sync::{AtomicU64, Ordering};
use bellwire_core::wire::{CloseReason, Header, Kind, PageState, Status};
use bellwire_core::{
    Bell, Geometry, Instant, Limit, Park, PeerFault, PeerMemory, Port, Woken, Word,
};
use loom::sync::Mutex;

use crate::{Doorbells, Lane, Side, Sleep, View};

/// What the two ends share. Loom runs every thread of a model on one, so an `Rc` suffices.
pub struct Session {
    sides: [Side; 2],
    bells: [Doorbells; 2],
    /// What was passed to each end.
    control: [Mutex<VecDeque<Passed>>; 2],
    /// Set by a third thread of either end's process.
    cancel: AtomicU64,
}

/// The memory of an epoch of a lane, on its way.
type Passed = (Epoch, Rc<Lane>);

/// One end, with what a transport gives to it.
pub struct End(end::End<EndPort>);

/// An end's memory, and everything that the two ends share.
struct EndPort {
    session: Rc<Session>,
    me: usize,
    own: View,
    peer: View,
    offered: Option<Passed>,
}

impl Session {
    /// Two ends of a new session, each with a lane of `lane` bytes, that sleep like this.
    pub fn ends(lane: u32, sleep: Sleep) -> (End, End) {
        Self::ends_with([lane, lane], sleep)
    }

    /// Like [`Session::ends`], with the size of each end's own lane.
    pub fn ends_with(lanes: [u32; 2], sleep: Sleep) -> (End, End) {
        Self::ends_on(lanes.map(|size| LaneTerms::fixed(Geometry::tiny(size))), sleep)
    }

    /// Like [`Session::ends`], with lanes of any size from `least` to `most`.
    pub fn resizing(lane: u32, least: u32, most: u32, sleep: Sleep) -> (End, End) {
        let no_limit = Limit::smaller(u64::MAX, u64::MAX);
        let terms = LaneTerms {
            size: Geometry::tiny(lane),
            least: Geometry::tiny(least),
            most: Geometry::tiny(most),
            message: no_limit,
            shared: no_limit,
        };
        Self::ends_on([terms, terms], sleep)
    }

    fn ends_on(terms: [LaneTerms; 2], sleep: Sleep) -> (End, End) {
        let session = Rc::new(Self {
            sides: [Side::default(), Side::default()],
            bells: [Doorbells::new(sleep), Doorbells::new(sleep)],
            control: [Mutex::new(VecDeque::new()), Mutex::new(VecDeque::new())],
            cancel: AtomicU64::new(0),
        });
        let memory = terms.map(|terms| Lane::new(terms.size));
        let end = |me: usize| {
            let own = View::new(&session, me, &memory[me]);
            Lanes::open(&own);
            let peer = View::new(&session, 1 - me, &memory[1 - me]);
            let port = EndPort { session: Rc::clone(&session), me, own, peer, offered: None };
            let lanes = Lanes::with_terms(terms[me], terms[1 - me]);
            let mut end = end::End::new(port, lanes, ());
            // A lane grows only where a model says so.
            end.set_growth(Growth::Never);
            End(end)
        };
        (end(0), end(1))
    }

    pub(crate) fn side(&self, which: usize) -> &Side {
        &self.sides[which]
    }

    /// Cancels what the end `which` waits for, from another thread of its process.
    pub fn cancel(&self, which: usize) {
        self.cancel.store(1, Ordering::Relaxed);
        self.bells[which].ring(&self.cancel);
    }
}

impl End {
    /// What the ends share.
    pub fn session(&self) -> Rc<Session> {
        Rc::clone(&self.0.port().session)
    }

    /// Writes a request numbered `id`, each byte of its payload the low byte of `id`.
    pub fn push(&mut self, id: u64, len: usize) -> Result<(), PushError> {
        let payload = vec![low_byte(id); len];
        let header = Header::new(Kind::Request, Status::Ok, id, u32::try_from(len).unwrap());
        let (lanes, own, peer) = self.0.parts();
        lanes.push(own, peer, header, &payload)
    }

    /// Writes requests of `len` bytes with these numbers, which find room, and publishes them with one commit.
    pub fn publish(&mut self, ids: RangeInclusive<u64>, len: usize) {
        ids.for_each(|id| self.push(id, len).expect("there is room"));
        self.commit();
    }

    /// Publishes requests of `len` bytes, as many as there is room for, and returns how many.
    pub fn fill(&mut self, len: usize) -> u64 {
        let mut sent = 0;
        let error = loop {
            match self.push(sent + 1, len) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, PushError::Full { .. } | PushError::Grow { .. }), "{error}");
        self.commit();
        sent
    }

    /// Writes the record of a message in memory of its own, which no end fetches here.
    pub fn push_attached(&mut self, id: u64) -> Result<(), PushError> {
        let (lanes, own, peer) = self.0.parts();
        lanes.can_attach(peer, 1)?;
        lanes.push_attached(own, peer, Header::new(Kind::Attach, Status::Ok, id, 0), 1)
    }

    /// Lets the own lane go on with room for `to` bytes.
    pub fn grow(&mut self, to: u32) -> Result<(), ResizeError> {
        self.0.grow(Geometry::tiny(to))
    }

    /// Lets the own lane go on in its least size.
    pub fn shrink(&mut self) -> Result<(), ResizeError> {
        self.0.shrink()
    }

    /// The epoch of the own lane.
    pub fn epoch(&self) -> u32 {
        self.0.lanes().epoch().number
    }

    /// Publishes and frees, and rings if the peer armed its doorbell.
    pub fn commit(&mut self) {
        self.0.commit();
        // As a waiting end does: it may not write what the peer still reads.
        self.0.prefetch();
    }

    /// Commits if a peer may wait for the freed room, as a receive-only end does.
    pub fn check_wakes_if_due(&mut self) {
        if self.0.lanes().wake_check_due() {
            self.commit();
        }
    }

    /// Pushes, growing the lane by need and sleeping while it is full, and publishes.
    pub fn send(&mut self, id: u64, len: usize) {
        loop {
            let error = match self.push(id, len) {
                Ok(()) => break,
                Err(PushError::Grow { to }) => match self.0.grow(to) {
                    Ok(()) => continue,
                    Err(ResizeError::Push(error)) => error,
                    Err(error) => panic!("{error}"),
                },
                Err(error) => error,
            };
            assert!(matches!(error, PushError::Full { .. }), "{error}");
            self.sleep(true);
        }
        self.commit();
    }

    /// The next record, its payload checked, left where it is. Switches are followed on the way, and a peer that
    /// waits for that is rung.
    pub fn peek(&mut self) -> Option<Record> {
        loop {
            let (lanes, _, peer) = self.0.parts();
            let record = lanes.peek(peer).expect("an honest peer")?;
            if record.kind == Kind::Switch {
                self.follow(&record);
                continue;
            }
            let mut payload = vec![0xee; record.len as usize];
            lanes.copy(peer, &record, &mut payload);
            if record.kind == Kind::Request {
                assert!(payload.iter().all(|byte| *byte == low_byte(record.id)), "{payload:?}");
            }
            return Some(record);
        }
    }

    fn follow(&mut self, switch: &Record) {
        self.0.follow(switch).expect("an honest peer");
        self.commit();
    }

    /// Takes the next record, if there is one, without giving its room back yet.
    pub fn take(&mut self) -> Option<Record> {
        let record = self.peek()?;
        self.0.parts().0.take(&record);
        Some(record)
    }

    /// Takes what is there at so many polls.
    pub fn poll(&mut self, polls: usize) -> Vec<Record> {
        (0..polls).filter_map(|_| self.take()).collect()
    }

    /// Takes the next record, sleeping until there is one, and frees its room.
    pub fn receive(&mut self) -> Record {
        loop {
            if let Some(record) = self.take() {
                self.commit();
                return record;
            }
            self.sleep(false);
        }
    }

    /// Takes records with these numbers as [`End::receive`] does.
    pub fn receives(&mut self, ids: RangeInclusive<u64>) {
        ids.for_each(|id| assert_eq!(self.receive().id, id));
    }

    /// Closes: ends the lane with a Close record and sets the state in the page.
    pub fn close(&mut self) {
        self.0.close(CloseReason::Normal);
    }

    /// Whether the peer's page has the closed state, loaded as a transport does.
    pub fn is_closed(&self) -> bool {
        let state = PageState::parse(self.0.port().peer.load(Word::State, Ordering::Acquire));
        state.is_some_and(|(state, _)| state == PageState::Closed)
    }

    /// Arms, and sleeps unless something moved meanwhile.
    pub fn sleep(&mut self, space: bool) {
        self.sleep_or_cancel(space, false);
    }

    /// Like [`End::sleep`], waiting for the cancel word too when `cancellable`. True when it was set.
    pub fn sleep_or_cancel(&mut self, space: bool, cancellable: bool) -> bool {
        let armed = self.0.arm(space).expect("an honest peer");
        let EndPort { session, me, .. } = self.0.port();
        let cancel = &session.cancel;
        if let Armed::Sleep { tail, head } = armed {
            let theirs = &session.sides[1 - me];
            let mut words = vec![(theirs.word(Word::Tail).unwrap(), tail)];
            words.extend(head.map(|head| (theirs.word(Word::Head).unwrap(), head)));
            if cancellable {
                words.push((cancel, 0));
            }
            session.bells[*me].sleep(&words);
            self.0.disarm();
        }
        cancellable && cancel.load(Ordering::Relaxed) != 0
    }

    /// Submits a request through a call machine, and publishes it. The lane grows by need.
    pub fn submit(
        &mut self,
        calls: &mut CallMachine,
        payload: &[u8],
    ) -> Result<Ticket, SubmitError> {
        let ticket = loop {
            let (lanes, own, peer) = self.0.parts();
            match calls.submit(lanes, own, peer, payload) {
                Err(SubmitError::Push(PushError::Grow { to })) => {
                    self.0.grow(to).expect("there is memory");
                }
                sent => break sent?,
            }
        };
        self.commit();
        Ok(ticket)
    }

    /// The next answer of a call machine.
    pub fn reply(&mut self, calls: &mut CallMachine, buffer: &mut Vec<u8>) -> Option<Reply> {
        loop {
            let (lanes, own, peer) = self.0.parts();
            let arrival = calls.next_reply(lanes, own, peer, buffer);
            match arrival.expect("an honest peer")? {
                Arrival::Reply(reply) => return Some(reply),
                Arrival::Switch(switch) => self.follow(&switch),
                Arrival::Trimmed | Arrival::Closed(_) => {}
            }
        }
    }

    /// The next answer of a call machine, sleeping until there is one.
    pub fn wait_for_reply(&mut self, calls: &mut CallMachine, buffer: &mut Vec<u8>) -> Reply {
        loop {
            if let Some(reply) = self.reply(calls, buffer) {
                return reply;
            }
            self.sleep(false);
        }
    }

    /// The next request of a serve machine.
    pub fn incoming(&mut self, serve: &mut ServeMachine, buffer: &mut Vec<u8>) -> Option<Incoming> {
        loop {
            let (lanes, own, peer) = self.0.parts();
            let incoming = serve.next(lanes, own, peer, buffer);
            match incoming.expect("an honest peer")? {
                Incoming::Switch(switch) => self.follow(&switch),
                incoming => return Some(incoming),
            }
        }
    }

    /// Answers a request, and publishes the answer if it found room. The lane grows by need.
    pub fn respond(&mut self, serve: &mut ServeMachine, id: u64, payload: &[u8]) {
        loop {
            let (lanes, own, peer) = self.0.parts();
            match serve.respond(lanes, own, peer, id, Status::Ok, payload) {
                Ok(()) => break,
                Err(RespondError::Grow(to)) => {
                    if self.0.grow(to).is_err() {
                        serve.respond_later(id, Status::Ok, payload);
                        break;
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
        self.commit();
    }

    /// Writes the answers still owed, as far as there is room, and publishes them. True when none is left.
    pub fn flush(&mut self, serve: &mut ServeMachine) -> bool {
        let flushed = loop {
            let (lanes, own, peer) = self.0.parts();
            let flushed = serve.flush(lanes, own, peer, |_| Ok(()));
            match flushed.expect("an honest peer") {
                Flushed::Grow(to) if self.0.grow(to).is_ok() => {}
                flushed => break flushed,
            }
        };
        self.commit();
        flushed == Flushed::Done
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

    fn park(&mut self, _: Park) -> Woken {
        panic!("an end sleeps by itself");
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

fn low_byte(id: u64) -> u8 {
    id.to_le_bytes()[0]
}
