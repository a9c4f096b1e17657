//! Answers, and those that wait for room in the lane.

use alloc::boxed::Box;
use core::fmt;

use super::ServeMachine;
use crate::lane::{Lanes, PushError};
use crate::resize::Shortage;
use crate::wire::{Header, Kind, ONE_WAY, Status};
use crate::{Geometry, OwnMemory, PeerFault, PeerMemory};

/// Why an answer was not written. Nothing was counted: answer again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RespondError {
    /// The peer violated the protocol; the session is poisoned.
    #[error(transparent)]
    Peer(#[from] PeerFault),
    /// The lane must first grow to this size. If it cannot now, use [`ServeMachine::respond_later`] or
    /// [`ServeMachine::respond_in_parts`].
    #[error("the lane has to grow to {} bytes first", .0.size())]
    Grow(Geometry),
    /// There is no room for it now: keep it by [`ServeMachine::respond_later`].
    #[error("the lane has no room for it now: answer later")]
    Full {
        /// How many bytes are missing; 0 if that is not known.
        missing: u64,
    },
    /// It exceeds a limit: answer with [`Status::TooLarge`].
    #[error("it is above a limit: answer with TooLarge")]
    TooLarge,
    /// No lane carries the answer: attach it.
    #[error("the answer fits no lane: attach it")]
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
    /// No answer is pending any more.
    Done,
    /// The next answer waits for the peer to take some.
    Blocked,
    /// The next answer needs a lane of this size.
    Grow(Geometry),
    /// A part of the next answer was written: publish it and go on.
    Part,
}

/// The bytes of an answer, owned until they are sent.
pub type OwnedBytes = Box<dyn AsRef<[u8]> + Send>;

pub(super) struct PendingAnswer {
    header: Header,
    body: Body,
}

enum Body {
    Bytes(OwnedBytes),
    /// In parts, with the bytes written so far.
    Parts(OwnedBytes, usize),
    /// In a memfd of this many bytes, passed when there is room for the record.
    Attached(u64),
}

impl ServeMachine {
    /// Answers a request, once.
    ///
    /// # Errors
    /// [`RespondError`]: the request is still unanswered.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "as of `Lanes::reserve`")]
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
        if self.pending.is_empty() {
            if let Some(reserved) = lanes.reserve(payload.len()) {
                let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
                reserved.write(own, Header::new(Kind::Response, status, id, len), payload);
                self.count(status);
                return Ok(());
            }
        }
        self.respond_slow(lanes, own, peer, id, status, payload)
    }

    /// Continues [`ServeMachine::respond`] where an answer takes more than a free record.
    #[cold]
    #[allow(clippy::too_many_arguments, reason = "as of `respond`")]
    fn respond_slow<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        id: u64,
        status: Status,
        payload: &[u8],
    ) -> Result<(), RespondError> {
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let written = if self.pending.is_empty() {
            lanes.push(own, peer, Header::new(Kind::Response, status, id, len), payload)
        } else if len as usize <= lanes.max_payload() && u64::from(len) <= lanes.max_message() {
            return Err(RespondError::Full { missing: 0 });
        } else {
            let can = lanes.can_attach(peer, len.into());
            can.and(Err(PushError::Attach { len: len.into(), limit: lanes.max_payload() as u64 }))
        };
        match written {
            Ok(()) => {
                self.count(status);
                Ok(())
            }
            Err(PushError::Peer(fault)) => Err(fault.into()),
            Err(PushError::Grow { to }) => Err(RespondError::Grow(to)),
            Err(PushError::Attach { .. }) => Err(RespondError::Attach),
            Err(PushError::TooLarge { .. }) => Err(RespondError::TooLarge),
            Err(PushError::Full { .. } | PushError::Closed) if self.pending.is_empty() => {
                Err(RespondError::Full { missing: 0 })
            }
            // Also for room for its record.
            Err(PushError::Full { .. } | PushError::Closed) => Err(RespondError::Attach),
        }
    }

    /// Answers a request when there is room: keeps the answer until [`ServeMachine::flush`].
    pub fn respond_later(&mut self, id: u64, status: Status, payload: &[u8]) {
        if id == ONE_WAY {
            return self.count_post(status);
        }
        self.count(status);
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let header = Header::new(Kind::Response, status, id, len);
        self.pending
            .push_back(PendingAnswer { header, body: Body::Bytes(Box::new(payload.to_vec())) });
    }

    /// Answers a request in parts through [`ServeMachine::flush`]: for messages that no small lane holds.
    pub fn respond_in_parts(&mut self, id: u64, status: Status, payload: OwnedBytes) {
        if id == ONE_WAY {
            return self.count_post(status);
        }
        self.count(status);
        let header = Header::new(Kind::Response, status, id, 0);
        self.pending.push_back(PendingAnswer { header, body: Body::Parts(payload, 0) });
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
            Ok(()) if self.pending.is_empty() => {
                pass(id)?;
                // There is room, and nobody else writes.
                let _ = lanes.push_attached(own, peer, header, bytes);
                self.count(Status::Ok);
                Ok(Passed::Now)
            }
            Err(PushError::Peer(fault)) => Err(fault.into()),
            Err(PushError::TooLarge { .. }) => {
                match self.respond(lanes, own, peer, id, Status::TooLarge, &[]) {
                    Err(RespondError::Full { .. }) => self.respond_later(id, Status::TooLarge, &[]),
                    responded => responded?,
                }
                Ok(Passed::Never)
            }
            _ => {
                self.count(Status::Ok);
                self.pending.push_back(PendingAnswer { header, body: Body::Attached(bytes) });
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
        if self.pending.is_empty() {
            match lanes.push(own, peer, header, &[]) {
                Ok(()) => return Ok(()),
                Err(PushError::Peer(fault)) => return Err(fault),
                Err(_) => {}
            }
        }
        self.pending.push_back(PendingAnswer { header, body: Body::empty() });
        Ok(())
    }

    /// Writes the pending answers for which there is room. `pass` passes the memory of one that
    /// [`ServeMachine::respond_attached`] kept; `note` gets the id of each written answer and the position at which it
    /// ends.
    ///
    /// # Errors
    /// [`PeerFault`]: the session is poisoned.
    pub fn flush<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        mut pass: impl FnMut(u64) -> Result<(), Shortage>,
        mut note: impl FnMut(u64, u64),
    ) -> Result<Flushed, PeerFault> {
        while let Some(answer) = self.pending.front_mut() {
            let pushed = match &mut answer.body {
                Body::Bytes(payload) => lanes.push(own, peer, answer.header, (**payload).as_ref()),
                Body::Parts(payload, sent) => {
                    let payload = (**payload).as_ref();
                    match lanes.push_part(own, peer, answer.header, payload, *sent) {
                        Ok(end) if end < payload.len() => {
                            *sent = end;
                            return Ok(Flushed::Part);
                        }
                        pushed => pushed.map(|_| ()),
                    }
                }
                Body::Attached(bytes) => {
                    let pushed = lanes.can_attach(peer, *bytes);
                    if pushed.is_ok() && pass(answer.header.id.get()).is_err() {
                        self.counts.errors += answer.cut(Status::Short);
                        continue;
                    }
                    pushed.and_then(|()| lanes.push_attached(own, peer, answer.header, *bytes))
                }
            };
            match pushed {
                Ok(()) => {
                    note(answer.header.id.get(), lanes.position());
                    self.pending.pop_front();
                }
                Err(PushError::Peer(fault)) => return Err(fault),
                Err(PushError::Grow { to }) => return Ok(Flushed::Grow(to)),
                // The session's use of shared memory may have changed since the answer was kept.
                Err(PushError::TooLarge { .. }) => {
                    self.counts.errors += answer.cut(Status::TooLarge);
                }
                // No lane within the limits holds it now, so it goes through the current one in parts.
                Err(PushError::Attach { .. }) => answer.split(),
                Err(PushError::Full { .. } | PushError::Closed) => return Ok(Flushed::Blocked),
            }
        }
        Ok(Flushed::Done)
    }

    /// Drops the pending answers to a peer that is gone and will not make room for them.
    pub fn forget_answers(&mut self) {
        self.pending.clear();
    }

    /// Drops the payload of the first pending answer, whose status becomes [`Status::Short`].
    pub fn cut_first(&mut self) {
        if let Some(answer) = self.pending.front_mut() {
            self.counts.errors += answer.cut(Status::Short);
        }
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

impl PendingAnswer {
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

impl fmt::Debug for PendingAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingAnswer").field("header", &self.header).finish_non_exhaustive()
    }
}
