//! The calling end, and the loops that block.

mod fast_path;
mod polls;
mod posts;
mod wait;

pub use polls::SpinPoll;

use alloc::vec::Vec;

use crate::call::{CallMachine, Incoming, Outgoing, Reply, SubmitError, Ticket};
use crate::end::{End, EndReason, SessionState};
use crate::lane::{Armed, Growth, LaneStats, Lanes, PushError};
use crate::resize::{FollowError, ResizeError, Shortage};
use crate::wire::CloseReason;
use crate::{
    Deadline, Executed, Geometry, Observer, PeerFault, Port, Spin, SpinCounter, SpinPolicy,
};

/// Why a blocking call ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailed {
    /// The request was not sent; the session is usable.
    #[error(transparent)]
    Submit(SubmitError),
    /// The deadline passed.
    #[error("the deadline passed; {0}")]
    Deadline(Executed),
    /// Another thread cancelled the call.
    #[error("the call was cancelled; {0}")]
    Cancelled(Executed),
    /// The peer's process ended, or it left without a reason.
    #[error("the peer is gone; {0}")]
    PeerGone(Executed),
    /// The peer closed the session, for this reason.
    #[error("the peer closed the session ({0:?}); {1}")]
    Closed(CloseReason, Executed),
    /// The peer violated the protocol; the session is poisoned.
    #[error("the session is poisoned: {0}")]
    Peer(PeerFault),
    /// This system lacks a resource to continue reading the peer's lane. Nothing is lost: try again.
    #[error("cannot follow the peer's lane: {0}")]
    Short(Shortage),
}

/// The calling end of a session: an [`End`], the [`CallMachine`], and the only loops that block.
#[derive(Debug)]
pub struct CallDriver<P, O = ()> {
    end: End<P, O>,
    calls: CallMachine,
    spin: Spin,
    /// The spin of an event loop, while there is one.
    polls: Option<SpinCounter>,
    /// The value of [`Lanes::exchanged`] before the last wait.
    exchanged: u64,
    parks: u64,
    /// Records were seen but not taken, because one poll takes a bounded number.
    has_unread: bool,
    waits: u64,
    /// Trim requests that the peer has not answered; it answers them in order.
    trims: u32,
    /// Whether the last request that was not written waits for an answer, not for room in the lane: as many requests were
    /// in flight as may be.
    needs_answer: bool,
}

/// Records other than answers that one poll handles.
const MAX_INCOMING: usize = 256;

impl<P: Port> CallDriver<P> {
    /// Creates a driver for a session over `port`, whose lanes are empty and open.
    pub fn new(port: P, lanes: Lanes, spin: SpinPolicy) -> Self {
        Self::observed(port, lanes, spin, ())
    }
}

impl<P: Port, O: Observer> CallDriver<P, O> {
    /// Like [`CallDriver::new`], with an observer.
    pub fn observed(port: P, lanes: Lanes, spin: SpinPolicy, observer: O) -> Self {
        Self {
            end: End::new(port, lanes, observer),
            calls: CallMachine::default(),
            spin: Spin::new(spin),
            polls: None,
            exchanged: 0,
            parks: 0,
            has_unread: false,
            waits: 0,
            trims: 0,
            needs_answer: false,
        }
    }

    /// Sets how many requests may be in flight: see [`CallMachine::set_window`].
    pub fn set_window(&mut self, requests: usize) {
        self.calls.set_window(requests);
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

    /// Returns the transport's end.
    pub fn port(&self) -> &P {
        &self.end.port
    }

    /// Returns the transport's end, mutably.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.end.port
    }

    /// Returns the number of requests that wait for an answer.
    pub fn in_flight(&self) -> usize {
        self.calls.in_flight()
    }

    /// Returns whether this request waits for its answer.
    pub fn is_waiting(&self, ticket: Ticket) -> bool {
        self.calls.is_waiting(ticket)
    }

    /// Returns the statistics of the lane that this end writes and of the one that it reads.
    pub fn lane_stats(&self) -> [LaneStats; 2] {
        [self.end.lanes.sent(), self.end.lanes.received()]
    }

    /// Returns how many answers to abandoned requests arrived since the last call, and resets the count.
    #[inline]
    pub fn take_dropped(&mut self) -> u64 {
        self.calls.take_dropped()
    }

    /// Returns how often this end had to wait, for an answer or for room: the waits that spinning ended, and those that
    /// slept.
    #[inline]
    pub fn waits(&self) -> u64 {
        self.waits
    }

    /// Returns how often this end slept.
    #[inline]
    pub fn parks(&self) -> u64 {
        self.parks
    }

    pub(super) fn check_open(&self) -> Result<(), CallFailed> {
        self.ended().map_or(Ok(()), Err)
    }

    /// Returns why nothing more can be sent; `None` while something can.
    pub fn ended(&self) -> Option<CallFailed> {
        self.ended_with(Executed::No)
    }

    /// Returns why no more answers arrive; `None` while some may. A request in flight may have run.
    pub fn ended_waiting(&self) -> Option<CallFailed> {
        self.ended_with(if self.in_flight() == 0 { Executed::No } else { Executed::Maybe })
    }

    fn ended_with(&self, executed: Executed) -> Option<CallFailed> {
        match self.end.state() {
            SessionState::Open => None,
            SessionState::Over(why) => Some(CallFailed::over(why, executed)),
            SessionState::Closing => Some(CallFailed::PeerGone(executed)),
        }
    }

    /// Sends a request and returns immediately: [`CallDriver::try_reply`] returns the answer.
    ///
    /// # Errors
    /// [`CallFailed`]; the handler will not run.
    pub fn submit<'a>(&mut self, payload: impl Into<Outgoing<'a>>) -> Result<Ticket, CallFailed> {
        let ticket = self.push(payload)?;
        self.commit();
        Ok(ticket)
    }

    /// Writes an unpublished request: [`CallDriver::commit`] publishes all of them together. A lane that is too small for
    /// it grows.
    ///
    /// # Errors
    /// [`CallFailed`]; the handler will not run.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "a result of several words is moved through memory otherwise"
    )]
    pub fn push<'a>(&mut self, payload: impl Into<Outgoing<'a>>) -> Result<Ticket, CallFailed> {
        let payload = payload.into();
        let is_observed = !payload.is_one_way() || self.end.observer.is_sampling();
        if is_observed {
            self.end.requesting();
        }
        let refused = if self.end.is_open() {
            let (lanes, own, peer) = self.end.parts();
            match self.calls.submit(lanes, own, peer, payload) {
                Ok(ticket) => {
                    if is_observed {
                        self.end.requested();
                    }
                    return Ok(ticket);
                }
                Err(error) => Some(error),
            }
        } else {
            None
        };
        self.push_slow(payload, refused)
    }

    /// Continues [`CallDriver::push`] where the lane did not take the request at once, or the session is no longer open: the
    /// lane grows, or the request is not sent.
    #[cold]
    fn push_slow(
        &mut self,
        payload: Outgoing<'_>,
        mut refused: Option<SubmitError>,
    ) -> Result<Ticket, CallFailed> {
        loop {
            match refused {
                Some(SubmitError::Push(PushError::Grow { to })) => self.grow(to)?,
                Some(error @ SubmitError::Push(PushError::Full { .. })) => {
                    match self.end.larger().map(|to| self.grow(to)) {
                        Some(Ok(())) => {}
                        Some(Err(failed @ CallFailed::Peer(_))) => return Err(failed),
                        // The request waits, as it would have without growth.
                        _ => return Err(self.unsent(error)),
                    }
                }
                Some(error) => return Err(self.unsent(error)),
                None => {}
            }
            self.check_open()?;
            let (lanes, own, peer) = self.end.parts();
            match self.calls.submit(lanes, own, peer, payload) {
                Ok(ticket) => {
                    self.end.requested();
                    return Ok(ticket);
                }
                Err(error) => refused = Some(error),
            }
        }
    }

    /// Sends a request in parts through a lane that need not hold all of it: for a caller that waits anyway, and
    /// requests too long for the caches. After [`PushError::Full`], continue with the same payload when there is
    /// room, or call [`CallDriver::abort_parts`].
    ///
    /// # Errors
    /// [`CallFailed`]; the handler will not run unless all of the request is sent.
    pub fn submit_in_parts<'a>(
        &mut self,
        payload: impl Into<Outgoing<'a>>,
    ) -> Result<Ticket, CallFailed> {
        let payload = payload.into();
        self.check_open()?;
        let allowed = self.end.lanes.allows(payload.bytes().len() as u64);
        allowed.map_err(|error| self.unsent(SubmitError::Push(error)))?;
        // The first part has already started the message.
        if !self.calls.is_sending() {
            self.end.requesting();
        }
        if let Some(wanted) = self.end.lanes.wanted_for_parts() {
            if self.end.growth() != Growth::Never {
                // Without memory for a larger lane, the request goes through the smaller one.
                let _ = self.grow(wanted);
            }
        }
        loop {
            self.check_open()?;
            let (lanes, own, peer) = self.end.parts();
            let pushed = self.calls.submit_part(lanes, own, peer, payload);
            let ticket = pushed.map_err(|error| self.unsent(error))?;
            if ticket.is_some() {
                self.end.requested();
            }
            self.commit();
            if let Some(ticket) = ticket {
                return Ok(ticket);
            }
        }
    }

    /// Gives up the request that is being sent in parts, if any: the handler will not run.
    pub fn abort_parts(&mut self) {
        self.calls.abort_parts();
    }

    /// Returns whether an answer is arriving in parts: the caller must pass the same buffer unchanged.
    pub fn is_arriving(&self) -> bool {
        self.calls.is_arriving()
    }

    /// Checks that a request of `bytes` can be attached now; call it before creating the memfd.
    ///
    /// # Errors
    /// [`CallFailed`] as for [`CallDriver::submit_attached`].
    pub fn can_attach(&mut self, bytes: u64) -> Result<(), CallFailed> {
        self.check_open()?;
        let can = self.end.lanes.can_attach(self.end.port.peer(), bytes);
        can.map_err(|error| self.unsent(SubmitError::Push(error)))
    }

    /// Sends a request of `bytes` in a memfd of its own. `pass` passes the memfd once there is room for its record.
    ///
    /// # Errors
    /// [`CallFailed`]; the handler will not run.
    pub fn submit_attached(
        &mut self,
        bytes: u64,
        one_way: bool,
        pass: impl FnOnce(&P, u64) -> Result<(), Shortage>,
    ) -> Result<Ticket, CallFailed> {
        self.check_open()?;
        self.end.requesting();
        let End { port, lanes, .. } = &mut self.end;
        let pass = |id| pass(port, id);
        let sent = self.calls.submit_attached(lanes, port.own(), port.peer(), bytes, one_way, pass);
        let ticket = sent.map_err(|error| self.unsent(error))?;
        self.end.requested();
        self.commit();
        Ok(ticket)
    }

    /// See [`End::commit`].
    #[inline]
    pub fn commit(&mut self) {
        self.end.commit();
    }

    /// Shrinks the own lane to its minimum and asks the peer to shrink its own: [`CallDriver::is_trimmed`] returns whether
    /// it has. Requests in flight are unaffected.
    ///
    /// # Errors
    /// [`CallFailed`]; the session remains usable unless it is over.
    pub fn trim(&mut self) -> Result<(), CallFailed> {
        self.check_open()?;
        self.end.shrink().map_err(|error| self.unresized(error))?;
        let (lanes, own, peer) = self.end.parts();
        let asked = self.calls.ask_to_trim(lanes, own, peer);
        asked.map_err(|error| self.unsent(error))?;
        self.trims = self.trims.saturating_add(1);
        self.commit();
        Ok(())
    }

    /// Returns whether the peer has answered every [`CallDriver::trim`].
    pub fn is_trimmed(&self) -> bool {
        self.trims == 0
    }

    fn grow(&mut self, to: Geometry) -> Result<(), CallFailed> {
        self.end.grow(to).map_err(|error| self.unresized(error))
    }

    fn unresized(&mut self, error: ResizeError) -> CallFailed {
        self.unsent(match error {
            ResizeError::Push(error) => SubmitError::Push(error),
            ResizeError::Short(shortage) => SubmitError::Short(shortage),
        })
    }

    fn unsent(&mut self, error: SubmitError) -> CallFailed {
        self.needs_answer = error == SubmitError::Window;
        match error {
            SubmitError::Push(PushError::Peer(fault)) => self.end.fail(fault).into(),
            SubmitError::Push(PushError::Full { missing }) => {
                self.end.observer.lane_full(missing);
                CallFailed::Submit(error)
            }
            error => CallFailed::Submit(error),
        }
    }

    /// Returns an answer, if one has arrived.
    ///
    /// # Errors
    /// [`CallFailed::Peer`] when the peer violates the protocol.
    pub fn try_reply(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Reply>, CallFailed> {
        self.has_unread = false;
        match self.end.state() {
            SessionState::Open | SessionState::Closing => {}
            SessionState::Over(EndReason::Fault(fault)) => return Err(fault.into()),
            SessionState::Over(_) => return Ok(None),
        }
        // Bound the records that are no answers: a peer that sends only those must not hold the caller up.
        for _ in 0..MAX_INCOMING {
            let (lanes, own, peer) = self.end.parts();
            let incoming = self.calls.next_reply(lanes, own, peer, buffer);
            // A caller that only receives sends nothing, so nothing else rings a peer that waits for room.
            if self.end.lanes.wake_check_due() {
                self.commit();
            }
            match incoming.map_err(|fault| self.end.fail(fault))? {
                Some(Incoming::Reply(reply)) => {
                    self.end.took(reply.ticket.id(), reply.len);
                    return Ok(Some(reply));
                }
                Some(Incoming::Switch(switch)) => {
                    self.end.follow(&switch).map_err(|error| match error {
                        FollowError::Peer(fault) => CallFailed::Peer(fault),
                        FollowError::Short(shortage) => CallFailed::Short(shortage),
                    })?;
                    self.commit();
                }
                Some(Incoming::Trimmed) => self.trims = self.trims.saturating_sub(1),
                Some(Incoming::Closed(reason)) => {
                    self.end.end(EndReason::Closed(reason));
                    return Ok(None);
                }
                None => {
                    self.has_unread = self.end.lanes.has_unread();
                    return Ok(None);
                }
            }
        }
        self.has_unread = true;
        Ok(None)
    }

    /// Requests a ring for the next answer and, with `room`, for room for a request that found the lane full: for an
    /// event loop that is about to sleep. Returns true if either is already there: do not sleep then.
    ///
    /// # Errors
    /// [`CallFailed::Peer`] when the peer violates the protocol.
    pub fn arm(&mut self, room: bool) -> Result<bool, CallFailed> {
        self.arm_with(room && !self.needs_answer)
    }

    fn arm_with(&mut self, space: bool) -> Result<bool, CallFailed> {
        let armed = self.end.arm(space)?;
        Ok(armed == Armed::Moved || self.has_unread || self.end.lanes.has_unread())
    }

    /// Waits for room for a request that found the lane full. First take answers with [`CallDriver::try_reply`] until
    /// there are none: a peer that is blocked on its answers takes no requests.
    ///
    /// # Errors
    /// [`CallFailed`]; the session is usable after [`CallFailed::Deadline`] and [`CallFailed::Cancelled`].
    pub fn wait_for_room(&mut self, until: &mut Deadline) -> Result<(), CallFailed> {
        let waited = self.wait(!self.needs_answer, until, Executed::No);
        self.end.observer.waited_for_room(waited.is_ok());
        waited
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    /// [`CallFailed`]; the session is usable after [`CallFailed::Deadline`] and [`CallFailed::Cancelled`], and the
    /// requests stay in flight: [`CallDriver::abandon`] those that you no longer need.
    pub fn wait_for_reply(
        &mut self,
        until: &mut Deadline,
        buffer: &mut Vec<u8>,
    ) -> Result<Reply, CallFailed> {
        loop {
            if let Some(reply) = self.try_reply(buffer)? {
                return Ok(reply);
            }
            if let SessionState::Over(why) = self.end.state() {
                return Err(CallFailed::over(why, Executed::Maybe));
            }
            self.wait(false, until, Executed::Maybe)?;
        }
    }

    /// Waits until the peer publishes something: call [`CallDriver::try_reply`] before and after.
    ///
    /// # Errors
    /// [`CallFailed`]; the session is usable after [`CallFailed::Deadline`] and [`CallFailed::Cancelled`].
    pub fn wait_for_data(&mut self, until: &mut Deadline) -> Result<(), CallFailed> {
        self.wait(false, until, Executed::No)
    }

    /// Abandons a request. Returns false when it was not in flight.
    pub fn abandon(&mut self, ticket: Ticket) -> bool {
        let (lanes, own, peer) = self.end.parts();
        let known = self.calls.abandon(lanes, own, peer, ticket);
        self.commit();
        known
    }

    /// Returns whether the handler may have run, now that the peer is gone.
    pub fn executed(&mut self, ticket: Ticket) -> Executed {
        let (lanes, _, peer) = self.end.parts();
        self.calls.executed(lanes, peer, ticket)
    }

    /// Gives up a request on a session that is over, and returns whether its handler may have run.
    pub fn give_up(&mut self, ticket: Ticket) -> Executed {
        let executed = match self.end.fault() {
            Some(_) => Executed::Maybe,
            None => self.executed(ticket),
        };
        self.calls.give_up(ticket);
        executed
    }

    /// See [`End::close`].
    pub fn close(&mut self, reason: CloseReason) {
        self.end.close(reason);
    }
}

impl CallFailed {
    /// Returns the error of a session that is over.
    fn over(why: EndReason, executed: Executed) -> Self {
        match why {
            EndReason::Fault(fault) => Self::Peer(fault),
            EndReason::Closed(reason) => Self::Closed(reason, executed),
            EndReason::Stalled => Self::Closed(CloseReason::Stalled, executed),
            EndReason::Gone => Self::PeerGone(executed),
        }
    }
}

impl From<PeerFault> for CallFailed {
    fn from(fault: PeerFault) -> Self {
        Self::Peer(fault)
    }
}
