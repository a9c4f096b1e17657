//! The calling end of a session: requests in flight and the answers to them.

mod outgoing;
mod posts;
mod slots;

pub use outgoing::Outgoing;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use slots::{Slot, Slots};

use crate::lane::{Lanes, PushError, Record};
use crate::resize::Shortage;
use crate::wire::{CloseReason, Header, Kind, ONE_WAY, Status};
use crate::{Executed, OwnMemory, PeerFault, PeerMemory};

/// The most requests that may be in flight, counted from the oldest unanswered one.
pub const MAX_WINDOW: usize = 1 << 16;

/// How many parts of answers and unexpected answers one call takes, so that a peer that sends nothing else extends no
/// deadline.
const MAX_WITHOUT_RESULT: usize = 64;

/// Identifies one request of a session. Never reused.
///
/// ```
/// use bellwire_core::call::Ticket;
///
/// let newest = |waiting: &[Ticket]| waiting.iter().max().copied();
/// assert_eq!(newest(&[]), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// An answer that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request that it answers.
    pub ticket: Ticket,
    /// How the request ended.
    pub status: Status,
    /// The payload's length in bytes, in the caller's buffer.
    pub len: usize,
    /// Whether the payload is a memfd on the control socket.
    pub attached: bool,
    /// Whether a caller waits for it. Unexpected attached answers are returned too, because their memfds have to be
    /// taken.
    pub is_wanted: bool,
}

impl Reply {
    /// Creates an answer that is Ok, expected, and came through the lane.
    #[inline]
    #[must_use]
    pub fn plain(ticket: Ticket, len: usize) -> Self {
        Self { ticket, status: Status::Ok, len, attached: false, is_wanted: true }
    }
}

/// A record that arrived in the peer's lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// An answer.
    Reply(Reply),
    /// The lane goes on in another epoch: [`follow`](crate::resize::follow) it, then call again.
    Switch(Record),
    /// The peer has freed what memory it could, as requested.
    Trimmed,
    /// The peer has closed the session: there is nothing more to take.
    Closed(CloseReason),
}

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The lane did not accept it.
    #[error(transparent)]
    Push(#[from] PushError),
    /// Too many requests are in flight.
    #[error("the maximum number of requests is in flight: read replies first")]
    Window,
    /// This system lacks a resource for the request.
    #[error(transparent)]
    Short(#[from] Shortage),
}

/// The calling end of a session, without I/O: the requests in flight and the answers to them.
#[derive(Debug)]
pub struct CallMachine {
    slots: Slots,
    /// The maximum number of slots.
    window: usize,
    in_flight: usize,
    /// Answers to abandoned requests since the last query.
    dropped: u64,
    /// Where the one-way requests end that the peer is not known to have taken.
    unconsumed: VecDeque<u64>,
    /// The request that is being sent in parts, and the bytes written so far.
    sending: Option<(u64, usize)>,
    /// A request of which only some parts were written; the rest will not be sent.
    parts_aborted: Option<u64>,
    /// The answer that is arriving in parts, and the bytes in the buffer so far.
    arriving: Option<(u64, usize)>,
}

/// The machine of a new session.
impl Default for CallMachine {
    fn default() -> Self {
        Self {
            slots: Slots::new(),
            window: MAX_WINDOW,
            in_flight: 0,
            dropped: 0,
            unconsumed: VecDeque::new(),
            sending: None,
            parts_aborted: None,
            arriving: None,
        }
    }
}

impl CallMachine {
    /// Sets how many requests may be in flight, counted from the oldest unanswered one: 1 to [`MAX_WINDOW`], the
    /// default. Does not affect requests already in flight.
    pub fn set_window(&mut self, requests: usize) {
        self.window = requests.clamp(1, MAX_WINDOW);
    }

    /// Writes a request into the lane. [`Lanes::commit`] publishes it.
    ///
    /// # Errors
    /// [`SubmitError`]: nothing was written; the handler will not run.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "as of `Lanes::reserve`")]
    pub fn submit<'a, O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        payload: impl Into<Outgoing<'a>>,
    ) -> Result<Ticket, SubmitError> {
        let payload = payload.into();
        let (bytes, one_way) = (payload.bytes(), payload.is_one_way());
        if self.parts_aborted.is_none() && (one_way || !self.is_at_limit()) {
            debug_assert!(self.sending.is_none(), "a request is being sent in parts");
            if let Some(reserved) = lanes.reserve(bytes.len()) {
                let id = if one_way { ONE_WAY } else { self.slots.next() };
                let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                reserved.write(own, payload.header(id, len), bytes);
                return Ok(self.sent(lanes, id, one_way));
            }
        }
        self.submit_slow(lanes, own, peer, payload)
    }

    /// Continues [`CallMachine::submit`] where a request takes more than a free record.
    #[cold]
    fn submit_slow<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        payload: Outgoing<'_>,
    ) -> Result<Ticket, SubmitError> {
        let id = self.next_id(lanes, own, peer, payload.is_one_way())?;
        let len = u32::try_from(payload.bytes().len()).unwrap_or(u32::MAX);
        lanes.push(own, peer, payload.header(id, len), payload.bytes())?;
        Ok(self.sent(lanes, id, payload.is_one_way()))
    }

    /// Sends a request of `bytes` in a memfd of its own. `pass` passes the memfd once there is room for its record.
    ///
    /// # Errors
    /// [`SubmitError`]: nothing was written; the handler will not run.
    pub fn submit_attached<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        bytes: u64,
        one_way: bool,
        pass: impl FnOnce(u64) -> Result<(), Shortage>,
    ) -> Result<Ticket, SubmitError> {
        let id = self.next_id(lanes, own, peer, one_way)?;
        lanes.can_attach(peer, bytes)?;
        pass(id)?;
        lanes.push_attached(own, peer, Header::new(Kind::Attach, Status::Ok, id, 0), bytes)?;
        Ok(self.sent(lanes, id, one_way))
    }

    /// Asks the peer to free what memory it can: [`Incoming::Trimmed`] reports that it has.
    ///
    /// # Errors
    /// [`SubmitError`]: the peer was not asked.
    pub fn ask_to_trim<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
    ) -> Result<(), SubmitError> {
        self.trace_broken_off(lanes, own, peer)?;
        Ok(lanes.push(own, peer, Header::new(Kind::Trim, Status::Ok, 0, 0), &[])?)
    }

    /// Writes the next part of a request that is sent in parts. Publish it, then call again with the same payload
    /// until a ticket is returned. Nothing else can be submitted meanwhile.
    ///
    /// # Errors
    /// [`SubmitError`]: this call wrote no part. Call again, or [`CallMachine::abort_parts`].
    pub fn submit_part<'a, O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        payload: impl Into<Outgoing<'a>>,
    ) -> Result<Option<Ticket>, SubmitError> {
        let payload = payload.into();
        let (id, sent) = match self.sending {
            Some(sending) => sending,
            None => (self.next_id(lanes, own, peer, payload.is_one_way())?, 0),
        };
        let sent = lanes.push_part(own, peer, payload.header(id, 0), payload.bytes(), sent)?;
        if sent < payload.bytes().len() {
            self.sending = Some((id, sent));
            return Ok(None);
        }
        self.sending = None;
        Ok(Some(self.sent(lanes, id, payload.is_one_way())))
    }

    /// Gives up the request that is being sent in parts: the handler will not run. The next send first notifies the
    /// peer.
    pub fn abort_parts(&mut self) {
        if let Some((id, _)) = self.sending.take() {
            self.parts_aborted = Some(id);
        }
    }

    /// Returns whether a request is being sent in parts.
    pub fn is_sending(&self) -> bool {
        self.sending.is_some()
    }

    /// Returns whether an answer is arriving in parts: the caller must pass the same buffer unchanged.
    pub fn is_arriving(&self) -> bool {
        self.arriving.is_some()
    }

    /// Returns the id of the next request. First notifies the peer of a broken-off request, whose id is used up.
    fn next_id<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        one_way: bool,
    ) -> Result<u64, SubmitError> {
        if self.is_at_limit() && !one_way {
            return Err(SubmitError::Window);
        }
        self.trace_broken_off(lanes, own, peer)?;
        Ok(if one_way { ONE_WAY } else { self.slots.next() })
    }

    /// Cancels a broken-off request: only a cancellation may follow parts without an end.
    fn trace_broken_off<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
    ) -> Result<(), PushError> {
        debug_assert!(self.sending.is_none(), "a request is being sent in parts");
        if let Some(id) = self.parts_aborted {
            lanes.push(own, peer, Header::new(Kind::Cancel, Status::Ok, id, 0), &[])?;
            self.parts_aborted = None;
            if id != ONE_WAY {
                self.slots.push(Slot::Done);
                self.slots.pop_done();
            }
        }
        Ok(())
    }

    #[inline]
    fn sent(&mut self, lanes: &Lanes, id: u64, one_way: bool) -> Ticket {
        if one_way {
            self.posted(lanes);
        } else {
            self.slots.push(Slot::Waiting(lanes.position()));
            self.in_flight += 1;
        }
        Ticket(id)
    }

    /// Returns the next record of the peer's lane; copies an answer's payload to `buffer`, which grows as needed and
    /// never shrinks. Also returns `None` after a bounded number of records without a result: [`Lanes::has_unread`]
    /// returns whether there are more.
    ///
    /// # Errors
    /// [`PeerFault`]: the session is poisoned.
    pub fn next_reply<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Incoming>, PeerFault> {
        if let Some((ticket, len)) = self.try_reply_fast(lanes, own, peer, buffer) {
            return Ok(Some(Incoming::Reply(Reply::plain(ticket, len))));
        }
        for _ in 0..MAX_WITHOUT_RESULT {
            let Some(record) = lanes.peek(peer)? else { break };
            let attached = match record.kind {
                Kind::Response => false,
                Kind::Trim if self.arriving.is_some() => return Err(unexpected(&record)),
                Kind::Attach => true,
                Kind::Switch => return Ok(Some(Incoming::Switch(record))),
                Kind::Trim => {
                    // Publish `head` now: a caller that goes idle sends nothing for long.
                    lanes.take_before_acting(own, &record);
                    return Ok(Some(Incoming::Trimmed));
                }
                Kind::Close => {
                    let reason = close_reason(&record)?;
                    lanes.take(&record);
                    return Ok(Some(Incoming::Closed(reason)));
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
            self.complete(record.id, wanted);
            // An unexpected answer's memfd has to be taken off the socket too.
            if wanted || attached {
                let ticket = Ticket(record.id);
                let reply = Reply { ticket, status, len, attached, is_wanted: wanted };
                return Ok(Some(Incoming::Reply(reply)));
            }
        }
        Ok(None)
    }

    /// Takes the next answer into the first bytes of `buffer` and returns its ticket and length, if it is complete,
    /// Ok, expected, and fits. Returns `None` otherwise; call [`CallMachine::next_reply`] then.
    ///
    /// It is no branch of that, since a result of several words goes through memory: 33 instructions more an answer
    /// (`docs/adr/0026-fast-path.md`).
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "also called by the slow path; otherwise LLVM emits one shared, outlined copy"
    )]
    pub fn try_reply_fast<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        buffer: &mut [u8],
    ) -> Option<(Ticket, usize)> {
        if self.arriving.is_some() {
            return None;
        }
        let plain = lanes.peek_plain(peer, Kind::Response)?;
        let (id, len) = (plain.id(), plain.len());
        let (Some(into), Some(slot @ Slot::Waiting(_))) =
            (buffer.get_mut(..len), self.slots.get_mut(id))
        else {
            lanes.leave_plain(plain);
            return None;
        };
        *slot = Slot::Done;
        self.in_flight -= 1;
        self.slots.pop_done();
        lanes.take_plain(own, peer, plain, into);
        Some((Ticket(id), len))
    }

    /// Abandons a request: its answer is dropped if it arrives. Notifies the peer, which then need not run the
    /// handler, if the lane has room. Returns false when the ticket was not in flight.
    pub fn abandon<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        ticket: Ticket,
    ) -> bool {
        let Some(slot) = self.slots.get_mut(ticket.0) else { return false };
        if !matches!(slot, Slot::Waiting(_)) {
            return false;
        }
        *slot = Slot::Abandoned;
        self.in_flight -= 1;
        // Without room, the peer answers in vain, which is harmless.
        let _ = lanes.push(own, peer, Header::new(Kind::Cancel, Status::Ok, ticket.0, 0), &[]);
        true
    }

    /// Gives up a request on a session that is over: sends nothing and expects nothing.
    pub fn give_up(&mut self, ticket: Ticket) {
        if let Some(slot @ Slot::Waiting(_)) = self.slots.get_mut(ticket.0) {
            *slot = Slot::Abandoned;
            self.in_flight -= 1;
        }
    }

    /// Returns whether the handler may have run, now that the peer is gone: it will not take what is left in the
    /// lane, and no answer will arrive.
    pub fn executed<P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        peer: &P,
        ticket: Ticket,
    ) -> Executed {
        match (self.slots.get(ticket.0), lanes.taken(peer)) {
            (Some(Slot::Waiting(end)), Ok(head)) if head < end => Executed::No,
            _ => Executed::Maybe,
        }
    }

    /// Returns whether this request waits for its answer.
    pub fn is_waiting(&self, ticket: Ticket) -> bool {
        matches!(self.slots.get(ticket.0), Some(Slot::Waiting(_)))
    }

    /// Returns whether the limit of requests in flight is reached, counted from the oldest unanswered one.
    pub fn is_at_limit(&self) -> bool {
        self.slots.len() >= self.window as u64
    }

    /// Returns how many requests wait for their answer.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns how many answers to abandoned requests arrived since the last call, and resets the count.
    #[inline]
    pub fn take_dropped(&mut self) -> u64 {
        core::mem::take(&mut self.dropped)
    }

    /// Marks a request as answered, for an answer known to match one that has none yet.
    #[inline]
    fn complete(&mut self, id: u64, wanted: bool) {
        if let Some(slot) = self.slots.get_mut(id) {
            *slot = Slot::Done;
        }
        self.in_flight -= usize::from(wanted);
        self.dropped += u64::from(!wanted);
        self.slots.pop_done();
    }

    /// Returns whether a caller waits for an answer to this request, which has none yet.
    fn is_awaited(&mut self, id: u64) -> Result<bool, PeerFault> {
        match self.slots.get_mut(id) {
            Some(Slot::Waiting(_)) => Ok(true),
            Some(Slot::Abandoned) => Ok(false),
            Some(Slot::Done) | None => Err(PeerFault::UnknownId { id }),
        }
    }
}

impl Ticket {
    /// That of all one-way requests.
    pub const ONE_WAY: Self = Self(ONE_WAY);

    /// Returns the request's number on the wire.
    pub fn id(self) -> u64 {
        self.0
    }

    /// Returns the ticket of a number, for languages that keep the number alone.
    pub fn from_id(id: u64) -> Self {
        Self(id)
    }
}

/// Copies a record's payload to `buffer` after the first `start` bytes, unless the caller does not want it. Returns
/// the end of the copied bytes.
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
