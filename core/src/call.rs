//! The calling end of a session: requests in flight, and what came back.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::lane::{Lanes, PushError, Record};
use crate::wire::{CloseReason, Header, Kind, Status};
use crate::{Executed, OwnMemory, PeerFault, PeerMemory};

/// Requests that may wait for an answer at once, counted from the oldest unanswered one.
pub const MAX_WINDOW: usize = 1 << 16;

/// Names one request of a session. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// An answer that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request that it answers.
    pub ticket: Ticket,
    /// How the request ended.
    pub status: Status,
    /// The payload's length in bytes, in the buffer given.
    pub len: usize,
    /// The payload is a memfd on the control socket.
    pub attached: bool,
}

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// It did not go into the lane.
    #[error(transparent)]
    Push(#[from] PushError),
    /// Too many requests wait for an answer.
    #[error("{} requests already wait for an answer: take replies first", MAX_WINDOW)]
    Window,
    /// The peer has said bye.
    #[error("the peer has closed the session")]
    Closed,
}

#[derive(Clone, Copy, Debug)]
enum Slot {
    /// Waits for its answer; the request ends at this position.
    Waiting(u64),
    /// Nobody wants its answer any more; it still may come, once.
    Abandoned,
    /// Answered.
    Done,
}

/// The calling end of a session, without I/O: which requests are in flight, and what came back.
#[derive(Debug, Default)]
pub struct CallMachine {
    /// The id of the first slot.
    first: u64,
    slots: VecDeque<Slot>,
    in_flight: usize,
    closed: Option<CloseReason>,
}

impl CallMachine {
    /// A new session's machine.
    pub fn new() -> Self {
        Self { first: 1, ..Self::default() }
    }

    /// Writes a request into the lane. [`Lanes::commit`] publishes it.
    ///
    /// # Errors
    /// [`SubmitError`]: the handler will not run, nothing was written.
    pub fn submit<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        payload: &[u8],
    ) -> Result<Ticket, SubmitError> {
        if self.closed.is_some() {
            return Err(SubmitError::Closed);
        }
        if self.is_at_limit() {
            return Err(SubmitError::Window);
        }
        let id = self.first + self.slots.len() as u64;
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        lanes.push(own, peer, Header::new(Kind::Request, Status::Ok, id, len), payload)?;
        self.slots.push_back(Slot::Waiting(lanes.position()));
        self.in_flight += 1;
        Ok(Ticket(id))
    }

    /// The next answer, its payload copied into `buffer`, which grows as needed and never shrinks.
    ///
    /// # Errors
    /// [`PeerFault`]: the session is poisoned.
    pub fn next_reply<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Reply>, PeerFault> {
        while self.closed.is_none() {
            let Some(record) = lanes.peek(peer)? else { return Ok(None) };
            let attached = match record.kind {
                Kind::Response => false,
                Kind::Attach => true,
                Kind::Bye => {
                    self.closed = Some(close_reason(&record)?);
                    lanes.take(&record);
                    break;
                }
                _ => return Err(unexpected(&record)),
            };
            let status = Status::parse(record.status).ok_or_else(|| unexpected(&record))?;
            let wanted = self.settle(record.id)?;
            let len = record.len as usize;
            if wanted {
                if buffer.len() < len {
                    buffer.resize(len, 0);
                }
                if let Some(into) = buffer.get_mut(..len) {
                    lanes.copy(peer, &record, into);
                }
            }
            lanes.take_before_acting(own, &record);
            // Someone has to take an unwanted answer's memfd off the socket too.
            if wanted || attached {
                return Ok(Some(Reply { ticket: Ticket(record.id), status, len, attached }));
            }
        }
        Ok(None)
    }

    /// Forgets a request: its answer, should it come, is dropped. Tells the peer if the lane has room, which
    /// then need not run the handler any more. False when the ticket was not in flight.
    pub fn abandon<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        ticket: Ticket,
    ) -> bool {
        let Some(slot) = self.slot(ticket.0) else { return false };
        if !matches!(slot, Slot::Waiting(_)) {
            return false;
        }
        *slot = Slot::Abandoned;
        self.in_flight -= 1;
        // When there is no room, the peer answers in vain: no harm.
        let _ = lanes.push(own, peer, Header::new(Kind::Cancel, Status::Ok, ticket.0, 0), &[]);
        true
    }

    /// Gives a request up on a session that is over: nothing is sent, nothing will come.
    pub fn give_up(&mut self, ticket: Ticket) {
        if let Some(slot @ Slot::Waiting(_)) = self.slot(ticket.0) {
            *slot = Slot::Abandoned;
            self.in_flight -= 1;
        }
    }

    /// Whether the handler may have run, now that no answer will come any more: the peer is gone, and what
    /// it had not taken from the lane it never will.
    pub fn executed<P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        peer: &P,
        ticket: Ticket,
    ) -> Executed {
        match (self.slot(ticket.0).copied(), lanes.taken(peer)) {
            (Some(Slot::Waiting(end)), Ok(head)) if head < end => Executed::No,
            _ => Executed::Maybe,
        }
    }

    /// Whether this request waits for its answer.
    pub fn is_waiting(&self, ticket: Ticket) -> bool {
        let at = ticket.0.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        matches!(at.and_then(|at| self.slots.get(at)), Some(Slot::Waiting(_)))
    }

    /// Whether as many requests are in flight as may be, counted from the oldest unanswered one.
    pub fn is_at_limit(&self) -> bool {
        self.slots.len() >= MAX_WINDOW
    }

    /// How many requests wait for their answer.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Why the peer closed, when it said bye.
    pub fn closed(&self) -> Option<CloseReason> {
        self.closed
    }

    fn slot(&mut self, id: u64) -> Option<&mut Slot> {
        let at = usize::try_from(id.checked_sub(self.first)?).ok()?;
        self.slots.get_mut(at)
    }

    /// Books an answer; true when somebody waits for it.
    fn settle(&mut self, id: u64) -> Result<bool, PeerFault> {
        let slot = self.slot(id).ok_or(PeerFault::UnknownId { id })?;
        let wanted = match slot {
            Slot::Waiting(_) => true,
            Slot::Abandoned => false,
            Slot::Done => return Err(PeerFault::UnknownId { id }),
        };
        *slot = Slot::Done;
        self.in_flight -= usize::from(wanted);
        while let Some(Slot::Done) = self.slots.front() {
            self.slots.pop_front();
            self.first += 1;
        }
        Ok(wanted)
    }
}

impl Ticket {
    /// The request's number on the wire.
    pub fn id(self) -> u64 {
        self.0
    }
}

pub(crate) fn close_reason(record: &Record) -> Result<CloseReason, PeerFault> {
    let reason = CloseReason::parse(record.status.into());
    reason.filter(|_| record.len == 0).ok_or_else(|| unexpected(record))
}

pub(crate) fn unexpected(record: &Record) -> PeerFault {
    PeerFault::Unexpected { at: record.at(), kind: record.kind as u8 }
}
