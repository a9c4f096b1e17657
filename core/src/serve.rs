//! The serving end of a session: takes requests and owes answers.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use core::fmt;

use crate::call::{append, close_reason, unexpected};
use crate::lane::{Lanes, PushError, Record};
use crate::resize::Shortage;
use crate::wire::{CloseReason, Counter, Header, Kind, ONE_WAY, Status};
use crate::{Geometry, OwnMemory, PeerFault, PeerMemory};

/// A record that the peer sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A request; its payload is in the caller's buffer.
    Request {
        /// The id to answer it with; [`ONE_WAY`] for a one-way request, whose answer is only counted.
        id: u64,
        /// The payload's length in bytes.
        len: usize,
        /// Whether it is an unparsed [batch](crate::batch), so that its answer must be one too.
        batch: bool,
    },
    /// A part of a request: the caller must pass the same buffer unchanged to the next call.
    Part,
    /// The end of a request that was [given up](ServeMachine::give_up_arriving): no handler runs for it.
    GivenUp {
        /// The id to answer it with.
        id: u64,
    },
    /// An attached request: its payload is a memfd on the control socket.
    Attached {
        /// The id to answer it with.
        id: u64,
    },
    /// The lane goes on in another epoch: [`follow`](crate::resize::follow) it, then call again.
    Switch(Record),
    /// The peer asks this end to free memory: call [`ServeMachine::trimmed`] afterwards.
    Trim,
    /// The peer no longer wants the answer to a request. An answer, of any kind, is still due, to keep the counters
    /// balanced.
    Cancel {
        /// The request.
        id: u64,
    },
}

impl Incoming {
    /// Returns the id of a request and the length of its payload; 0 when the payload is attached.
    pub fn request(&self) -> Option<(u64, usize)> {
        match *self {
            Self::Request { id, len, .. } => Some((id, len)),
            Self::Attached { id } => Some((id, 0)),
            _ => None,
        }
    }
}

/// Counters of the serving end. Invariant: `accepted = answered + refused + posted + in flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServeCounts {
    /// Requests taken, one-way ones included.
    pub accepted: u64,
    /// Requests that a handler answered or failed.
    pub answered: u64,
    /// Requests answered without running a handler.
    pub refused: u64,
    /// Of `answered`, requests that the handler failed or whose answer could not be sent.
    pub errors: u64,
    /// Of `errors` and `post_errors`, handlers that panicked.
    pub panics: u64,
    /// One-way requests that were handled.
    pub posted: u64,
    /// Of `posted`, those whose handler failed, or that were refused without running it.
    pub post_errors: u64,
}

impl ServeCounts {
    /// Returns the requests taken and not yet answered or handled.
    pub fn in_flight(&self) -> u64 {
        self.accepted - self.answered - self.refused - self.posted
    }

    /// Traces the counters.
    #[inline]
    pub fn export<O: OwnMemory>(&self, own: &O) {
        own.export_counter(Counter::Requests.offset(), self.accepted);
        own.export_counter(Counter::Answered.offset(), self.answered);
        if self.posted > 0 {
            own.export_counter(Counter::Posted.offset(), self.posted);
        }
        if self.refused + self.errors > 0 {
            own.export_counter(Counter::Refused.offset(), self.refused);
            own.export_counter(Counter::Errors.offset(), self.errors);
            own.export_counter(Counter::Panics.offset(), self.panics);
        }
    }
}

/// Why an answer was not written. Nothing was counted: answer again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RespondError {
    /// The peer violated the protocol; the session is poisoned.
    #[error(transparent)]
    Peer(#[from] PeerFault),
    /// The lane must first grow to this size. If it cannot now, use [`ServeMachine::respond_later`].
    #[error("the lane has to grow to {} bytes first", .0.size())]
    Grow(Geometry),
    /// No lane carries the answer: attach it.
    #[error("no lane carries it: attach it")]
    Attach,
    /// This system lacks a resource for the answer.
    #[error(transparent)]
    Short(#[from] Shortage),
}

/// What happened to the memory of [`ServeMachine::respond_attached`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// It was passed.
    Now,
    /// A later [`ServeMachine::flush`] passes it: keep it.
    Later,
    /// It exceeds a limit, or answers a one-way request, and is never passed.
    Never,
}

/// How far [`ServeMachine::flush`] got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// No answer is owed any more.
    Done,
    /// The next answer waits for the peer to take some.
    Blocked,
    /// The next answer needs a lane of this size.
    Grow(Geometry),
    /// A part of the next answer was written: publish it and go on.
    Part,
}

/// The bytes of an answer, owned until they are sent.
pub type Kept = Box<dyn AsRef<[u8]> + Send>;

struct Owed {
    header: Header,
    body: Body,
}

enum Body {
    Bytes(Kept),
    /// In parts, with the bytes written so far.
    Parts(Kept, usize),
    /// In a memfd of this many bytes, passed when there is room for the record.
    Attached(u64),
}

/// The serving end of a session, without I/O.
///
/// Requests arrive through [`ServeMachine::next`]; answers leave through [`ServeMachine::respond`] in any order. An
/// answer that finds the lane full is kept, and no request is taken until it is written. So a peer that does not read
/// fills its own lane, and at most `limit` answers here.
#[derive(Debug)]
pub struct ServeMachine {
    last_id: u64,
    limit: u64,
    owed: VecDeque<Owed>,
    counts: ServeCounts,
    closed: Option<CloseReason>,
    arriving: Option<Arriving>,
}

/// The request that is arriving in parts.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    id: u64,
    batch: bool,
    /// The bytes received so far: they are in the buffer, unless the request was given up.
    len: usize,
    is_wanted: bool,
}

impl ServeMachine {
    /// Creates the machine of a new session with at most `limit` requests in flight; at least one.
    pub fn new(limit: u64) -> Self {
        let counts = ServeCounts::default();
        Self {
            last_id: 0,
            limit: limit.max(1),
            owed: VecDeque::new(),
            counts,
            closed: None,
            arriving: None,
        }
    }

    /// Returns the next request or cancellation; copies a request's payload to `buffer`, which grows as needed.
    ///
    /// # Errors
    /// [`PeerFault`]: the session is poisoned.
    pub fn next<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Incoming>, PeerFault> {
        if self.closed.is_some() {
            return Ok(None);
        }
        if !self.owed.is_empty() || self.counts.in_flight() >= self.limit {
            lanes.look(peer)?;
            return Ok(None);
        }
        if let Some((id, len)) = self.try_next(lanes, own, peer, buffer) {
            return Ok(Some(Incoming::Request { id, len, batch: false }));
        }
        let Some(record) = lanes.peek(peer)? else { return Ok(None) };
        let incoming = match record.kind {
            Kind::Request => {
                let (id, batch) = (record.id, record.batch);
                let (start, is_wanted) = match self.arriving.take() {
                    Some(part) if part.id == id && part.batch == batch => {
                        (part.len, part.is_wanted)
                    }
                    Some(_) => return Err(unexpected(&record)),
                    None => {
                        self.begin(id)?;
                        (0, true)
                    }
                };
                let len = append(lanes, peer, &record, buffer, start, is_wanted)?;
                if record.more {
                    self.arriving = Some(Arriving { id, batch, len, is_wanted });
                    Some(Incoming::Part)
                } else {
                    self.counts.accepted += 1;
                    Some(match is_wanted {
                        true => Incoming::Request { id, len, batch },
                        false => Incoming::GivenUp { id },
                    })
                }
            }
            // Followed before it is consumed.
            Kind::Switch => return Ok(Some(Incoming::Switch(record))),
            // The rest of it will not arrive.
            Kind::Cancel if self.arriving.is_some_and(|part| part.id == record.id) => {
                self.arriving = None;
                Some(Incoming::Part)
            }
            Kind::Attach | Kind::Trim if self.arriving.is_some() => {
                return Err(unexpected(&record));
            }
            Kind::Attach => {
                self.begin(record.id)?;
                self.counts.accepted += 1;
                Some(Incoming::Attached { id: record.id })
            }
            Kind::Trim => Some(Incoming::Trim),
            Kind::Cancel if record.id != ONE_WAY && record.id <= self.last_id => {
                Some(Incoming::Cancel { id: record.id })
            }
            Kind::Cancel => return Err(PeerFault::UnknownId { id: record.id }),
            Kind::Close => {
                self.closed = Some(close_reason(&record)?);
                None
            }
            _ => return Err(unexpected(&record)),
        };
        lanes.take_before_acting(own, &record);
        Ok(incoming)
    }

    /// Takes the next request into the first bytes of `buffer` and returns its id and length, if it is complete, no
    /// batch, below the limit and fits. Returns `None` otherwise; call [`ServeMachine::next`] then.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "also called by the slow path; otherwise LLVM emits one shared, outlined copy"
    )]
    pub fn try_next<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        buffer: &mut [u8],
    ) -> Option<(u64, usize)> {
        let is_held_up = self.closed.is_some() || self.arriving.is_some() || self.is_at_limit();
        if is_held_up || self.is_blocked() {
            return None;
        }
        let plain = lanes.peek_plain(peer, Kind::Request)?;
        let (id, len) = (plain.id(), plain.len());
        let into = match buffer.get_mut(..len) {
            Some(into) if self.begin(id).is_ok() => into,
            _ => {
                lanes.leave_plain(plain);
                return None;
            }
        };
        self.counts.accepted += 1;
        lanes.take_plain(own, peer, plain, into);
        Some((id, len))
    }

    /// Answers a request if that takes nothing but a record in the lane. Returns false, and writes nothing,
    /// otherwise; call [`ServeMachine::respond`] then.
    #[inline]
    pub fn try_respond<O: OwnMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        id: u64,
        status: Status,
        payload: &[u8],
    ) -> bool {
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        if id == ONE_WAY {
            self.count_post(status);
            return true;
        }
        let is_next = self.owed.is_empty();
        let answered =
            is_next && lanes.try_push(own, Header::new(Kind::Response, status, id, len), payload);
        if answered {
            self.count(status);
        }
        answered
    }

    /// Answers a request, once. Keeps an answer that does not fit the lane now until [`ServeMachine::flush`]; one
    /// that exceeds a limit becomes [`Status::TooLarge`].
    ///
    /// # Errors
    /// [`RespondError`]: the request is still unanswered.
    #[allow(clippy::too_many_arguments, reason = "the three memories, and an answer's three parts")]
    pub fn respond<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        id: u64,
        status: Status,
        payload: &[u8],
    ) -> Result<(), RespondError> {
        if id == ONE_WAY {
            self.count_post(status);
            return Ok(());
        }
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        if self.owed.is_empty() {
            let header = Header::new(Kind::Response, status, id, len);
            match lanes.push(own, peer, header, payload) {
                Ok(()) => {
                    self.count(status);
                    return Ok(());
                }
                Err(PushError::Peer(fault)) => return Err(fault.into()),
                Err(PushError::Grow { to }) => return Err(RespondError::Grow(to)),
                Err(PushError::Attach { .. }) => return Err(RespondError::Attach),
                Err(PushError::TooLarge { .. }) => {
                    return self.respond(lanes, own, peer, id, Status::TooLarge, &[]);
                }
                Err(PushError::Full { .. } | PushError::Closed) => {}
            }
        } else if len as usize > lanes.max_payload() || u64::from(len) > lanes.max_message() {
            return match lanes.can_attach(peer, len.into()) {
                Err(PushError::Peer(fault)) => Err(fault.into()),
                Err(PushError::TooLarge { .. }) => {
                    self.respond_later(id, Status::TooLarge, &[]);
                    Ok(())
                }
                _ => Err(RespondError::Attach),
            };
        }
        self.respond_later(id, status, payload);
        Ok(())
    }

    /// Answers a request when there is room: keeps the answer until [`ServeMachine::flush`].
    pub fn respond_later(&mut self, id: u64, status: Status, payload: &[u8]) {
        if id == ONE_WAY {
            return self.count_post(status);
        }
        self.count(status);
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let header = Header::new(Kind::Response, status, id, len);
        self.owed.push_back(Owed { header, body: Body::Bytes(Box::new(payload.to_vec())) });
    }

    /// Answers a request in parts through [`ServeMachine::flush`]: for messages that no small lane holds.
    pub fn respond_in_parts(&mut self, id: u64, status: Status, payload: Kept) {
        if id == ONE_WAY {
            return self.count_post(status);
        }
        self.count(status);
        let header = Header::new(Kind::Response, status, id, 0);
        self.owed.push_back(Owed { header, body: Body::Parts(payload, 0) });
    }

    /// Answers a request with a memfd of `bytes`, which `pass` passes immediately or in a later
    /// [`ServeMachine::flush`]. One that exceeds a limit becomes [`Status::TooLarge`] and is never passed.
    ///
    /// # Errors
    /// [`RespondError`]: the request is still unanswered.
    #[allow(clippy::too_many_arguments, reason = "the three memories, and an answer's three parts")]
    pub fn respond_attached<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        id: u64,
        bytes: u64,
        pass: impl FnOnce(u64) -> Result<(), Shortage>,
    ) -> Result<Passed, RespondError> {
        if id == ONE_WAY {
            self.count_post(Status::Ok);
            return Ok(Passed::Never);
        }
        let header = Header::new(Kind::Attach, Status::Ok, id, 0);
        match lanes.can_attach(peer, bytes) {
            Ok(()) if self.owed.is_empty() => {
                pass(id)?;
                // There is room, and nobody else writes.
                let _ = lanes.push_attached(own, peer, header, bytes);
                self.count(Status::Ok);
                Ok(Passed::Now)
            }
            Err(PushError::Peer(fault)) => Err(fault.into()),
            Err(PushError::TooLarge { .. }) => {
                self.respond(lanes, own, peer, id, Status::TooLarge, &[])?;
                Ok(Passed::Never)
            }
            _ => {
                self.count(Status::Ok);
                self.owed.push_back(Owed { header, body: Body::Attached(bytes) });
                Ok(Passed::Later)
            }
        }
    }

    /// Reports to the peer that memory was freed.
    ///
    /// # Errors
    /// [`PeerFault`]: the session is poisoned.
    pub fn trimmed<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
    ) -> Result<(), PeerFault> {
        let header = Header::new(Kind::Trim, Status::Ok, 0, 0);
        if self.owed.is_empty() {
            match lanes.push(own, peer, header, &[]) {
                Ok(()) => return Ok(()),
                Err(PushError::Peer(fault)) => return Err(fault),
                Err(_) => {}
            }
        }
        self.owed.push_back(Owed { header, body: Body::empty() });
        Ok(())
    }

    /// Writes the owed answers for which there is room. `pass` passes the memory of one that
    /// [`ServeMachine::respond_attached`] kept.
    ///
    /// # Errors
    /// [`PeerFault`]: the session is poisoned.
    pub fn flush<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        pass: impl FnMut(u64) -> Result<(), Shortage>,
    ) -> Result<Flushed, PeerFault> {
        self.flush_noting(lanes, own, peer, pass, |_, _| {})
    }

    /// Like [`ServeMachine::flush`], but calls `note` with the id of each written answer and the position at which it
    /// ends.
    ///
    /// # Errors
    /// Like [`ServeMachine::flush`].
    pub fn flush_noting<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        mut pass: impl FnMut(u64) -> Result<(), Shortage>,
        mut note: impl FnMut(u64, u64),
    ) -> Result<Flushed, PeerFault> {
        while let Some(owed) = self.owed.front_mut() {
            let pushed = match &mut owed.body {
                Body::Bytes(payload) => lanes.push(own, peer, owed.header, (**payload).as_ref()),
                Body::Parts(payload, sent) => {
                    let payload = (**payload).as_ref();
                    match lanes.push_part(own, peer, owed.header, payload, *sent) {
                        Ok(end) if end < payload.len() => {
                            *sent = end;
                            return Ok(Flushed::Part);
                        }
                        pushed => pushed.map(|_| ()),
                    }
                }
                Body::Attached(bytes) => {
                    let pushed = lanes.can_attach(peer, *bytes);
                    if pushed.is_ok() && pass(owed.header.id.get()).is_err() {
                        self.counts.errors += owed.cut(Status::Short);
                        continue;
                    }
                    pushed.and_then(|()| lanes.push_attached(own, peer, owed.header, *bytes))
                }
            };
            match pushed {
                Ok(()) => {
                    note(owed.header.id.get(), lanes.position());
                    self.owed.pop_front();
                }
                Err(PushError::Peer(fault)) => return Err(fault),
                Err(PushError::Grow { to }) => return Ok(Flushed::Grow(to)),
                // The session's use of shared memory may have changed since the answer was kept.
                Err(PushError::TooLarge { .. }) => self.counts.errors += owed.cut(Status::TooLarge),
                // No lane within the limits holds it now, so it goes through the current one in parts.
                Err(PushError::Attach { .. }) => owed.split(),
                Err(PushError::Full { .. } | PushError::Closed) => return Ok(Flushed::Blocked),
            }
        }
        Ok(Flushed::Done)
    }

    /// Drops the owed answers to a peer that is gone and will not make room for them.
    pub fn forget_answers(&mut self) {
        self.owed.clear();
    }

    /// Drops the payload of the first owed answer, whose status becomes [`Status::Short`].
    pub fn cut_first(&mut self) {
        if let Some(owed) = self.owed.front_mut() {
            self.counts.errors += owed.cut(Status::Short);
        }
    }

    /// Returns whether a request is arriving in parts: the next [`ServeMachine::next`] needs the same buffer.
    pub fn is_arriving(&self) -> bool {
        self.arriving.is_some()
    }

    /// Discards the rest of the request that is arriving in parts; its buffer may be dropped. Its end arrives as
    /// [`Incoming::GivenUp`].
    pub fn give_up_arriving(&mut self) {
        if let Some(arriving) = &mut self.arriving {
            arriving.is_wanted = false;
        }
    }

    /// Returns whether answers wait for room in the lane.
    pub fn is_blocked(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Returns whether the limit of requests in flight is reached: no more are taken until one is answered.
    pub fn is_at_limit(&self) -> bool {
        self.counts.in_flight() >= self.limit
    }

    /// Returns the counters.
    pub fn counts(&self) -> ServeCounts {
        self.counts
    }

    /// Returns why the peer closed its lane, if it did.
    pub fn closed(&self) -> Option<CloseReason> {
        self.closed
    }

    #[inline]
    fn begin(&mut self, id: u64) -> Result<(), PeerFault> {
        if id > self.last_id {
            self.last_id = id;
            return Ok(());
        }
        if id == ONE_WAY { Ok(()) } else { Err(PeerFault::ReusedId { id, last: self.last_id }) }
    }

    #[inline]
    fn count_post(&mut self, status: Status) {
        self.counts.posted += 1;
        self.counts.post_errors += u64::from(status != Status::Ok);
        self.counts.panics += u64::from(status == Status::Panicked);
    }

    #[inline]
    fn count(&mut self, status: Status) {
        if status == Status::Ok {
            self.counts.answered += 1;
        } else {
            self.count_trouble(status);
        }
    }

    #[cold]
    fn count_trouble(&mut self, status: Status) {
        if status.ran() {
            self.counts.answered += 1;
            self.counts.errors += 1;
            self.counts.panics += u64::from(status == Status::Panicked);
        } else {
            self.counts.refused += 1;
        }
    }
}

impl Owed {
    /// Changes the answer to be sent in parts.
    fn split(&mut self) {
        if let Body::Bytes(kept) = core::mem::replace(&mut self.body, Body::empty()) {
            self.body = Body::Parts(kept, 0);
        }
    }

    /// Replaces an answer that cannot be sent with `status`; the handler ran. Returns one more error, unless the
    /// answer was an error already.
    fn cut(&mut self, status: Status) -> u64 {
        let was_ok = self.header.status.get() == Status::Ok as u16;
        self.header = Header::new(Kind::Response, status, self.header.id.get(), 0);
        self.body = Body::empty();
        u64::from(was_ok)
    }
}

impl Body {
    fn empty() -> Self {
        Self::Bytes(Box::new([]))
    }
}

impl fmt::Debug for Owed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owed").field("header", &self.header).finish_non_exhaustive()
    }
}
