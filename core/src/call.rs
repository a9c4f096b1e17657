//! The calling end of a session: requests in flight, and what came back.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::lane::{Lanes, PushError, Record};
use crate::resize::Shortage;
use crate::wire::{CloseReason, Header, Kind, Status};
use crate::{Executed, OwnMemory, PeerFault, PeerMemory};

/// Requests that may wait for an answer at once, counted from the oldest unanswered one.
pub const MAX_WINDOW: usize = 1 << 16;

/// Parts of answers, and answers that nobody waits for, that are taken at a time: a peer that sends nothing else extends
/// no deadline.
const MOST_UNTOLD: usize = 64;

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
    /// Somebody waits for it. An attached answer is told even if nobody does: its memfd has to be taken.
    pub is_wanted: bool,
}

impl Reply {
    /// One that is Ok, waited for, and came through the lane.
    #[inline]
    #[must_use]
    pub fn plain(ticket: Ticket, len: usize) -> Self {
        Self { ticket, status: Status::Ok, len, attached: false, is_wanted: true }
    }
}

/// What the peer's lane brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// An answer.
    Reply(Reply),
    /// The lane goes on in another epoch: [`follow`](crate::resize::follow) it, then look again.
    Switch(Record),
    /// The peer has given back what memory it could, as it was asked to.
    Trimmed,
}

/// What a request carries.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    bytes: &'a [u8],
    batch: bool,
}

impl<'a> Outgoing<'a> {
    /// A [batch](crate::batch), as its builder finished it.
    pub fn batch(bytes: &'a [u8]) -> Self {
        Self { bytes, batch: true }
    }

    /// How many bytes it has.
    #[allow(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    fn header(self, id: u64, len: u32) -> Header {
        let header = Header::new(Kind::Request, Status::Ok, id, len);
        if self.batch { header.batch() } else { header }
    }
}

impl<'a> From<&'a [u8]> for Outgoing<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes, batch: false }
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Outgoing<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self { bytes, batch: false }
    }
}

impl<'a> From<&'a Vec<u8>> for Outgoing<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self { bytes, batch: false }
    }
}

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// It did not go into the lane.
    #[error(transparent)]
    Push(#[from] PushError),
    /// Too many requests wait for an answer.
    #[error("as many requests as may already wait for an answer: take replies first")]
    Window,
    /// The peer has said bye.
    #[error("the peer has closed the session")]
    Closed,
    /// This system lacks what the request needs.
    #[error(transparent)]
    Short(#[from] Shortage),
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
#[derive(Debug)]
pub struct CallMachine {
    /// The id of the first slot.
    first: u64,
    slots: VecDeque<Slot>,
    /// The most slots.
    window: usize,
    in_flight: usize,
    /// Answers that nobody waited for any more, since they were asked for last.
    dropped: u64,
    closed: Option<CloseReason>,
    /// The request that is being sent in parts, and how much of it was written.
    sending: Option<(u64, usize)>,
    /// Parts of this request were written that nobody will send the rest of.
    broken_off: Option<u64>,
    /// The answer that is arriving in parts, and how much of it is in the buffer.
    arriving: Option<(u64, usize)>,
}

impl Default for CallMachine {
    fn default() -> Self {
        Self::new()
    }
}

impl CallMachine {
    /// A new session's machine.
    pub fn new() -> Self {
        Self {
            first: 1,
            slots: VecDeque::new(),
            window: MAX_WINDOW,
            in_flight: 0,
            dropped: 0,
            closed: None,
            sending: None,
            broken_off: None,
            arriving: None,
        }
    }

    /// Sets how many requests may be in flight, counted from the oldest unanswered one: 1 to [`MAX_WINDOW`], which is
    /// the default. What is in flight already stays so.
    pub fn set_window(&mut self, requests: usize) {
        self.window = requests.clamp(1, MAX_WINDOW);
    }

    /// Writes a request into the lane. [`Lanes::commit`] publishes it.
    ///
    /// # Errors
    /// [`SubmitError`]: the handler will not run, nothing was written.
    #[inline]
    pub fn submit<'a, O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        payload: impl Into<Outgoing<'a>>,
    ) -> Result<Ticket, SubmitError> {
        let payload = payload.into();
        let id = self.next_id(lanes, own, peer)?;
        let len = u32::try_from(payload.bytes.len()).unwrap_or(u32::MAX);
        lanes.push(own, peer, payload.header(id, len), payload.bytes)?;
        Ok(self.sent(lanes, id))
    }

    /// Writes a request into the lane if it takes no more than that; `None` when it does, and nothing was written:
    /// [`CallMachine::submit`] then.
    #[inline]
    pub fn submit_at_once<O: OwnMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        payload: &[u8],
    ) -> Option<Ticket> {
        if self.closed.is_some() || self.broken_off.is_some() || self.is_at_limit() {
            return None;
        }
        debug_assert!(self.sending.is_none(), "a request is being sent in parts");
        let id = self.first + self.slots.len() as u64;
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let header = Header::new(Kind::Request, Status::Ok, id, len);
        lanes.push_at_once(own, header, payload).then(|| self.sent(lanes, id))
    }

    /// Sends a request of `bytes` in a memfd of its own, which `pass` passes when there is room for its record.
    ///
    /// # Errors
    /// [`SubmitError`]: the handler will not run, nothing was written.
    pub fn submit_attached<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        bytes: u64,
        pass: impl FnOnce(u64) -> Result<(), Shortage>,
    ) -> Result<Ticket, SubmitError> {
        let id = self.next_id(lanes, own, peer)?;
        lanes.can_attach(peer, bytes)?;
        pass(id)?;
        lanes.push_attached(own, peer, Header::new(Kind::Attach, Status::Ok, id, 0), bytes)?;
        Ok(self.sent(lanes, id))
    }

    /// Asks the peer to give back what memory it can: [`Arrival::Trimmed`] says that it has.
    ///
    /// # Errors
    /// [`SubmitError`]: it was not asked.
    pub fn ask_to_trim<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
    ) -> Result<(), SubmitError> {
        if self.closed.is_some() {
            return Err(SubmitError::Closed);
        }
        self.tell_broken_off(lanes, own, peer)?;
        Ok(lanes.push(own, peer, Header::new(Kind::Trim, Status::Ok, 0, 0), &[])?)
    }

    /// Writes the next part of a request that is sent in parts: publish it, then call again with the same payload until
    /// there is a ticket. Nothing else can be submitted meanwhile.
    ///
    /// # Errors
    /// [`SubmitError`]: no part was written now. Call again, or [`CallMachine::break_off`].
    pub fn submit_part<'a, O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        payload: impl Into<Outgoing<'a>>,
    ) -> Result<Option<Ticket>, SubmitError> {
        let payload = payload.into();
        let (id, sent) = match self.sending {
            _ if self.closed.is_some() => return Err(SubmitError::Closed),
            Some(sending) => sending,
            None => (self.next_id(lanes, own, peer)?, 0),
        };
        let sent = lanes.push_part(own, peer, payload.header(id, 0), payload.bytes, sent)?;
        if sent < payload.bytes.len() {
            self.sending = Some((id, sent));
            return Ok(None);
        }
        self.sending = None;
        Ok(Some(self.sent(lanes, id)))
    }

    /// Gives up the request that is being sent in parts: the handler will not run. The peer is told before anything else
    /// is sent.
    pub fn break_off(&mut self) {
        if let Some((id, _)) = self.sending.take() {
            self.broken_off = Some(id);
        }
    }

    /// Whether a request is being sent in parts.
    pub fn is_sending(&self) -> bool {
        self.sending.is_some()
    }

    /// Whether an answer is arriving in parts: its buffer must stay as it is.
    pub fn is_arriving(&self) -> bool {
        self.arriving.is_some()
    }

    /// The id of the next request. Tells the peer first of a request that was broken off, whose id is used up.
    #[inline]
    fn next_id<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
    ) -> Result<u64, SubmitError> {
        if self.closed.is_some() {
            return Err(SubmitError::Closed);
        }
        if self.is_at_limit() {
            return Err(SubmitError::Window);
        }
        self.tell_broken_off(lanes, own, peer)?;
        Ok(self.first + self.slots.len() as u64)
    }

    /// Nothing but a cancellation may follow the parts of a request that has no end.
    fn tell_broken_off<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
    ) -> Result<(), PushError> {
        debug_assert!(self.sending.is_none(), "a request is being sent in parts");
        if let Some(id) = self.broken_off {
            lanes.push(own, peer, Header::new(Kind::Cancel, Status::Ok, id, 0), &[])?;
            self.broken_off = None;
            self.slots.push_back(Slot::Done);
            self.pop_done();
        }
        Ok(())
    }

    #[inline]
    fn sent(&mut self, lanes: &Lanes, id: u64) -> Ticket {
        self.slots.push_back(Slot::Waiting(lanes.position()));
        self.in_flight += 1;
        Ticket(id)
    }

    /// What the peer's lane brings next; an answer's payload is copied into `buffer`, which grows as needed and
    /// never shrinks. `None` also after many records of which there is nothing to tell: there is more if
    /// [`Lanes::has_untaken`] says so.
    ///
    /// # Errors
    /// [`PeerFault`]: the session is poisoned.
    pub fn next_reply<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Arrival>, PeerFault> {
        if let Some((ticket, len)) = self.reply_at_once(lanes, own, peer, buffer) {
            return Ok(Some(Arrival::Reply(Reply::plain(ticket, len))));
        }
        for _ in 0..MOST_UNTOLD {
            if self.closed.is_some() {
                break;
            }
            let Some(record) = lanes.peek(peer)? else { break };
            let attached = match record.kind {
                Kind::Response => false,
                Kind::Trim if self.arriving.is_some() => return Err(unexpected(&record)),
                Kind::Attach => true,
                Kind::Switch => return Ok(Some(Arrival::Switch(record))),
                Kind::Trim => {
                    // Said at once: a caller that goes idle now says nothing for long.
                    lanes.take_before_acting(own, &record);
                    return Ok(Some(Arrival::Trimmed));
                }
                Kind::Bye => {
                    self.closed = Some(close_reason(&record)?);
                    lanes.take(&record);
                    break;
                }
                _ => return Err(unexpected(&record)),
            };
            let status = Status::parse(record.status).ok_or_else(|| unexpected(&record))?;
            let start = match self.arriving {
                None => 0,
                Some((id, len)) if id == record.id && !attached => len,
                Some(_) => return Err(unexpected(&record)),
            };
            let wanted = self.is_awaited(record.id)?;
            let len = append(lanes, peer, &record, buffer, start, wanted)?;
            lanes.take_before_acting(own, &record);
            self.arriving = record.more.then_some((record.id, len));
            if record.more {
                continue;
            }
            self.settle(record.id, wanted);
            // Someone has to take an unwanted answer's memfd off the socket too.
            if wanted || attached {
                let ticket = Ticket(record.id);
                let reply = Reply { ticket, status, len, attached, is_wanted: wanted };
                return Ok(Some(Arrival::Reply(reply)));
            }
        }
        Ok(None)
    }

    /// The next answer, if it is there, whole and Ok, somebody waits for it, and `buffer` has its length already: the first
    /// bytes of `buffer`, as many as the number says. `None` for whatever else is there or not: [`CallMachine::next_reply`]
    /// then.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "the general way asks it too, and would share a copy with the short one"
    )]
    pub fn reply_at_once<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        buffer: &mut [u8],
    ) -> Option<(Ticket, usize)> {
        if self.closed.is_some() || self.arriving.is_some() {
            return None;
        }
        let taken = lanes.take_at_once(own, peer, Kind::Response, |id, len| {
            let into = buffer.get_mut(..len)?;
            let slot = self.slot(id)?;
            if !matches!(slot, Slot::Waiting(_)) {
                return None;
            }
            *slot = Slot::Done;
            self.in_flight -= 1;
            self.pop_done();
            Some(into)
        });
        taken.map(|(id, len)| (Ticket(id), len))
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
        self.slots.len() >= self.window
    }

    /// How many requests wait for their answer.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// How many answers came to requests that were given up, since this was asked last.
    #[inline]
    pub fn take_dropped(&mut self) -> u64 {
        core::mem::take(&mut self.dropped)
    }

    /// Why the peer closed, when it said bye.
    pub fn closed(&self) -> Option<CloseReason> {
        self.closed
    }

    #[inline]
    fn slot(&mut self, id: u64) -> Option<&mut Slot> {
        let at = usize::try_from(id.checked_sub(self.first)?).ok()?;
        self.slots.get_mut(at)
    }

    /// Books an answer that is known to be to a request which has none yet.
    #[inline]
    fn settle(&mut self, id: u64, wanted: bool) {
        if let Some(slot) = self.slot(id) {
            *slot = Slot::Done;
        }
        self.in_flight -= usize::from(wanted);
        self.dropped += u64::from(!wanted);
        self.pop_done();
    }

    #[inline]
    fn pop_done(&mut self) {
        while let Some(Slot::Done) = self.slots.front() {
            self.slots.pop_front();
            self.first += 1;
        }
    }

    /// Whether somebody waits for an answer to this request, which has none yet.
    fn is_awaited(&mut self, id: u64) -> Result<bool, PeerFault> {
        match self.slot(id) {
            Some(Slot::Waiting(_)) => Ok(true),
            Some(Slot::Abandoned) => Ok(false),
            Some(Slot::Done) | None => Err(PeerFault::UnknownId { id }),
        }
    }
}

impl Ticket {
    /// The request's number on the wire.
    pub fn id(self) -> u64 {
        self.0
    }
}

/// Copies a record's payload into `buffer` behind the first `start` bytes, if it is wanted at all. Returns where it
/// ends.
#[inline]
pub(crate) fn append<P: PeerMemory>(
    lanes: &Lanes,
    peer: &P,
    record: &Record,
    buffer: &mut Vec<u8>,
    start: usize,
    wanted: bool,
) -> Result<usize, PeerFault> {
    let end = start + record.len as usize;
    let limit = lanes.max_received();
    if end as u64 > limit {
        return Err(PeerFault::MessageTooLong { at: record.at(), len: end as u64, limit });
    }
    if wanted {
        if buffer.len() < end {
            buffer.resize(end, 0);
        }
        if let Some(into) = buffer.get_mut(start..end) {
            lanes.copy(peer, record, into);
        }
    }
    Ok(end)
}

pub(crate) fn close_reason(record: &Record) -> Result<CloseReason, PeerFault> {
    let reason = CloseReason::parse(record.status.into());
    reason.ok_or_else(|| unexpected(record))
}

pub(crate) fn unexpected(record: &Record) -> PeerFault {
    PeerFault::Unexpected { at: record.at(), kind: record.kind as u8 }
}
