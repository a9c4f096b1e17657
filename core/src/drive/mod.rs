//! The loops that block, over any port.

mod at_once;
mod wait;

use alloc::vec::Vec;
use core::time::Duration;

use crate::call::{Arrival, CallMachine, Outgoing, Reply, SubmitError, Ticket};
use crate::lane::{Armed, Epoch, Growth, LaneStats, Lanes, PushError, Wake};
use crate::resize::{self, FollowError, ResizeError, Shortage};
use crate::sample::Asking;
use crate::wire::CloseReason;
use crate::{
    Bell, Deadline, Executed, Geometry, Left, PeerFault, Port, Spin, SpinPolicy, Unread, probes,
};

/// Why a blocking call ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallFailed {
    /// It was not sent; the session is usable.
    #[error(transparent)]
    Submit(SubmitError),
    /// The time was over.
    #[error("the deadline passed; {0}")]
    Deadline(Executed),
    /// Another thread cancelled.
    #[error("the call was cancelled; {0}")]
    Cancelled(Executed),
    /// The peer's process ended, or it closed the session.
    #[error("the peer is gone; {0}")]
    PeerGone(Executed),
    /// The peer closed the session: this end took nothing for too long of what was written for it.
    #[error(
        "the peer closed the session, since this end left its records unread for too long; {0}"
    )]
    Unread(Executed),
    /// The peer lied; the session is poisoned.
    #[error("the session is poisoned: {0}")]
    Peer(PeerFault),
    /// This system lacks what it takes to go on reading the peer's lane, for now. Nothing is lost: look again.
    #[error("cannot follow the peer's lane: {0}")]
    Short(Shortage),
}

/// The calling end of a session: its machines and its port, and the only loops that block.
#[derive(Debug)]
pub struct Drive<P: Port> {
    port: P,
    lanes: Lanes,
    calls: CallMachine,
    spin: Spin,
    /// What [`Lanes::exchanged`] said before the last wait.
    exchanged: u64,
    /// Set by the first lie; nothing is read from the peer's memory after it.
    poisoned: Option<PeerFault>,
    gone: bool,
    rings: u64,
    parks: u64,
    /// How long a lane may be much too large.
    shrink_after: Duration,
    growth: Growth,
    /// There are records that were seen and not taken: the last look took as many as one look takes.
    unread: bool,
    /// How often this end began to wait.
    waits: u32,
    /// Requests to trim that the peer has not answered; it answers them in their order.
    trims: u32,
    trace: Asking,
}

/// Switches and the like that one look takes.
const MOST_ARRIVALS: usize = 256;

/// After this long, a lane that used less than a quarter of its ring becomes small again, unless told otherwise.
pub const SHRINK_AFTER: Duration = Duration::from_secs(30);

impl<P: Port> Drive<P> {
    /// Drives a session over `port`, whose lanes are empty and open.
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
            trace: Asking::nothing(),
        }
    }

    /// Tells who the session is, for a tracer.
    pub fn set_trace(&mut self, trace: Asking) {
        self.trace = trace;
    }

    /// Who the session is, for a tracer.
    pub fn trace(&self) -> &Asking {
        &self.trace
    }

    /// Sets how long the own lane may use less than a quarter of its ring before it becomes small again, at the
    /// next send. Default: [`SHRINK_AFTER`].
    pub fn set_shrink_after(&mut self, span: Duration) {
        self.shrink_after = span;
    }

    /// Sets whether the own lane becomes larger because it is full. A message that does not fit it makes it grow in
    /// any case.
    pub fn set_growth(&mut self, growth: Growth) {
        self.growth = growth;
    }

    /// Sets how many requests may be in flight: see [`CallMachine::set_window`].
    pub fn set_window(&mut self, requests: usize) {
        self.calls.set_window(requests);
    }

    /// The transport's end.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The transport's end, mutably.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Requests that wait for an answer.
    pub fn in_flight(&self) -> usize {
        self.calls.in_flight()
    }

    /// Whether this request waits for its answer.
    pub fn is_waiting(&self, ticket: Ticket) -> bool {
        self.calls.is_waiting(ticket)
    }

    /// The longest request that both ends allow, in bytes.
    pub fn max_message(&self) -> u64 {
        self.lanes.max_message()
    }

    /// The longest request that a lane carries, in bytes; a longer one is [attached](Drive::submit_attached).
    pub fn max_payload(&self) -> usize {
        self.lanes.max_payload()
    }

    /// The epoch of the lane that this end writes.
    #[inline]
    pub fn lane_epoch(&self) -> Epoch {
        self.lanes.epoch()
    }

    /// The lane that this end writes, and the one that it reads.
    pub fn lane_stats(&self) -> [LaneStats; 2] {
        [self.lanes.sent(), self.lanes.received()]
    }

    /// How often this end rang its peer, and made a system call for it.
    pub fn rings(&self) -> u64 {
        self.rings
    }

    /// How many answers came to requests that were given up, since this was asked last.
    #[inline]
    pub fn take_dropped(&mut self) -> u64 {
        self.calls.take_dropped()
    }

    /// How often this end slept.
    #[inline]
    pub fn parks(&self) -> u64 {
        self.parks
    }

    /// Why the session cannot be used any more; `None` while it can.
    pub fn ended(&self) -> Option<CallFailed> {
        if let Some(fault) = self.poisoned {
            return Some(CallFailed::Peer(fault));
        }
        (self.gone || self.calls.closed().is_some()).then(|| self.closed_by_peer(Executed::No))
    }

    /// Ends the session for a lie that was found outside the lanes, for instance on the control socket.
    pub fn poison(&mut self, fault: PeerFault) {
        self.poisoned.get_or_insert(fault);
    }

    fn closed_by_peer(&self, executed: Executed) -> CallFailed {
        match self.calls.closed() {
            Some(CloseReason::Unread) => CallFailed::Unread(executed),
            _ => CallFailed::PeerGone(executed),
        }
    }

    /// Looks whether the peer has taken nothing for `limit` of what was published for it: see [`Unread::look`].
    ///
    /// # Errors
    /// [`CallFailed::Peer`] when the peer lies.
    pub fn look_unread(
        &mut self,
        unread: &mut Unread,
        limit: Duration,
    ) -> Result<Left, CallFailed> {
        let (peer, now) = (self.port.peer(), self.port.now());
        let left = unread.look(&mut self.lanes, peer, now, limit);
        left.map_err(|fault| poison(&mut self.poisoned, fault))
    }

    /// Why the peer closed, when it said bye.
    pub fn closed(&self) -> Option<CloseReason> {
        self.calls.closed()
    }

    /// Sends a request now and returns: the answer comes by [`Drive::try_reply`].
    ///
    /// # Errors
    /// [`CallFailed`]; the handler will not run.
    pub fn submit<'a>(&mut self, payload: impl Into<Outgoing<'a>>) -> Result<Ticket, CallFailed> {
        let ticket = self.push(payload)?;
        self.commit();
        Ok(ticket)
    }

    /// Writes a request without publishing it: [`Drive::commit`] publishes all of them at once. A lane that is too
    /// small for it grows.
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
                    // Else it waits, as it would have without.
                    Some(to) if self.grow(to).is_ok() => {}
                    _ => return Err(self.unsent(error)),
                },
                error => return Err(self.unsent(error)),
            }
        }
    }

    /// Sends a request in parts, through a lane that need not hold it: for requests that are longer than is good for
    /// the caches, when the caller waits anyway. After [`PushError::Full`] go on with the same payload when there is
    /// room, or [`Drive::break_off`].
    ///
    /// # Errors
    /// [`CallFailed`]; the handler will not run unless the request is sent to its end.
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
        // The message that goes on was begun with its first part.
        if !self.calls.is_sending() {
            self.trace.begin(|| self.port.now());
        }
        if let Some(wanted) = self.lanes.wanted_for_parts()
            && self.growth != Growth::Never
        {
            // It goes through a smaller lane too, if there is no memory for a larger one.
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

    /// Gives up the request that is being sent in parts, if there is one: the handler will not run.
    pub fn break_off(&mut self) {
        self.calls.break_off();
    }

    /// Whether an answer is arriving in parts: the buffer that was given must stay as it is.
    pub fn is_arriving(&self) -> bool {
        self.calls.is_arriving()
    }

    /// Checks that a request of `bytes` can be sent in a memfd of its own now: before one is made.
    ///
    /// # Errors
    /// [`CallFailed`] as of [`Drive::submit_attached`].
    pub fn can_attach(&mut self, bytes: u64) -> Result<(), CallFailed> {
        if let Some(ended) = self.ended() {
            return Err(ended);
        }
        let can = self.lanes.can_attach(self.port.peer(), bytes);
        can.map_err(|error| self.unsent(SubmitError::Push(error)))
    }

    /// Sends a request of `bytes` in a memfd of its own, which `pass` passes when there is room for its record.
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

    /// Sends a request that the peer need not be woken for: it takes it when it is awake for something else. Whatever is
    /// sent after it, and [`Drive::commit`], wakes the peer for both. `None` when there is no room for it now.
    pub fn submit_unhurried(&mut self, payload: &[u8]) -> Option<Ticket> {
        if self.ended().is_some() {
            return None;
        }
        let (own, peer) = (self.port.own(), self.port.peer());
        let ticket = self.calls.submit(&mut self.lanes, own, peer, payload).ok()?;
        self.lanes.show(own);
        Some(ticket)
    }

    /// Publishes what was pushed and rings the peer if it asked for it.
    #[inline]
    pub fn commit(&mut self) {
        self.publish();
        if self.lanes.take_chores() && self.chores() {
            self.tell_resized();
            self.publish();
        }
    }

    #[cold]
    fn chores(&mut self) -> bool {
        let (port, lanes) = (&mut self.port, &mut self.lanes);
        if self.growth != Growth::Never {
            return resize::chores(port, lanes, self.shrink_after);
        }
        // No epoch is offered that nobody will use.
        lanes.is_grown() && resize::shrink_idle(port, lanes, port.now(), self.shrink_after)
    }

    /// The size that the lane should have instead of waiting for room.
    fn larger(&self) -> Option<Geometry> {
        match self.growth {
            Growth::Never => None,
            Growth::Often => self.lanes.should_grow(),
            Growth::AtOnce => self.lanes.next_size(),
        }
    }

    /// Makes the own lane as small as it ever gets, and asks the peer to do the same with its own:
    /// [`Drive::is_trimmed`] says when it has. What is in flight stays so.
    ///
    /// # Errors
    /// [`CallFailed`]; the session is usable unless it is over.
    pub fn trim(&mut self) -> Result<(), CallFailed> {
        if let Some(ended) = self.ended() {
            return Err(ended);
        }
        let shrunk = resize::shrink(&mut self.port, &mut self.lanes);
        self.tell_resized();
        shrunk.map_err(|error| self.unresized(error))?;
        let (own, peer) = (self.port.own(), self.port.peer());
        let asked = self.calls.ask_to_trim(&mut self.lanes, own, peer);
        asked.map_err(|error| self.unsent(error))?;
        self.trims = self.trims.saturating_add(1);
        self.commit();
        Ok(())
    }

    /// Whether the peer has answered every [`Drive::trim`].
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
        self.tell_resized();
        grown.map_err(|error| self.unresized(error))
    }

    /// Tells a tracer which epoch of the own lane this end writes now.
    fn tell_resized(&self) {
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

    /// An answer, if one has arrived.
    ///
    /// # Errors
    /// [`CallFailed::Peer`] when the peer lies.
    pub fn try_reply(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Reply>, CallFailed> {
        if let Some(fault) = self.poisoned {
            return Err(CallFailed::Peer(fault));
        }
        self.unread = false;
        // What is no answer is bounded: a peer that sends nothing else holds nobody up.
        for _ in 0..MOST_ARRIVALS {
            let (own, peer) = (self.port.own(), self.port.peer());
            let arrival = self.calls.next_reply(&mut self.lanes, own, peer, buffer);
            // A caller that only takes answers sends nothing: a peer that waits for room would not be rung.
            if self.lanes.owes_a_look() {
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

    /// Asks to be rung for the next answer, and, with `room`, when there is room for a request that met a full lane: for
    /// an event loop that is about to sleep. True when there is some already: do not sleep.
    ///
    /// # Errors
    /// [`CallFailed::Peer`] when the peer lies.
    pub fn arm(&mut self, room: bool) -> Result<bool, CallFailed> {
        // With too many requests in flight it is an answer that makes room.
        let space = room && !self.calls.is_at_limit();
        let armed = self.lanes.arm(self.port.own(), self.port.peer(), space);
        let (armed, wake) = armed.map_err(|fault| poison(&mut self.poisoned, fault))?;
        self.rings += ring(&self.port, &self.trace, wake);
        Ok(armed == Armed::Moved || self.unread || self.lanes.has_untaken())
    }

    /// Waits for room for a request that met a full lane. Take answers by [`Drive::try_reply`] until there are
    /// none first: a peer that cannot answer because nobody reads takes no requests either.
    ///
    /// # Errors
    /// [`CallFailed`]; the session is usable after [`CallFailed::Deadline`] and [`CallFailed::Cancelled`].
    pub fn wait_for_room(&mut self, until: &mut Deadline) -> Result<(), CallFailed> {
        // With too many requests in flight it is an answer that makes room, however empty the lane is.
        let space = !self.calls.is_at_limit();
        let waited = self.wait(space, until, Executed::No);
        self.trace.waited_for_room(waited.is_ok());
        waited
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    /// [`CallFailed`]; the session is usable after [`CallFailed::Deadline`] and [`CallFailed::Cancelled`],
    /// and the requests stay in flight: [`Drive::abandon`] those that nobody wants.
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

    /// Waits until the peer publishes something: look by [`Drive::try_reply`] before and after.
    ///
    /// # Errors
    /// [`CallFailed`]; the session is usable after [`CallFailed::Deadline`] and [`CallFailed::Cancelled`].
    pub fn wait_for_data(&mut self, until: &mut Deadline) -> Result<(), CallFailed> {
        self.wait(false, until, Executed::No)
    }

    /// Forgets a request. False when it was not in flight.
    pub fn abandon(&mut self, ticket: Ticket) -> bool {
        let (own, peer) = (self.port.own(), self.port.peer());
        let known = self.calls.abandon(&mut self.lanes, own, peer, ticket);
        self.commit();
        known
    }

    /// Whether the handler may have run, now that the peer is gone.
    pub fn executed(&mut self, ticket: Ticket) -> Executed {
        self.calls.executed(&mut self.lanes, self.port.peer(), ticket)
    }

    /// Gives a request up on a session that is over, and says whether its handler may have run.
    pub fn give_up(&mut self, ticket: Ticket) -> Executed {
        let executed = match self.poisoned {
            Some(_) => Executed::Maybe,
            None => self.executed(ticket),
        };
        self.calls.give_up(ticket);
        executed
    }

    /// Says bye: the peer sees it at once, whatever it waits for.
    pub fn close(&mut self, reason: CloseReason) {
        let wake = self.lanes.close(self.port.own(), self.port.peer(), reason);
        self.rings += ring(&self.port, &self.trace, wake);
    }
}

fn poison(poisoned: &mut Option<PeerFault>, fault: PeerFault) -> CallFailed {
    *poisoned = Some(fault);
    CallFailed::Peer(fault)
}

/// How many bells it rang.
#[inline]
fn ring<P: Port>(port: &P, trace: &Asking, wake: Wake) -> u64 {
    if wake == Wake::default() { 0 } else { ring_out(port, trace, wake) }
}

#[cold]
fn ring_out<P: Port>(port: &P, trace: &Asking, wake: Wake) -> u64 {
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
