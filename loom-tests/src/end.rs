use std::rc::Rc;

use bellwire_core::call::{CallMachine, Reply, SubmitError, Ticket};
use bellwire_core::lane::{Armed, Lanes, PushError, Record, Wake};
use bellwire_core::serve::{Incoming, ServeMachine};
use bellwire_core::sync::{AtomicU64, Ordering};
use bellwire_core::wire::{CloseReason, Header, Kind, SessionState, Status};
use bellwire_core::{Geometry, PeerMemory, Word};

use crate::{Doorbells, Own, Peer, Side, Sleep};

/// What the two ends share. Loom runs every thread of a model on one, so an `Rc` goes round.
pub struct Session {
    sides: [Side; 2],
    bells: [Doorbells; 2],
    /// Set by a third thread of either end's process.
    cancel: AtomicU64,
}

/// One end: its lanes, and everything that the two ends share.
pub struct End {
    session: Rc<Session>,
    me: usize,
    lanes: Lanes,
}

impl Session {
    /// Two ends of a new session, each with a lane of `lane` bytes, that sleep like this.
    pub fn ends(lane: u32, sleep: Sleep) -> (End, End) {
        Self::ends_with([lane, lane], sleep)
    }

    /// Like [`Session::ends`], with the size of each end's own lane.
    pub fn ends_with(lanes: [u32; 2], sleep: Sleep) -> (End, End) {
        let lanes = lanes.map(Geometry::tiny);
        let session = Rc::new(Self {
            sides: lanes.map(Side::new),
            bells: [Doorbells::new(sleep), Doorbells::new(sleep)],
            cancel: AtomicU64::new(0),
        });
        let end = |me: usize| {
            let end = End {
                session: Rc::clone(&session),
                me,
                lanes: Lanes::new(lanes[me], lanes[1 - me]),
            };
            Lanes::open(&Own(&session.sides[me]));
            end
        };
        (end(0), end(1))
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
        Rc::clone(&self.session)
    }

    /// Writes a request numbered `id`, each byte of its payload the low byte of `id`.
    pub fn push(&mut self, id: u64, len: usize) -> Result<(), PushError> {
        let payload = vec![low_byte(id); len];
        let header = Header::new(Kind::Request, Status::Ok, id, u32::try_from(len).unwrap());
        let (own, peer) = memories(&self.session, self.me);
        self.lanes.push(&own, &peer, header, &payload)
    }

    /// Publishes and gives back, and rings if the peer asked for it.
    pub fn commit(&mut self) {
        let (own, peer) = memories(&self.session, self.me);
        let wake = self.lanes.commit(&own, &peer);
        self.ring(wake);
    }

    /// Pushes, sleeping while the lane is full, and publishes.
    pub fn send(&mut self, id: u64, len: usize) {
        while let Err(error) = self.push(id, len) {
            assert!(matches!(error, PushError::Full { .. }), "{error}");
            self.sleep(true);
        }
        self.commit();
    }

    /// The next record, its payload checked, left where it is.
    pub fn peek(&mut self) -> Option<Record> {
        let (_, peer) = memories(&self.session, self.me);
        let record = self.lanes.peek(&peer).expect("an honest peer")?;
        let mut payload = vec![0xee; record.len as usize];
        self.lanes.copy(&peer, &record, &mut payload);
        if record.kind == Kind::Request {
            assert!(payload.iter().all(|byte| *byte == low_byte(record.id)), "{payload:?}");
        }
        Some(record)
    }

    /// Takes the next record, if there is one, without giving its room back yet.
    pub fn take(&mut self) -> Option<Record> {
        let record = self.peek()?;
        self.lanes.take(&record);
        Some(record)
    }

    /// Takes the next record, sleeping until there is one, and gives its room back.
    pub fn receive(&mut self) -> Record {
        loop {
            if let Some(record) = self.take() {
                self.commit();
                return record;
            }
            self.sleep(false);
        }
    }

    /// Says bye: ends the lane and says so in the page.
    pub fn bye(&mut self) {
        let (own, peer) = memories(&self.session, self.me);
        let wake = self.lanes.close(&own, &peer, CloseReason::Normal);
        self.ring(wake);
    }

    /// Whether the peer's page says that it has closed, loaded as a transport does.
    pub fn is_closed(&self) -> bool {
        let (_, peer) = memories(&self.session, self.me);
        let state = SessionState::parse(peer.load(Word::State, Ordering::Acquire));
        state.is_some_and(|(state, _)| state == SessionState::Closed)
    }

    /// Arms, and sleeps unless something moved meanwhile.
    pub fn sleep(&mut self, space: bool) {
        self.sleep_or_cancel(space, false);
    }

    /// Like [`End::sleep`], waiting for the cancel word too when `cancellable`. True when it was set.
    pub fn sleep_or_cancel(&mut self, space: bool, cancellable: bool) -> bool {
        let (own, peer) = memories(&self.session, self.me);
        let (armed, wake) = self.lanes.arm(&own, &peer, space).expect("an honest peer");
        self.ring(wake);
        let cancel = &self.session.cancel;
        if let Armed::Sleep { tail, head } = armed {
            let theirs = &self.session.sides[1 - self.me];
            let mut words = vec![(theirs.word(Word::Tail).unwrap(), tail)];
            words.extend(head.map(|head| (theirs.word(Word::Head).unwrap(), head)));
            if cancellable {
                words.push((cancel, 0));
            }
            self.session.bells[self.me].sleep(&words);
            self.lanes.disarm(&own);
        }
        cancellable && cancel.load(Ordering::Relaxed) != 0
    }

    /// Submits a request through a call machine, and publishes it.
    pub fn submit(
        &mut self,
        calls: &mut CallMachine,
        payload: &[u8],
    ) -> Result<Ticket, SubmitError> {
        let (own, peer) = memories(&self.session, self.me);
        let ticket = calls.submit(&mut self.lanes, &own, &peer, payload)?;
        self.commit();
        Ok(ticket)
    }

    /// The next answer of a call machine.
    pub fn reply(&mut self, calls: &mut CallMachine, buffer: &mut Vec<u8>) -> Option<Reply> {
        let (own, peer) = memories(&self.session, self.me);
        calls.next_reply(&mut self.lanes, &own, &peer, buffer).expect("an honest peer")
    }

    /// The next request of a serve machine.
    pub fn incoming(&mut self, serve: &mut ServeMachine, buffer: &mut Vec<u8>) -> Option<Incoming> {
        let (own, peer) = memories(&self.session, self.me);
        serve.next(&mut self.lanes, &own, &peer, buffer).expect("an honest peer")
    }

    /// Answers a request, and publishes the answer if it found room.
    pub fn respond(&mut self, serve: &mut ServeMachine, id: u64, payload: &[u8]) {
        let (own, peer) = memories(&self.session, self.me);
        serve
            .respond(&mut self.lanes, &own, &peer, id, Status::Ok, payload)
            .expect("an honest peer");
        self.commit();
    }

    /// Writes the answers still owed, as far as there is room, and publishes them. True when none is left.
    pub fn flush(&mut self, serve: &mut ServeMachine) -> bool {
        let (own, peer) = memories(&self.session, self.me);
        let flushed = serve.flush(&mut self.lanes, &own, &peer).expect("an honest peer");
        self.commit();
        flushed
    }

    fn ring(&self, wake: Wake) {
        let (mine, bell) = (&self.session.sides[self.me], &self.session.bells[1 - self.me]);
        if wake.data {
            bell.ring(mine.word(Word::Tail).unwrap());
        }
        if wake.space {
            bell.ring(mine.word(Word::Head).unwrap());
        }
    }
}

fn memories(session: &Session, me: usize) -> (Own<'_>, Peer<'_>) {
    (Own(&session.sides[me]), Peer(&session.sides[1 - me]))
}

fn low_byte(id: u64) -> u8 {
    id.to_le_bytes()[0]
}
