use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use bellwire_core::control::{self, Control, ControlTransport, DrainOutcome, ReceiveOutcome};
use bellwire_core::lane::Epoch;
use bellwire_core::resize::{FollowError, Shortage};
use bellwire_core::sync::{Ordering, fence};
use bellwire_core::wire::{Attachment, BroadcastRing, Doorbell, MAX_CONTROL};
use bellwire_core::{Bell, Instant, OwnMemory, Park, PeerFault, PeerMemory, Port, Woken, Word};

use crate::platform::{
    Channel, Doorbells, LifeState, OwnRegion, Parts, PeerRegion, Platform, Process, ReceiveError,
    Snapshot, SnapshotMap,
};
use crate::{Cancel, Canceller, LoanAccount, OwnEnd, PeerEnd};

/// More descriptors or handles than any message has: the core reports a wrong count.
const MAX_OBJECTS: usize = 16;

/// One end of a session: the core's [`Port`] over a system's memory, its channel and its doorbells. Only one thread at a time
/// may use it.
pub struct Link<P: Platform> {
    /// Whether the next wait is cancelled.
    pub cancel: Arc<Cancel<P>>,
    /// The memory that this end writes.
    pub own: OwnEnd<P::OwnRegion>,
    /// The memory that the peer writes.
    pub peer: PeerEnd<P::PeerRegion>,
    /// The doorbell that this end wants the peer to ring.
    pub doorbell: Doorbell,
    /// What the ends ring.
    pub bells: P::Doorbells,
    process: Option<P::Process>,
    lane_name: Box<str>,
    trusts_peer: bool,
    // The quota to which memory for the peer is charged.
    account: Option<LoanAccount>,
    // The own lane's next epoch, passed but not written yet.
    offered: Option<P::OwnRegion>,
    // Before the channel: messages taken off it are dropped first.
    control: RefCell<Control<Self>>,
    channel: P::Channel,
}

impl<P: Platform> Link<P> {
    /// Creates a link from its parts and writes the wanted doorbell to the own page.
    ///
    /// # Errors
    /// An object that the parts lack cannot be created: at the limit of descriptors, handles or memory.
    pub fn new(parts: Parts<P>) -> Result<Self, P::Error> {
        let (bells, doorbell) =
            P::Doorbells::new(parts.doorbell, parts.own_event, parts.peer_event)?;
        parts.own.store(Word::Doorbell, u64::from(doorbell as u32), Ordering::Release);
        // Pairs with the fence in a publisher between its `tail` store and its load of what this end wants.
        fence(Ordering::SeqCst);
        P::keep_spare();
        Ok(Self {
            own: parts.own,
            peer: parts.peer,
            doorbell,
            bells,
            cancel: Arc::default(),
            process: parts.process,
            lane_name: parts.lane_name.into(),
            trusts_peer: parts.trusts_peer,
            account: None,
            offered: None,
            control: RefCell::new(Control::new(parts.limits)),
            channel: parts.channel,
        })
    }

    /// Charges memory that is created for the peer or passed to it from now on to its user's quota.
    #[must_use]
    pub fn on_quota_of(mut self, account: LoanAccount) -> Self {
        self.account = Some(account);
        self
    }

    /// Returns whether this is the process that opened the session. In a child of fork the session does not work.
    pub fn is_owner_process(&self) -> bool {
        self.bells.is_owner_process()
    }

    /// Returns the control channel.
    pub fn channel(&self) -> &P::Channel {
        &self.channel
    }

    /// Unmaps everything and returns the control channel, for a caller that closes it elsewhere.
    pub fn into_channel(self) -> P::Channel {
        self.channel
    }

    /// Returns what is ready while there is a control message or the other end is closed.
    pub fn arrived(&self) -> P::Borrowed<'_> {
        self.channel.arrived()
    }

    /// Returns the peer's process.
    pub fn process(&self) -> Option<&P::Process> {
        self.channel.process().or(self.process.as_ref())
    }

    /// Opens the peer's process, for a link that was created without it; costs one descriptor or handle.
    pub fn find_process(&self) -> Option<P::Process> {
        P::Process::watch(&self.channel)
    }

    /// Returns the event that the peer rings, for an event loop that polls those of many links itself.
    pub fn event(&self) -> Option<&P::WakeEvent> {
        self.bells.event()
    }

    /// Returns a handle that wakes the thread that is parked here.
    ///
    /// # Errors
    /// At the limit of descriptors or handles: the first one may cost one.
    pub fn canceller(&self) -> Result<Canceller<P>, P::Error> {
        self.cancel.canceller(self.doorbell != Doorbell::Futex)
    }

    /// Returns what an event loop can wait for: ready when there may be data or space, or the peer is gone; then call
    /// [`Link::acknowledge`] before checking. Returns `None` if the doorbell is a futex.
    ///
    /// # Errors
    /// The first call may create an object: at the limit of descriptors, handles or memory.
    pub fn pollable(&self) -> Result<Option<P::Borrowed<'_>>, P::Error> {
        P::Doorbells::pollable(self)
    }

    /// Consumes the rings so far, so that [`Link::pollable`] becomes ready only for new ones.
    pub fn acknowledge(&mut self) {
        P::Doorbells::acknowledge(self);
    }

    /// Sleeps until the word at `offset` of `board`, which the same peer writes, differs from `seen`, the peer dies, or the
    /// wait is over.
    pub fn watch(
        &self,
        board: &P::PeerRegion,
        offset: usize,
        seen: u64,
        until: Option<Instant>,
    ) -> Woken {
        if !self.is_owner_process() {
            return Woken::PeerGone;
        }
        P::Doorbells::watch(self, board, offset, seen, until)
    }

    /// Returns whether the peer's process ended, or it closed the session or its channel. Does not wait. Records that it
    /// published before remain readable.
    pub fn peer_gone(&self) -> bool {
        !self.is_owner_process() || self.peer.says_closed() || P::Doorbells::has_died(self)
    }

    /// Returns a reason not to sleep, if there is one. Data comes before death: published records are read first.
    pub fn reason(&self, moved: impl Fn() -> bool) -> Option<Woken> {
        if self.cancel.is_set() { Some(Woken::Cancelled) } else { moved().then_some(Woken::Rung) }
    }

    /// Returns what the system has recorded about the life of the peer's serving thread. No system call.
    #[inline]
    pub fn life(&self) -> LifeState {
        P::Doorbells::life(self)
    }
}

/// The control channel after the handshake. [`bellwire_core::control`] defines what the messages mean; this moves them and
/// their memory.
impl<P: Platform> Link<P> {
    /// Processes the peer's messages so far: rings need no more, and memory is kept for the record that refers to it.
    ///
    /// # Errors
    /// [`FollowError`]: the peer sent a message that is not allowed here, or this process has no descriptor or handle left; then
    /// the message is kept.
    pub fn take_control(&mut self) -> Result<DrainOutcome, FollowError> {
        self.control.borrow_mut().receive_all(self)
    }

    /// Processes pending messages, for a wait. A fault ends the session at the next check.
    pub fn drain_before_wait(&self) -> DrainOutcome {
        self.control.borrow_mut().drain_before_wait(self)
    }

    /// Returns the peer's protocol violation on the control channel, if this end found one while it waited.
    pub fn fault(&self) -> Option<PeerFault> {
        self.control.borrow().fault()
    }

    /// Charges memory to the quota of the peer's user, if there is one, and gives `pass` what to send.
    fn lend<R>(
        &self,
        sealed: &P::Snapshot,
        pass: impl FnOnce(P::Borrowed<'_>) -> R,
    ) -> Result<R, Shortage> {
        let lent = sealed.lend_to(self.account.as_ref(), pass);
        lent.map_err(|error| error.shortage(sealed.len() as u64))
    }

    /// Charges memory to the quota of the peer's user, if there is one: then [`Link::pass_attachment`] does not.
    ///
    /// # Errors
    /// [`Shortage`]: the user has too much already, or a copy for it cannot be made.
    pub fn charge_attachment(&self, sealed: &P::Snapshot) -> Result<(), Shortage> {
        self.lend(sealed, |_| ())
    }

    /// Passes a message in memory of its own, for the attach record `id`.
    ///
    /// # Errors
    /// [`Shortage`]: the message was not passed.
    pub fn pass_attachment(
        &self,
        id: u64,
        generation: u64,
        sealed: &P::Snapshot,
    ) -> Result<(), Shortage> {
        let attachment = Attachment { id, generation, len: sealed.len() as u64 };
        self.lend(sealed, |memory| control::pass_attachment(self, attachment, memory))?
    }

    /// Takes the memory of the attach record `id`, checks it and maps it, or copies it where the system cannot prove that nobody
    /// writes it.
    ///
    /// # Errors
    /// [`FollowError`]; after a shortage the message is lost, but the session remains usable.
    pub fn take_attachment(
        &mut self,
        id: u64,
    ) -> Result<(Attachment, P::SnapshotMap), FollowError> {
        let (attachment, object) = self.control.borrow_mut().take_attachment(self, id)?;
        let len = usize::try_from(attachment.len).unwrap_or(usize::MAX);
        let map = P::SnapshotMap::of_peer(object, len, self.trusts_peer);
        P::keep_spare();
        let map = map.map_err(|error| error.refusal("a message", attachment.len))?;
        Ok((attachment, map))
    }

    /// Passes a broadcast ring, for the attach record `id`.
    ///
    /// # Errors
    /// [`Shortage`]: it was not passed.
    pub fn pass_ring(
        &self,
        id: u64,
        ring: BroadcastRing,
        memory: P::Borrowed<'_>,
    ) -> Result<(), Shortage> {
        control::pass_attachment(self, ring.attachment(id), memory)
    }

    /// Takes the broadcast ring of the attach record `id`, checks its memory and maps it.
    ///
    /// # Errors
    /// [`FollowError`]; after a shortage the ring is lost, but the session remains usable.
    pub fn take_ring(&mut self, id: u64) -> Result<(BroadcastRing, P::PeerRegion), FollowError> {
        let (attachment, object) = self.control.borrow_mut().take_attachment(self, id)?;
        let Some(ring) = BroadcastRing::of_attachment(&attachment) else {
            P::reap([object]);
            return Err(PeerFault::Memory { what: "a ring", why: "it is announced as none" }.into());
        };
        let map = P::PeerRegion::verify_and_map(object, ring.memory());
        P::keep_spare();
        let map = map.map_err(|error| error.refusal("a ring", attachment.len))?;
        Ok((ring, map))
    }
}

impl<P: Platform> ControlTransport for Link<P> {
    type Memory = P::Owned;
    type BorrowedMemory<'a> = P::Borrowed<'a>;

    fn send(&self, message: &[u8], memory: Option<P::Borrowed<'_>>) -> Result<(), Shortage> {
        let sent = self.channel.send(message, memory.as_slice());
        sent.or_else(|error| error.shortage().map_or(Ok(()), Err))
    }

    fn receive(
        &self,
        into: &mut [u8; MAX_CONTROL],
    ) -> Result<ReceiveOutcome<P::Owned>, FollowError> {
        match self.channel.receive_or_leave(into, MAX_OBJECTS) {
            // On Windows, handles that a client had offered and the server had not taken are lost with the client.
            Err(ReceiveError::Handle { .. }) if self.peer_gone() => Ok(ReceiveOutcome::End),
            received => ReceiveError::outcome(received),
        }
    }

    fn close(memory: Vec<P::Owned>) {
        P::reap(memory);
    }

    fn catch_up(&self) -> bool {
        self.channel.catch_up()
    }

    fn lost(&self) -> Option<Shortage> {
        P::Channel::LOSS.filter(|_| self.peer_gone()).map(P::shortage)
    }
}

impl<P: Platform> Port for Link<P> {
    type Own = OwnEnd<P::OwnRegion>;
    type Peer = PeerEnd<P::PeerRegion>;

    #[inline]
    fn own(&self) -> &Self::Own {
        &self.own
    }

    #[inline]
    fn peer(&self) -> &Self::Peer {
        &self.peer
    }

    fn yield_now(&self) {
        std::thread::yield_now();
    }

    fn now(&self) -> Instant {
        P::Doorbells::now(self)
    }

    fn ring(&self, bell: Bell) {
        if !self.is_owner_process() {
            return;
        }
        self.own.rings(P::now());
        let wanted = u32::try_from(self.peer.load(Word::Doorbell, Ordering::Acquire));
        P::Doorbells::ring(self, bell, wanted.ok().and_then(Doorbell::parse));
    }

    fn park(&mut self, park: Park) -> Woken {
        if !self.is_owner_process() {
            return Woken::PeerGone;
        }
        P::Doorbells::park(self, &park)
    }

    fn offer(&mut self, epoch: Epoch) -> Result<(), Shortage> {
        let bytes = epoch.size.size();
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let made = match &self.account {
            Some(account) => P::OwnRegion::lend(account, &self.lane_name, size, |_| {}),
            None => P::OwnRegion::create(&self.lane_name, size, |_| {}),
        };
        let (lane, object) = made.map_err(|error| error.shortage(bytes))?;
        control::pass_lane(self, epoch, P::borrow(&object))?;
        self.offered = Some(lane);
        Ok(())
    }

    fn adopt(&mut self, _: Epoch) {
        if let Some(lane) = self.offered.take() {
            self.own.lane = lane;
        }
    }

    fn follow(&mut self, epoch: Epoch) -> Result<(), FollowError> {
        let bytes = epoch.size.size();
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let lane = self.control.borrow_mut().follow(self, epoch, |object| {
            P::PeerRegion::check_and_map(P::borrow(object), size)
                .map_err(|error| error.refusal("a lane", bytes))
        });
        P::keep_spare();
        self.peer.lane = lane?;
        Ok(())
    }
}

impl<P: Platform> fmt::Debug for Link<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("doorbell", &self.doorbell).finish_non_exhaustive()
    }
}
