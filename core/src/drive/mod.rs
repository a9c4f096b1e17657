//! The loops that block, generic over the port.

mod fast_path;
mod wait;

use alloc::vec::Vec;
use core::time::Duration;

use crate::call::{Arrival, CallMachine, Outgoing, Reply, SubmitError, Ticket};
use crate::lane::{Armed, Epoch, Growth, LaneStats, Lanes, PushError, Wake};
use crate::resize::{self, FollowError, ResizeError, Shortage};
use crate::sample::ClientTrace;
use crate::wire::CloseReason;
use crate::{
    Bell, Deadline, Executed, Geometry, Left, PeerFault, Port, Spin, SpinPolicy, StallDetector,
    probes,
};

/// Why a blocking call ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
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
    /// The peer's process ended, or the peer closed the session.
    #[error("the peer is gone; {0}")]
    PeerGone(Executed),
    /// The peer closed the session because this end took nothing from its lane for too long.
    #[error(
        "the peer closed the session, since this end left its records unread for too long; {0}"
    )]
    Unread(Executed),
    /// The peer violated the protocol; the session is poisoned.
    #[error("the session is poisoned: {0}")]
    Peer(PeerFault),
    /// This system lacks a resource to continue reading the peer's lane. Nothing is lost: try again.
    #[error("cannot follow the peer's lane: {0}")]
    Short(Shortage),
}

/// The calling end of a session: its state machines, its port, and the only loops that block.
#[derive(Debug)]
pub struct Drive<P: Port> {
    port: P,
    lanes: Lanes,
    calls: CallMachine,
    spin: Spin,
    /// The value of [`Lanes::exchanged`] before the last wait.
    exchanged: u64,
    /// Set by the first protocol violation; after it, nothing is read from the peer's memory.
    poisoned: Option<PeerFault>,
    gone: bool,
    rings: u64,
    parks: u64,
    /// How long the lane may be oversized before it shrinks.
    shrink_after: Duration,
    growth: Growth,
    /// Records were seen but not taken, because one poll takes a bounded number.
    unread: bool,
    /// How many waits this end began.
    waits: u32,
    /// Trim requests that the peer has not answered; it answers them in order.
    trims: u32,
    trace: ClientTrace,
}

/// Records other than answers that one poll handles.
const MOST_ARRIVALS: usize = 256;

/// Default time after which a lane that used less than a quarter of its ring shrinks.
pub const SHRINK_AFTER: Duration = Duration::from_secs(30);

impl<P: Port> Drive<P> {
    /// Creates a driver for a session over `port`, whose lanes are empty and open.
    pub fn new(port: P, lanes: Lanes, spin: SpinPolicy) -> Self {
        Self {
            port,
            lanes,
            calls: CallMachine::new(),
            spin: Spin::new(spin),
            exchanged: 0,
            poisoned: None,
            gone: false,
            rings: 0,
            parks: 0,
            shrink_after: SHRINK_AFTER,
            growth: Growth::default(),
            unread: false,
            waits: 0,
            trims: 0,
            trace: ClientTrace::nothing(),
        }
    }

    /// Sets the identity of the session for tracers.
    pub fn set_trace(&mut self, trace: ClientTrace) {
        self.trace = trace;
    }

    /// Returns the identity of the session for tracers.
    pub fn trace(&self) -> &ClientTrace {
        &self.trace
    }

    /// Sets how long the own lane may use less than a quarter of its ring before it shrinks, at the next send.
    /// Default: [`SHRINK_AFTER`].
    pub fn set_shrink_after(&mut self, span: Duration) {
        self.shrink_after = span;
    }

    /// Sets when the own lane grows because it is full. A message that does not fit makes it grow in any case.
    pub fn set_growth(&mut self, growth: Growth) {
        self.growth = growth;
    }

    /// Sets how many requests may be in flight: see [`CallMachine::set_window`].
    pub fn set_window(&mut self, requests: usize) {
        self.calls.set_window(requests);
    }

    /// Returns the transport's end.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// Returns the transport's end, mutably.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Returns the number of requests that wait for an answer.
    pub fn in_flight(&self) -> usize {
        self.calls.in_flight()
    }

    /// Returns whether this request waits for its answer.
    pub fn is_waiting(&self, ticket: Ticket) -> bool {
        self.calls.is_waiting(ticket)
    }

    /// Returns the longest request that both ends allow, in bytes.
    pub fn max_message(&self) -> u64 {
        self.lanes.max_message()
    }

    /// Returns the longest request that a lane carries, in bytes; a longer one is [attached](Drive::submit_attached).
    pub fn max_payload(&self) -> usize {
        self.lanes.max_payload()
    }

    /// Returns the epoch of the lane that this end writes.
    #[inline]
    pub fn lane_epoch(&self) -> Epoch {
        self.lanes.epoch()
    }

    /// Returns the statistics of the lane that this end writes and of the one that it reads.
    pub fn lane_stats(&self) -> [LaneStats; 2] {
        [self.lanes.sent(), self.lanes.received()]
    }

    /// Returns how often this end rang its peer with a system call.
    pub fn rings(&self) -> u64 {
        self.rings
    }

    /// Returns how many answers to abandoned requests arrived since the last call, and resets the count.
    #[inline]
    pub fn take_dropped(&mut self) -> u64 {
        self.calls.take_dropped()
    }

    /// Returns how often this end slept.
    #[inline]
    pub fn parks(&self) -> u64 {
        self.parks
    }

    /// Returns why the session is no longer usable; `None` while it is.
    pub fn ended(&self) -> Option<CallFailed> {
        if let Some(fault) = self.poisoned {
            return Some(CallFailed::Peer(fault));
        }
        (self.gone || self.calls.closed().is_some()).then(|| self.closed_by_peer(Executed::No))
    }

    /// Ends the session for a protocol violation that was found outside the lanes, for instance on the control
    /// socket.
    pub fn poison(&mut self, fault: PeerFault) {
        self.poisoned.get_or_insert(fault);
    }

    fn closed_by_peer(&self, executed: Executed) -> CallFailed {
        match self.calls.closed() {
            Some(CloseReason::Unread) => CallFailed::Unread(executed),
            _ => CallFailed::PeerGone(executed),
        }
    }

    /// Returns whether the peer has taken nothing for `limit` of what was published for it: see
    /// [`StallDetector::look`].
    ///
    /// # Errors
    /// [`CallFailed::Peer`] when the peer violates the protocol.
    pub fn check_stalled(
        &mut self,
        unread: &mut StallDetector,
        limit: Duration,
    ) -> Result<Left, CallFailed> {
        let (peer, now) = (self.port.peer(), self.port.now());
        let left = unread.look(&mut self.lanes, peer, now, limit);
        left.map_err(|fault| poison(&mut self.poisoned, fault))
    }

    /// Returns why the peer closed its lane, if it did.
    pub fn closed(&self) -> Option<CloseReason> {
        self.calls.closed()
    }

    /// Sends a request and returns immediately: [`Drive::try_reply`] returns the answer.
    ///
    /// # Errors
    /// [`CallFailed`]; the handler will not run.
    pub fn submit<'a>(&mut self, payload: impl Into<Outgoing<'a>>) -> Result<Ticket, CallFailed> {
        let ticket = self.push(payload)?;
        self.commit();
        Ok(ticket)
    }

    /// Writes an unpublished request: [`Drive::commit`] publishes all of them together. A lane that is too small for
    /// it grows.
    ///
    /// # Errors
    /// [`CallFailed`]; the handler will not run.
    pub fn push<'a>(&mut self, payload: impl Into<Outgoing<'a>>) -> Result<Ticket, CallFailed> {
        let payload = payload.into();
        self.trace.begin(|| self.port.now());
        loop {
            if let Some(ended) = self.ended() {
                return Err(ended);
            }
            let (own, peer) = (self.port.own(), self.port.peer());
            let error = match self.calls.submit(&mut self.lanes, own, peer, payload) {
                Ok(ticket) => {
                    self.trace.wrote(self.lanes.position());
                    return Ok(ticket);
                }
                Err(error) => error,
            };
            match error {
                SubmitError::Push(PushError::Grow { to }) => self.grow(to)?,
                SubmitError::Push(PushError::Full { .. }) => match self.larger() {
                    // Otherwise the request waits, as it would have without growth.
                    Some(to) if self.grow(to).is_ok() => {}
                    _ => return Err(self.unsent(error)),
                },
                error => return Err(self.unsent(error)),
            }
        }
    }

    /// Sends a request in parts through a lane that need not hold all of it: for a caller that waits anyway, and
    /// requests too long for the caches. After [`PushError::Full`], continue with the same payload when there is
    /// room, or call [`Drive::break_off`].
    ///
    /// # Errors
    /// [`CallFailed`]; the handler will not run unless all of the request is sent.
    pub fn submit_in_parts<'a>(
        &mut self,
        payload: impl Into<Outgoing<'a>>,
    ) -> Result<Ticket, CallFailed> {
        let payload = payload.into();
        if let Some(ended) = self.ended() {
            return Err(ended);
        }
        let allowed = self.lanes.allows(payload.len() as u64);
        allowed.map_err(|error| self.unsent(SubmitError::Push(error)))?;
        // The first part has already started the message.
        if !self.calls.is_sending() {
            self.trace.begin(|| self.port.now());
        }
        if let Some(wanted) = self.lanes.wanted_for_parts()
            && self.growth != Growth::Never
        {
            // Without memory for a larger lane, the request goes through the smaller one.
            let _ = self.grow(wanted);
        }
        loop {
            if let Some(ended) = self.ended() {
                return Err(ended);
            }
            let (own, peer) = (self.port.own(), self.port.peer());
            let pushed = self.calls.submit_part(&mut self.lanes, own, peer, payload);
            let ticket = pushed.map_err(|error| self.unsent(error))?;
            if ticket.is_some() {
                self.trace.wrote(self.lanes.position());
            }
            self.commit();
            if let Some(ticket) = ticket {
                return Ok(ticket);
            }
        }
    }

    /// Gives up the request that is being sent in parts, if any: the handler will not run.
    pub fn break_off(&mut self) {
        self.calls.break_off();
    }

    /// Returns whether an answer is arriving in parts: the caller must pass the same buffer unchanged.
    pub fn is_arriving(&self) -> bool {
        self.calls.is_arriving()
    }

    /// Checks that a request of `bytes` can be attached now; call it before creating the memfd.
    ///
    /// # Errors
    /// [`CallFailed`] as for [`Drive::submit_attached`].
    pub fn can_attach(&mut self, bytes: u64) -> Result<(), CallFailed> {
        if let Some(ended) = self.ended() {
            return Err(ended);
        }
        let can = self.lanes.can_attach(self.port.peer(), bytes);
        can.map_err(|error| self.unsent(SubmitError::Push(error)))
    }

    /// Sends a request of `bytes` in a memfd of its own. `pass` passes the memfd once there is room for its record.
    ///
    /// # Errors
    /// [`CallFailed`]; the handler will not run.
    pub fn submit_attached(
        &mut self,
        bytes: u64,
        pass: impl FnOnce(&P, u64) -> Result<(), Shortage>,
    ) -> Result<Ticket, CallFailed> {
        if let Some(ended) = self.ended() {
            return Err(ended);
        }
        self.trace.begin(|| self.port.now());
        let (own, peer) = (self.port.own(), self.port.peer());
        let pass = |id| pass(&self.port, id);
        let sent = self.calls.submit_attached(&mut self.lanes, own, peer, bytes, pass);
        let ticket = sent.map_err(|error| self.unsent(error))?;
        self.trace.wrote(self.lanes.position());
        self.commit();
        Ok(ticket)
    }

    /// Sends a request without waking the peer, which takes it when something else wakes it. The next send, or
    /// [`Drive::commit`], wakes the peer for both. Returns `None` when there is no room for it now.
    pub fn submit_no_wake(&mut self, payload: &[u8]) -> Option<Ticket> {
        if self.ended().is_some() {
            return None;
        }
        let (own, peer) = (self.port.own(), self.port.peer());
        let ticket = self.calls.submit(&mut self.lanes, own, peer, payload).ok()?;
        self.lanes.show(own);
        Some(ticket)
    }

    /// Publishes the pushed records and rings the peer if it asked for it.
    #[inline]
    pub fn commit(&mut self) {
        self.publish();
        if self.lanes.take_maintenance() && self.maintenance() {
            self.trace_resized();
            self.publish();
        }
    }

    #[cold]
    fn maintenance(&mut self) -> bool {
        let (port, lanes) = (&mut self.port, &mut self.lanes);
        if self.growth != Growth::Never {
            return resize::maintain(port, lanes, self.shrink_after);
        }
        // Offer no epoch that will not be used.
        lanes.is_grown() && resize::shrink_idle(port, lanes, port.now(), self.shrink_after)
    }

    /// Returns the size to grow the lane to instead of waiting for room.
    fn larger(&self) -> Option<Geometry> {
        match self.growth {
            Growth::Never => None,
            Growth::Often => self.lanes.should_grow(),
            Growth::AtOnce => self.lanes.next_size(),
        }
    }

    /// Shrinks the own lane to its minimum and asks the peer to shrink its own: [`Drive::is_trimmed`] returns whether
    /// it has. Requests in flight are unaffected.
    ///
    /// # Errors
    /// [`CallFailed`]; the session remains usable unless it is over.
    pub fn trim(&mut self) -> Result<(), CallFailed> {
        if let Some(ended) = self.ended() {
            return Err(ended);
        }
        let shrunk = resize::shrink(&mut self.port, &mut self.lanes);
        self.trace_resized();
        shrunk.map_err(|error| self.unresized(error))?;
        let (own, peer) = (self.port.own(), self.port.peer());
        let asked = self.calls.ask_to_trim(&mut self.lanes, own, peer);
        asked.map_err(|error| self.unsent(error))?;
        self.trims = self.trims.saturating_add(1);
        self.commit();
        Ok(())
    }

    /// Returns whether the peer has answered every [`Drive::trim`].
    pub fn is_trimmed(&self) -> bool {
        self.trims == 0
    }

    #[inline]
    fn publish(&mut self) {
        self.trace.publish(self.port.own(), || self.port.now());
        let wake = self.lanes.commit(self.port.own(), self.port.peer());
        self.rings += ring(&self.port, &self.trace, wake);
    }

    #[cold]
    fn grow(&mut self, to: Geometry) -> Result<(), CallFailed> {
        let grown = resize::grow(&mut self.port, &mut self.lanes, to);
        self.trace_resized();
        grown.map_err(|error| self.unresized(error))
    }

    /// Traces the epoch that this end now writes.
    fn trace_resized(&self) {
        let epoch = self.lanes.epoch();
        probes::lane_resized(self.trace.session(), 1, epoch.number, epoch.size.size());
    }

    fn unresized(&mut self, error: ResizeError) -> CallFailed {
        self.unsent(match error {
            ResizeError::Push(error) => SubmitError::Push(error),
            ResizeError::Short(shortage) => SubmitError::Short(shortage),
        })
    }

    fn unsent(&mut self, error: SubmitError) -> CallFailed {
        match error {
            SubmitError::Push(PushError::Peer(fault)) => poison(&mut self.poisoned, fault),
            SubmitError::Push(PushError::Full { missing }) => {
                probes::lane_full(self.trace.session(), missing);
                CallFailed::Submit(error)
            }
            SubmitError::Closed => self.closed_by_peer(Executed::No),
            error => CallFailed::Submit(error),
        }
    }

    /// Returns an answer, if one has arrived.
    ///
    /// # Errors
    /// [`CallFailed::Peer`] when the peer violates the protocol.
    pub fn try_reply(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Reply>, CallFailed> {
        if let Some(fault) = self.poisoned {
            return Err(CallFailed::Peer(fault));
        }
        self.unread = false;
        // Bound the records that are no answers: a peer that sends only those must not hold the caller up.
        for _ in 0..MOST_ARRIVALS {
            let (own, peer) = (self.port.own(), self.port.peer());
            let arrival = self.calls.next_reply(&mut self.lanes, own, peer, buffer);
            // A caller that only receives sends nothing, so nothing else rings a peer that waits for room.
            if self.lanes.wake_check_due() {
                self.commit();
            }
            match arrival.map_err(|fault| poison(&mut self.poisoned, fault))? {
                Some(Arrival::Reply(reply)) => {
                    let end = || self.lanes.received().bytes;
                    let now = || self.port.now();
                    self.trace.took(self.port.peer(), reply.ticket.id(), reply.len, end, now);
                    return Ok(Some(reply));
                }
                Some(Arrival::Switch(switch)) => {
                    let followed = resize::follow(&mut self.port, &mut self.lanes, &switch);
                    followed.map_err(|error| match error {
                        FollowError::Lied(fault) => poison(&mut self.poisoned, fault),
                        FollowError::Short(shortage) => CallFailed::Short(shortage),
                    })?;
                    let peer = self.lanes.received();
                    probes::lane_resized(self.trace.session(), 2, peer.epoch, peer.size);
                    self.commit();
                }
                Some(Arrival::Trimmed) => self.trims = self.trims.saturating_sub(1),
                None => {
                    self.unread = self.calls.closed().is_none() && self.lanes.has_untaken();
                    return Ok(None);
                }
            }
        }
        self.unread = true;
        Ok(None)
    }

    /// Requests a ring for the next answer and, with `room`, for room for a request that found the lane full: for an
    /// event loop that is about to sleep. Returns true if either is already there: do not sleep then.
    ///
    /// # Errors
    /// [`CallFailed::Peer`] when the peer violates the protocol.
    pub fn arm(&mut self, room: bool) -> Result<bool, CallFailed> {
        // At the limit of requests in flight, only an answer makes room.
        let space = room && !self.calls.is_at_limit();
        let armed = self.lanes.arm(self.port.own(), self.port.peer(), space);
        let (armed, wake) = armed.map_err(|fault| poison(&mut self.poisoned, fault))?;
        self.rings += ring(&self.port, &self.trace, wake);
        Ok(armed == Armed::Moved || self.unread || self.lanes.has_untaken())
    }

    /// Waits for room for a request that found the lane full. First take answers with [`Drive::try_reply`] until
    /// there are none: a peer that is blocked on its answers takes no requests.
    ///
    /// # Errors
    /// [`CallFailed`]; the session is usable after [`CallFailed::Deadline`] and [`CallFailed::Cancelled`].
    pub fn wait_for_room(&mut self, until: &mut Deadline) -> Result<(), CallFailed> {
        // At the limit of requests in flight, only an answer makes room, however empty the lane is.
        let space = !self.calls.is_at_limit();
        let waited = self.wait(space, until, Executed::No);
        self.trace.waited_for_room(waited.is_ok());
        waited
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    /// [`CallFailed`]; the session is usable after [`CallFailed::Deadline`] and [`CallFailed::Cancelled`], and the
    /// requests stay in flight: [`Drive::abandon`] those that you no longer need.
    pub fn wait_for_reply(
        &mut self,
        until: &mut Deadline,
        buffer: &mut Vec<u8>,
    ) -> Result<Reply, CallFailed> {
        loop {
            if let Some(reply) = self.try_reply(buffer)? {
                return Ok(reply);
            }
            if self.calls.closed().is_some() {
                return Err(self.closed_by_peer(Executed::Maybe));
            }
            self.wait(false, until, Executed::Maybe)?;
        }
    }

    /// Waits until the peer publishes something: call [`Drive::try_reply`] before and after.
    ///
    /// # Errors
    /// [`CallFailed`]; the session is usable after [`CallFailed::Deadline`] and [`CallFailed::Cancelled`].
    pub fn wait_for_data(&mut self, until: &mut Deadline) -> Result<(), CallFailed> {
        self.wait(false, until, Executed::No)
    }

    /// Abandons a request. Returns false when it was not in flight.
    pub fn abandon(&mut self, ticket: Ticket) -> bool {
        let (own, peer) = (self.port.own(), self.port.peer());
        let known = self.calls.abandon(&mut self.lanes, own, peer, ticket);
        self.commit();
        known
    }

    /// Returns whether the handler may have run, now that the peer is gone.
    pub fn executed(&mut self, ticket: Ticket) -> Executed {
        self.calls.executed(&mut self.lanes, self.port.peer(), ticket)
    }

    /// Gives up a request on a session that is over, and returns whether its handler may have run.
    pub fn give_up(&mut self, ticket: Ticket) -> Executed {
        let executed = match self.poisoned {
            Some(_) => Executed::Maybe,
            None => self.executed(ticket),
        };
        self.calls.give_up(ticket);
        executed
    }

    /// Closes the session: the peer sees it immediately, whatever it waits for.
    pub fn close(&mut self, reason: CloseReason) {
        let wake = self.lanes.close(self.port.own(), self.port.peer(), reason);
        self.rings += ring(&self.port, &self.trace, wake);
    }
}

fn poison(poisoned: &mut Option<PeerFault>, fault: PeerFault) -> CallFailed {
    *poisoned = Some(fault);
    CallFailed::Peer(fault)
}

/// Rings the requested doorbells and returns how many it rang.
#[inline]
fn ring<P: Port>(port: &P, trace: &ClientTrace, wake: Wake) -> u64 {
    if wake == Wake::default() { 0 } else { ring_out(port, trace, wake) }
}

#[cold]
fn ring_out<P: Port>(port: &P, trace: &ClientTrace, wake: Wake) -> u64 {
    if wake.data {
        probes::ring(trace.session(), Bell::Data.number());
        port.ring(Bell::Data);
    }
    if wake.space {
        probes::ring(trace.session(), Bell::Space.number());
        port.ring(Bell::Space);
    }
    u64::from(wake.data) + u64::from(wake.space)
}
