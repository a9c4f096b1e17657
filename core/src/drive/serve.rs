//! The serving end.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::convert::Infallible;

use crate::end::{End, EndReason, SessionState};
use crate::lane::{Armed, Lanes, PushError};
use crate::resize::{ResizeError, Shortage};
use crate::serve::{
    Flushed, Incoming, OwnedBytes, Passed, RespondError, ServeCounts, ServeMachine,
};
use crate::wire::Status;
use crate::{Observer, PeerFault, Port};

/// Parts of answers that one [`ServeDriver::flush`] writes at most: 512 KiB, so that a long answer does not starve other
/// sessions.
const MAX_PARTS: usize = 16;

/// An answer in memory of its own, which `P` passes to the peer.
pub trait Attachable<P> {
    /// Returns its length in bytes.
    fn len(&self) -> u64;

    /// Returns whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Passes the memory for the answer to `id`.
    ///
    /// # Errors
    /// [`Shortage`]: nothing was passed.
    fn pass(&self, port: &P, id: u64) -> Result<(), Shortage>;
}

/// For a server that attaches no answers.
impl<P> Attachable<P> for Infallible {
    fn len(&self) -> u64 {
        match *self {}
    }

    fn pass(&self, _: &P, _: u64) -> Result<(), Shortage> {
        match *self {}
    }
}

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum RespondOutcome {
    /// It was written, or is kept until there is room.
    Done,
    /// No lane carries it: [attach](ServeDriver::attach) it. Nothing was counted.
    Attach,
    /// This system lacks a resource for it: answer with [`Status::Short`]. Nothing was counted.
    Short(Shortage),
}

/// The serving end of a session: an [`End`], the [`ServeMachine`], and the attached answers that wait for room. It never
/// blocks.
#[derive(Debug)]
pub struct ServeDriver<P, A = Infallible, O = ()> {
    end: End<P, O>,
    serve: ServeMachine,
    waiting: VecDeque<(u64, A)>,
    /// What an answer was cut for.
    lacked: Option<Shortage>,
}

impl<P: Port, A: Attachable<P>, O: Observer> ServeDriver<P, A, O> {
    /// Creates a driver for a session over `port`, whose lanes are empty and open, with at most `limit` requests in flight.
    pub fn new(port: P, lanes: Lanes, limit: u64, observer: O) -> Self {
        let end = End::new(port, lanes, observer);
        Self { end, serve: ServeMachine::new(limit), waiting: VecDeque::new(), lacked: None }
    }

    /// Returns the end.
    #[inline]
    pub fn end(&self) -> &End<P, O> {
        &self.end
    }

    /// Returns the end, mutably.
    #[inline]
    pub fn end_mut(&mut self) -> &mut End<P, O> {
        &mut self.end
    }

    /// Returns the port, to close it.
    pub fn into_port(self) -> P {
        self.end.into_port()
    }

    /// Returns the counters.
    pub fn counts(&self) -> ServeCounts {
        self.serve.counts()
    }

    /// See [`ServeMachine::is_blocked`].
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.serve.is_blocked()
    }

    /// See [`ServeMachine::is_at_limit`].
    pub fn is_at_limit(&self) -> bool {
        self.serve.is_at_limit()
    }

    /// See [`ServeMachine::is_arriving`].
    #[inline]
    pub fn is_arriving(&self) -> bool {
        self.serve.is_arriving()
    }

    /// See [`ServeMachine::give_up_arriving`].
    pub fn give_up_arriving(&mut self) {
        self.serve.give_up_arriving();
    }

    /// Returns the next request, if it is a plain one: see [`ServeMachine::try_next`].
    #[inline]
    pub fn try_next(&mut self, buffer: &mut [u8]) -> Option<(u64, usize)> {
        if self.end.is_over() {
            return None;
        }
        let (lanes, own, peer) = self.end.parts();
        let request = self.serve.try_next(lanes, own, peer, buffer);
        if let Some((id, len)) = request {
            self.end.took(id, len);
        }
        request
    }

    /// Returns what the client sent next: see [`ServeMachine::next`]. Returns `None` after [`Incoming::Closed`].
    ///
    /// # Errors
    /// [`PeerFault`]: the session is over.
    #[inline]
    pub fn next(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Incoming>, PeerFault> {
        match self.end.state() {
            SessionState::Open | SessionState::Closing => {}
            SessionState::Over(EndReason::Fault(fault)) => return Err(fault),
            SessionState::Over(_) => return Ok(None),
        }
        let (lanes, own, peer) = self.end.parts();
        let incoming = self.serve.next(lanes, own, peer, buffer);
        let incoming = incoming.map_err(|fault| self.end.fail(fault))?;
        if let Some(Incoming::Closed(reason)) = incoming {
            self.end.end(EndReason::Closed(reason));
        }
        if let Some((id, len)) = incoming.as_ref().and_then(Incoming::request) {
            self.end.took(id, len);
        }
        Ok(incoming)
    }

    /// Answers a request: the lane grows for the answer, or it is kept until there is room.
    ///
    /// # Errors
    /// [`PeerFault`]: the session is over.
    pub fn respond(
        &mut self,
        id: u64,
        status: Status,
        bytes: &[u8],
    ) -> Result<RespondOutcome, PeerFault> {
        let Err(unanswered) = self.respond_now(id, status, bytes) else {
            return Ok(RespondOutcome::Done);
        };
        match *unanswered {
            RespondError::Full { missing } => self.respond_later(id, status, bytes, missing)?,
            RespondError::TooLarge => return self.respond(id, Status::TooLarge, &[]),
            RespondError::Grow(_) => self.respond_in_parts(id, status, Box::new(bytes.to_vec()))?,
            RespondError::Attach => return Ok(RespondOutcome::Attach),
            RespondError::Short(shortage) => return Ok(RespondOutcome::Short(shortage)),
            RespondError::Peer(fault) => return Err(fault),
        }
        Ok(RespondOutcome::Done)
    }

    /// Answers a request if that takes no memory but the lane's, which grows for the answer.
    ///
    /// # Errors
    /// [`RespondError`], of which [`RespondError::Grow`] says that the lane cannot grow now: send the answer
    /// [in parts](ServeDriver::respond_in_parts). It is boxed, so that the result is one register.
    #[inline(never)]
    pub fn respond_now(
        &mut self,
        id: u64,
        status: Status,
        bytes: &[u8],
    ) -> Result<(), Box<RespondError>> {
        self.end.answering(id);
        let (lanes, own, peer) = self.end.parts();
        match self.serve.respond(lanes, own, peer, id, status, bytes) {
            Ok(()) => {
                self.end.answered();
                Ok(())
            }
            Err(error) => self.respond_slow(id, status, bytes, error).map_err(Box::new),
        }
    }

    /// Continues [`ServeDriver::respond_now`] where the lane did not take the answer at once.
    #[cold]
    fn respond_slow(
        &mut self,
        id: u64,
        status: Status,
        bytes: &[u8],
        mut error: RespondError,
    ) -> Result<(), RespondError> {
        loop {
            let to = match error {
                RespondError::Grow(to) => to,
                RespondError::Peer(fault) => return Err(self.end.fail(fault).into()),
                other => return Err(other),
            };
            match self.end.grow(to) {
                Ok(()) => {}
                Err(ResizeError::Push(PushError::Peer(fault))) => return Err(fault.into()),
                Err(ResizeError::Push(PushError::Full { missing })) => {
                    return Err(RespondError::Full { missing });
                }
                // At the limit of shared memory.
                Err(ResizeError::Push(_)) => return Err(error),
                Err(ResizeError::Short(shortage)) => return Err(shortage.into()),
            }
            let (lanes, own, peer) = self.end.parts();
            match self.serve.respond(lanes, own, peer, id, status, bytes) {
                Ok(()) => {
                    self.end.answered();
                    return Ok(());
                }
                Err(refused) => error = refused,
            }
        }
    }

    /// Answers a request when there is room, after [`ServeDriver::respond_now`] found none: it lacked `missing` bytes.
    ///
    /// # Errors
    /// [`PeerFault`]: the session is over.
    pub fn respond_later(
        &mut self,
        id: u64,
        status: Status,
        bytes: &[u8],
        missing: u64,
    ) -> Result<(), PeerFault> {
        self.serve.respond_later(id, status, bytes);
        self.end.observer.answered(None);
        self.end.observer.lane_full(missing);
        if self.end.larger().is_some() {
            self.flush()?;
        }
        Ok(())
    }

    /// Answers a request in parts: for messages that no small lane holds.
    ///
    /// # Errors
    /// [`PeerFault`]: the session is over.
    pub fn respond_in_parts(
        &mut self,
        id: u64,
        status: Status,
        bytes: OwnedBytes,
    ) -> Result<(), PeerFault> {
        self.end.answering(id);
        // Without memory for a larger lane, the answer goes through the smaller one.
        if let Some(wanted) = self.end.lanes.wanted_for_parts() {
            if let Err(ResizeError::Push(PushError::Peer(fault))) = self.end.grow(wanted) {
                return Err(fault);
            }
        }
        self.serve.respond_in_parts(id, status, bytes);
        self.end.observer.answered(None);
        self.flush()
    }

    /// Answers a request with `what`, now or when there is room. Unless this is done, answer with a status.
    ///
    /// # Errors
    /// [`PeerFault`]: the session is over.
    pub fn attach(&mut self, id: u64, what: A) -> Result<RespondOutcome, PeerFault> {
        self.end.answering(id);
        let End { port, lanes, .. } = &mut self.end;
        let (own, peer, pass) = (port.own(), port.peer(), |id| what.pass(port, id));
        match self.serve.respond_attached(lanes, own, peer, id, what.len(), pass) {
            Ok(Passed::Now | Passed::Never) => self.end.answered(),
            Ok(Passed::Later) => {
                self.end.observer.answered(None);
                self.waiting.push_back((id, what));
            }
            Err(RespondError::Peer(fault)) => return Err(self.end.fail(fault)),
            Err(RespondError::Short(shortage)) => return Ok(RespondOutcome::Short(shortage)),
            Err(_) => return Ok(RespondOutcome::Attach),
        }
        Ok(RespondOutcome::Done)
    }

    /// Writes the answers that wait for room, as far as there is room or the lane can grow; only as many parts as is fair
    /// to other sessions. An answer that a shortage cuts is an error: see [`ServeDriver::take_shortage`].
    ///
    /// # Errors
    /// [`PeerFault`]: the session is over.
    pub fn flush(&mut self) -> Result<(), PeerFault> {
        let mut parts = 0;
        loop {
            let End { port, lanes, observer, .. } = &mut self.end;
            let waiting = &mut self.waiting;
            let pass = |id| {
                let at = waiting.iter().position(|(waiting, _)| *waiting == id);
                let what = at.and_then(|at| waiting.remove(at));
                what.map_or(Ok(()), |(_, what)| what.pass(port, id))
            };
            let note = |id, end| observer.answered_late(id, end);
            let flushed = self.serve.flush(lanes, port.own(), port.peer(), pass, note);
            let grown = match flushed.map_err(|fault| self.end.fail(fault))? {
                Flushed::Done => {
                    // The remaining answers were cut and no longer need their memory.
                    self.waiting.clear();
                    return Ok(());
                }
                Flushed::Part => {
                    self.commit();
                    parts += 1;
                    if parts == MAX_PARTS {
                        return Ok(());
                    }
                    continue;
                }
                Flushed::Grow(to) => self.end.grow(to),
                Flushed::Blocked => match self.end.larger().map(|to| self.end.grow(to)) {
                    Some(Ok(())) => Ok(()),
                    Some(Err(ResizeError::Push(PushError::Peer(fault)))) => return Err(fault),
                    _ => return Ok(()),
                },
            };
            match grown {
                Ok(()) => {}
                Err(ResizeError::Push(PushError::Peer(fault))) => return Err(fault),
                Err(ResizeError::Push(PushError::Full { .. })) => return Ok(()),
                Err(error) => {
                    if let ResizeError::Short(shortage) = error {
                        self.lacked.get_or_insert(shortage);
                    }
                    self.serve.cut_first();
                }
            }
        }
    }

    /// Returns the shortage that cut an answer since the last call, if any.
    pub fn take_shortage(&mut self) -> Option<Shortage> {
        self.lacked.take()
    }

    /// Drops the answers to a client that is gone and will not make room for them.
    pub fn forget_answers(&mut self) {
        self.serve.forget_answers();
        self.waiting.clear();
    }

    /// Shrinks the own lane as far as it can now, and reports to the client that memory was freed.
    ///
    /// # Errors
    /// [`PeerFault`]: the session is over.
    pub fn trim(&mut self) -> Result<(), PeerFault> {
        if let Err(ResizeError::Push(PushError::Peer(fault))) = self.end.shrink() {
            return Err(fault);
        }
        let (lanes, own, peer) = self.end.parts();
        self.serve.trimmed(lanes, own, peer).map_err(|fault| self.end.fail(fault))
    }

    /// Publishes answers and returns room: see [`End::commit`]. The counters in the page follow the answers.
    #[inline]
    pub fn commit(&mut self) {
        let Self { end, serve, .. } = self;
        end.commit_and(|own| serve.counts().export(own));
    }

    /// Requests a ring for the next request, and for room if answers wait for it. Call it when nothing is left to take: no ring
    /// tells of requests that were seen and not taken.
    ///
    /// # Errors
    /// [`PeerFault`]: the session is over.
    pub fn arm(&mut self) -> Result<Armed, PeerFault> {
        self.end.arm(self.serve.is_blocked())
    }

    /// Returns whether the client published something new, or made the room that answers wait for.
    #[inline]
    pub fn has_moved(&mut self) -> bool {
        self.end.has_moved() || (self.serve.is_blocked() && self.end.has_room().unwrap_or(true))
    }
}
