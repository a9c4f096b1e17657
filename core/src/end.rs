//! One end of a session: its port, its lanes, and how far the session got.

use core::time::Duration;

use crate::lane::{Armed, Growth, Lanes, PushError, Record, Wake};
use crate::resize::{self, FollowError, ResizeError};
use crate::wire::CloseReason;
use crate::{Bell, Geometry, Instant, Observer, PeerFault, Port, StallDetector, StallStatus};

/// Default time after which a lane that used less than a quarter of its ring shrinks.
pub const SHRINK_AFTER: Duration = Duration::from_secs(30);

/// How far a session got, as one end sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionState {
    /// Both ends use it.
    #[default]
    Open,
    /// The peer is gone. What it published before is still taken.
    Closing,
    /// It is over: nothing more is taken.
    Over(EndReason),
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The peer closed it, for this reason.
    Closed(CloseReason),
    /// The peer's process ended.
    Gone,
    /// The peer took nothing for too long.
    Stalled,
    /// The peer violated the protocol. Nothing is read from its memory any more.
    Fault(PeerFault),
}

impl From<PeerFault> for EndReason {
    fn from(fault: PeerFault) -> Self {
        Self::Fault(fault)
    }
}

/// One end of a session. [`CallDriver`](crate::drive::CallDriver) and [`ServeDriver`](crate::drive::ServeDriver) add
/// what requests and answers need.
#[derive(Debug)]
pub struct End<P, O = ()> {
    pub(crate) port: P,
    pub(crate) lanes: Lanes,
    pub(crate) observer: O,
    state: SessionState,
    stall: StallDetector,
    rings: u64,
    growth: Growth,
    shrink_after: Duration,
}

impl<P: Port, O: Observer> End<P, O> {
    /// Creates an end over `port`, whose lanes are empty and open.
    pub fn new(port: P, lanes: Lanes, observer: O) -> Self {
        Self {
            port,
            lanes,
            observer,
            state: SessionState::Open,
            stall: StallDetector::default(),
            rings: 0,
            growth: Growth::default(),
            shrink_after: SHRINK_AFTER,
        }
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

    /// Returns when the own lane grows because it is full.
    pub fn growth(&self) -> Growth {
        self.growth
    }

    /// Returns the transport's end.
    #[inline]
    pub fn port(&self) -> &P {
        &self.port
    }

    /// Returns the transport's end, mutably.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Returns the port, to close it.
    pub fn into_port(self) -> P {
        self.port
    }

    /// Returns the lanes.
    #[inline]
    pub fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// Returns what a state machine needs: the lanes, this end's memory and the peer's.
    #[inline]
    pub fn parts(&mut self) -> (&mut Lanes, &P::Own, &P::Peer) {
        (&mut self.lanes, self.port.own(), self.port.peer())
    }

    /// Returns the observer.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// Returns how far the session got.
    #[inline]
    pub fn state(&self) -> SessionState {
        self.state
    }

    /// Returns whether both ends use the session.
    #[inline]
    pub fn is_open(&self) -> bool {
        matches!(self.state, SessionState::Open)
    }

    /// Returns how often this end rang its peer with a system call.
    #[inline]
    pub fn rings(&self) -> u64 {
        self.rings
    }

    /// Returns whether the session is over: nothing more is taken.
    #[inline]
    pub fn is_over(&self) -> bool {
        matches!(self.state, SessionState::Over(_))
    }

    /// Returns why the peer closed the session, if it did.
    pub fn closed(&self) -> Option<CloseReason> {
        match self.state {
            SessionState::Over(EndReason::Closed(reason)) => Some(reason),
            _ => None,
        }
    }

    /// Ends the session. The first reason counts, but a violation counts more.
    pub fn end(&mut self, why: EndReason) {
        if !self.is_over() || (matches!(why, EndReason::Fault(_)) && self.fault().is_none()) {
            self.state = SessionState::Over(why);
        }
    }

    /// Ends the session for a protocol violation, which may be found outside the lanes, for instance on the control
    /// socket. Returns the fault.
    pub fn fail(&mut self, fault: PeerFault) -> PeerFault {
        self.end(fault.into());
        fault
    }

    /// Notes that the peer is gone. Returns true the first time.
    pub fn peer_gone(&mut self) -> bool {
        self.state = match self.state {
            SessionState::Open => SessionState::Closing,
            // It closed the session before it left.
            SessionState::Over(EndReason::Closed(_)) => SessionState::Over(EndReason::Gone),
            SessionState::Closing | SessionState::Over(_) => return false,
        };
        true
    }

    /// Returns whether the peer is gone.
    #[inline]
    pub fn is_departed(&self) -> bool {
        matches!(self.state, SessionState::Closing | SessionState::Over(EndReason::Gone))
    }

    /// Returns the peer's fault, if it violated the protocol.
    #[inline]
    pub fn fault(&self) -> Option<PeerFault> {
        match self.state {
            SessionState::Over(EndReason::Fault(fault)) => Some(fault),
            _ => None,
        }
    }

    /// Publishes the pushed records, returns the space of consumed ones, and rings the peer if it asked for it. Then
    /// does maintenance that is due: see [`resize::maintain`].
    #[inline]
    pub fn commit(&mut self) {
        self.commit_and(|_| {});
    }

    /// Like [`End::commit`]; calls `then` after each publication, before the peer is rung.
    #[inline]
    pub fn commit_and(&mut self, then: impl Fn(&P::Own)) {
        self.publish(&then);
        if self.lanes.take_maintenance() && self.maintain() {
            self.publish(&then);
        }
    }

    #[inline]
    fn publish(&mut self, then: &impl Fn(&P::Own)) {
        let Self { port, lanes, observer, .. } = self;
        observer.publishing(port.own(), || port.now());
        let wake = lanes.commit(port.own(), port.peer());
        then(port.own());
        self.ring(wake);
    }

    /// Rings the requested doorbells.
    #[inline]
    pub fn ring(&mut self, wake: Wake) {
        if wake != Wake::default() {
            self.ring_out(wake);
        }
    }

    #[cold]
    fn ring_out(&mut self, wake: Wake) {
        for (is_due, bell) in [(wake.data, Bell::Data), (wake.space, Bell::Space)] {
            if is_due {
                self.observer.rings(bell);
                self.port.ring(bell);
                self.rings += 1;
            }
        }
    }

    #[cold]
    fn maintain(&mut self) -> bool {
        let span = self.shrink_after;
        if self.growth == Growth::Never {
            // Offer no epoch that will not be used.
            return self.lanes.is_grown() && self.shrink_if_idle(self.port.now());
        }
        self.resizing(|port, lanes| resize::maintain(port, lanes, span))
    }

    /// Returns the size to grow the own lane to instead of waiting for room.
    pub fn larger(&self) -> Option<Geometry> {
        match self.growth {
            Growth::Never => None,
            Growth::Often => self.lanes.should_grow(),
            Growth::Immediate => self.lanes.next_size(),
        }
    }

    /// Continues the own lane with room for `to`.
    ///
    /// # Errors
    /// [`ResizeError`]: the lane kept its size, or grew less, and is usable unless the peer is at fault.
    #[cold]
    pub fn grow(&mut self, to: Geometry) -> Result<(), ResizeError> {
        let grown = self.resizing(|port, lanes| resize::grow(port, lanes, to));
        self.checked_resize(grown)
    }

    /// Shrinks the own lane to its minimum.
    ///
    /// # Errors
    /// [`ResizeError`]: the lane is usable unless the peer is at fault.
    pub fn shrink(&mut self) -> Result<(), ResizeError> {
        let shrunk = self.resizing(resize::shrink);
        self.checked_resize(shrunk)
    }

    /// Shrinks a lane that has been oversized for long, and publishes that.
    pub fn shrink_idle(&mut self, now: Instant) {
        if self.lanes.is_grown() && self.shrink_if_idle(now) {
            self.publish(&|_| {});
        }
    }

    fn shrink_if_idle(&mut self, now: Instant) -> bool {
        let span = self.shrink_after;
        self.resizing(|port, lanes| resize::shrink_idle(port, lanes, now, span))
    }

    fn resizing<T>(&mut self, resize: impl FnOnce(&mut P, &mut Lanes) -> T) -> T {
        let before = self.lanes.epoch().number;
        let outcome = resize(&mut self.port, &mut self.lanes);
        let epoch = self.lanes.epoch();
        if epoch.number != before {
            self.observer.own_resized(epoch.number, epoch.size.size());
        }
        outcome
    }

    fn checked_resize(&mut self, resized: Result<(), ResizeError>) -> Result<(), ResizeError> {
        if let Err(ResizeError::Push(PushError::Peer(fault))) = resized {
            self.fail(fault);
        }
        resized
    }

    /// Follows the peer's lane at a Switch record.
    ///
    /// # Errors
    /// [`FollowError`]; after a shortage, the record is still there.
    pub fn follow(&mut self, switch: &Record) -> Result<(), FollowError> {
        let followed = resize::follow(&mut self.port, &mut self.lanes, switch);
        match followed {
            Ok(()) => {
                let peer = self.lanes.received();
                self.observer.peer_resized(peer.epoch, peer.size);
            }
            Err(FollowError::Peer(fault)) => _ = self.fail(fault),
            Err(FollowError::Short(_)) => {}
        }
        followed
    }

    /// Requests a ring when the peer publishes and, with `space`, when it frees room for the record that did not fit:
    /// see [`Lanes::arm`].
    ///
    /// # Errors
    /// [`PeerFault`]: the session is over.
    pub fn arm(&mut self, space: bool) -> Result<Armed, PeerFault> {
        let armed = self.lanes.arm(self.port.own(), self.port.peer(), space);
        let (armed, wake) = armed.map_err(|fault| self.fail(fault))?;
        self.ring(wake);
        Ok(armed)
    }

    /// Withdraws what [`End::arm`] requested.
    pub fn disarm(&self) {
        self.lanes.disarm(self.port.own());
    }

    /// Returns whether the peer has published something new: see [`Lanes::moved`].
    #[inline]
    pub fn has_moved(&self) -> bool {
        self.lanes.moved(self.port.peer())
    }

    /// Returns whether the record that did not fit would fit now.
    ///
    /// # Errors
    /// [`PeerFault`]: the session is over.
    pub fn has_room(&mut self) -> Result<bool, PeerFault> {
        self.lanes.has_room(self.port.peer()).map_err(|fault| self.fail(fault))
    }

    /// Looks at what the peer published, for an end that takes nothing now.
    ///
    /// # Errors
    /// [`PeerFault`]: the session is over.
    pub fn load_tail(&mut self) -> Result<(), PeerFault> {
        self.lanes.load_tail(self.port.peer()).map_err(|fault| self.fail(fault))
    }

    /// Prefetches the own lane for the next message, between two polls.
    #[inline]
    pub fn prefetch(&mut self) {
        self.lanes.prefetch(self.port.own());
    }

    /// Returns how far the peer has taken this end's records.
    ///
    /// # Errors
    /// [`PeerFault`]: the session is over.
    pub fn taken(&mut self) -> Result<u64, PeerFault> {
        self.lanes.taken(self.port.peer()).map_err(|fault| self.fail(fault))
    }

    /// Returns whether the peer has taken nothing for `limit` of what was published for it: see
    /// [`StallDetector::check`].
    ///
    /// # Errors
    /// [`PeerFault`]: the session is over.
    pub fn check_stalled(
        &mut self,
        now: Instant,
        limit: Duration,
    ) -> Result<StallStatus, PeerFault> {
        let status = self.stall.check(&mut self.lanes, self.port.peer(), now, limit);
        status.map_err(|fault| self.fail(fault))
    }

    /// A request is about to be written.
    #[inline]
    pub(crate) fn requesting(&mut self) {
        let Self { port, observer, .. } = self;
        observer.requesting(|| port.now());
    }

    /// A request was written.
    #[inline]
    pub(crate) fn requested(&mut self) {
        self.observer.requested(self.lanes.position());
    }

    /// The answer to `id` is about to be written.
    #[inline]
    pub(crate) fn answering(&mut self, id: u64) {
        let Self { port, observer, .. } = self;
        observer.answering(id, || port.now());
    }

    /// An answer was written.
    #[inline]
    pub(crate) fn answered(&mut self) {
        self.observer.answered(Some(self.lanes.position()));
    }

    /// The message `id` of `len` bytes was taken.
    #[inline]
    pub(crate) fn took(&mut self, id: u64, len: usize) {
        let Self { port, lanes, observer, .. } = self;
        observer.took(port.peer(), id, len, || lanes.received().bytes, || port.now());
    }

    /// Closes the own lane: the peer sees it immediately, whatever it waits for.
    pub fn close(&mut self, reason: CloseReason) {
        let wake = self.lanes.close(self.port.own(), self.port.peer(), reason);
        self.ring(wake);
    }
}
