use std::os::fd::OwnedFd;

use bellwire_core::lane::{Armed, Lanes, Wake};
use bellwire_core::serve::{Incoming, ServeCounts, ServeMachine};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{CloseReason, Message, Snapshot, Status};
use bellwire_core::{Bell, Instant, PeerFault, PeerMemory, Port, Word};

use super::greeting::Arrived;
use super::handler::{Caller, Handler};
use super::workers::{Done, Job, Workers};
use crate::connect::own_uid;
use crate::control;
use crate::publisher::Shelf;
use crate::transport::life::{LIFE_OFFSET, LifeLock};
use crate::transport::link::Link;

/// Requests that one turn takes at most, so that a busy session does not starve the others.
const MOST_PER_TURN: usize = 64;
/// Answers that are published together at most: the first of them does not wait for all.
const MOST_UNPUBLISHED: usize = 8;

/// An open session, seen from the server.
pub(super) struct Conversation {
    link: Link,
    lanes: Lanes,
    serve: ServeMachine,
    caller: Caller,
    /// Turns in a row that found nothing.
    pub(super) idle_turns: u32,
    /// Whether the reactor polls it; if not, it is armed and will ring.
    pub(super) is_hot: bool,
    rings: u64,
    /// Tells a client that is parked on a futex that this thread died. Dropped before the page it stands in.
    _life: Option<LifeLock>,
}

/// Buffers that all sessions of a reactor share.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) request: Vec<u8>,
    pub(super) answer: Vec<u8>,
}

/// Where a turn's work goes.
pub(super) struct Desk<'a> {
    pub(super) handler: &'a Handler,
    pub(super) workers: &'a Workers,
    pub(super) scratch: &'a mut Scratch,
    pub(super) slot: usize,
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The client said bye, or died.
    Gone,
    /// The client broke the protocol.
    Poisoned(PeerFault),
}

impl From<PeerFault> for Ended {
    fn from(fault: PeerFault) -> Self {
        Self::Poisoned(fault)
    }
}

impl Conversation {
    pub(super) fn new(arrived: Arrived, max_in_flight: u64) -> Self {
        let Arrived { link, lanes, caller } = arrived;
        // Without it the client notices this process's death by its descriptors, in slices of time. It holds
        // addresses of this process, which are no business of another user's.
        let is_kin = caller.uid == own_uid() || caller.uid == 0;
        let life =
            is_kin.then(|| LifeLock::hold(&link.own().page, LIFE_OFFSET).ok().flatten()).flatten();
        let serve = ServeMachine::new(max_in_flight);
        Self { link, lanes, serve, caller, idle_turns: 0, is_hot: true, rings: 0, _life: life }
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    pub(super) fn session(&self) -> u64 {
        self.caller.session
    }

    pub(super) fn counts(&self) -> ServeCounts {
        self.serve.counts()
    }

    pub(super) fn rings(&self) -> u64 {
        self.rings
    }

    /// Takes requests that have arrived, answers them or hands them to a worker, and publishes the answers.
    /// True when there was anything to do.
    pub(super) fn turn(&mut self, desk: &mut Desk<'_>) -> Result<bool, Ended> {
        let (mut taken, mut unpublished) = (0, 0);
        let was_blocked = self.serve.is_blocked();
        if was_blocked {
            self.serve.flush(&mut self.lanes, self.link.own(), self.link.peer())?;
        }
        while taken < MOST_PER_TURN {
            let (own, peer) = (self.link.own(), self.link.peer());
            let Some(incoming) =
                self.serve.next(&mut self.lanes, own, peer, &mut desk.scratch.request)?
            else {
                break;
            };
            taken += 1;
            match incoming {
                Incoming::Request { id, len } => self.request(id, len, desk)?,
                Incoming::Cancel { id } => self.cancel(id, desk)?,
            }
            unpublished += 1;
            if unpublished == MOST_UNPUBLISHED {
                unpublished = 0;
                self.commit();
            }
        }
        if unpublished > 0 || was_blocked {
            self.commit();
        }
        if self.serve.closed().is_some() {
            return Err(Ended::Gone);
        }
        Ok(taken > 0 || (was_blocked && !self.serve.is_blocked()))
    }

    /// Puts a worker's answer into the lane.
    pub(super) fn answer(&mut self, done: &Done) -> Result<(), Ended> {
        let (own, peer) = (self.link.own(), self.link.peer());
        self.serve.respond(&mut self.lanes, own, peer, done.id, done.status, &done.answer)?;
        self.commit();
        Ok(())
    }

    /// Takes what is on the control socket: rings, nothing else.
    pub(super) fn read_control(&mut self) -> Result<(), Ended> {
        loop {
            let incoming = match control::Incoming::receive(self.link.socket()) {
                Ok(Some(incoming)) => incoming,
                Ok(None) => return Ok(()),
                Err(_) => return Err(Ended::Gone),
            };
            if incoming.fds() > 0 || !matches!(incoming.parse(), Ok(Message::Ring)) {
                let (len, fds) = (incoming.bytes().len(), incoming.fds());
                let why = "an open session takes only rings from its client";
                return Err(Ended::Poisoned(PeerFault::Control { len, fds, why }));
            }
        }
    }

    /// Whether the client published something that was not seen yet, or made the room that is waited for.
    #[inline]
    pub(super) fn has_moved(&mut self) -> bool {
        self.lanes.moved(self.link.peer())
            || (self.serve.is_blocked() && self.lanes.has_room(self.link.peer()).unwrap_or(true))
    }

    /// Asks the client to ring. True when there is something to do already.
    pub(super) fn arm(&mut self) -> Result<bool, Ended> {
        let blocked = self.serve.is_blocked();
        let (armed, wake) = self.lanes.arm(self.link.own(), self.link.peer(), blocked)?;
        self.ring(wake);
        Ok(armed == Armed::Moved)
    }

    /// The client need not ring any more: this end looks by itself.
    pub(super) fn disarm(&self) {
        self.lanes.disarm(self.link.own());
    }

    /// When the client last rang, as it says.
    pub(super) fn rung_at(&self) -> Instant {
        Instant::from_nanos(self.link.peer().load(Word::RungAt, Ordering::Relaxed))
    }

    /// Whether nothing is owed to the client any more.
    pub(super) fn is_drained(&self) -> bool {
        self.serve.counts().in_flight() == 0 && !self.serve.is_blocked()
    }

    /// Refuses what the client has published and nobody has taken.
    pub(super) fn refuse_rest(&mut self, scratch: &mut Scratch) -> Result<(), Ended> {
        let (own, peer) = (self.link.own(), self.link.peer());
        self.serve.flush(&mut self.lanes, own, peer)?;
        while let Some(incoming) =
            self.serve.next(&mut self.lanes, own, peer, &mut scratch.request)?
        {
            if let Incoming::Request { id, .. } = incoming {
                self.serve.respond(&mut self.lanes, own, peer, id, Status::Stopping, &[])?;
            }
        }
        self.commit();
        Ok(())
    }

    /// Says bye: the client sees it at once, whatever it waits for.
    /// Gives back the counters, and the socket to be closed.
    pub(super) fn close(mut self, reason: CloseReason) -> (ServeCounts, OwnedFd) {
        let wake = self.lanes.close(self.link.own(), self.link.peer(), reason);
        self.ring(wake);
        (self.serve.counts(), self.link.into_socket())
    }

    fn request(&mut self, id: u64, len: usize, desk: &mut Desk<'_>) -> Result<(), Ended> {
        let request = desk.scratch.request.get(..len).unwrap_or(&[]);
        let handler = match desk.handler {
            Handler::Snapshot(shelf) => return self.pass_snapshot(id, &shelf.clone()),
            Handler::Call(handler) => handler,
        };
        if !desk.workers.is_empty() {
            let (slot, caller, request) = (desk.slot, self.caller, request.to_vec());
            desk.workers.submit(Job { slot, id, caller, handler: handler.clone(), request });
            return Ok(());
        }
        desk.scratch.answer.clear();
        let status = handler.call(&self.caller, request, &mut desk.scratch.answer);
        self.respond(id, status, &desk.scratch.answer)
    }

    fn cancel(&mut self, id: u64, desk: &Desk<'_>) -> Result<(), Ended> {
        if desk.workers.withdraw(self.caller.session, id) {
            self.respond(id, Status::Cancelled, &[])?;
        }
        Ok(())
    }

    /// Passes the newest snapshot: its descriptor first, so that it is there when the record is seen.
    fn pass_snapshot(&mut self, id: u64, shelf: &Shelf) -> Result<(), Ended> {
        let Some(newest) = shelf.newest() else { return self.respond(id, Status::NotYet, &[]) };
        let len = newest.sealed.len() as u64;
        let message = Message::Snapshot(Snapshot { id, generation: newest.generation, len });
        // A client that does not read its socket is told to come again, in the lane.
        if control::send(self.link.socket(), &message, &[newest.fd()]).is_err() {
            return self.respond(id, Status::Busy, &[]);
        }
        let (own, peer) = (self.link.own(), self.link.peer());
        Ok(self.serve.respond_attached(&mut self.lanes, own, peer, id)?)
    }

    fn respond(&mut self, id: u64, status: Status, answer: &[u8]) -> Result<(), Ended> {
        let (own, peer) = (self.link.own(), self.link.peer());
        Ok(self.serve.respond(&mut self.lanes, own, peer, id, status, answer)?)
    }

    fn commit(&mut self) {
        let wake = self.lanes.commit(self.link.own(), self.link.peer());
        self.ring(wake);
    }

    fn ring(&mut self, wake: Wake) {
        if wake.data {
            self.rings += 1;
            self.link.ring(Bell::Data);
        }
        if wake.space {
            self.rings += 1;
            self.link.ring(Bell::Space);
        }
    }
}
