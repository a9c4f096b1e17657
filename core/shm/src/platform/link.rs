//! One end of a session, and what wakes it.

use bellwire_core::control::DrainOutcome;
use bellwire_core::resize::{FollowError, Shortage};
use bellwire_core::wire::{Attachment, BroadcastRing, Doorbell};
use bellwire_core::{Instant, Limits, PeerFault, Port, Woken};

use super::{Absent, Platform, VerifyError};
use crate::quota::LoanAccount;
use crate::{Canceller, OwnEnd, PeerEnd};

/// The doorbell that is a descriptor or handle.
pub trait Event<P: Platform>: Sized {
    /// What the peer gets.
    type Passed<'a>
    where
        Self: 'a;

    /// Creates an event that was not rung.
    ///
    /// # Errors
    /// At the limit of descriptors, handles or memory.
    fn create() -> Result<Self, P::Error>;

    /// Takes over an event that a peer sent, to ring it. What is no event goes to the reaper, where the system can tell.
    ///
    /// # Errors
    /// It is no event.
    fn from_peer(object: P::Owned) -> Result<Self, VerifyError<P>>;

    /// Returns what the peer gets, to ring it.
    ///
    /// # Errors
    /// At the limit of handles or memory.
    fn for_peer(&self) -> Result<Self::Passed<'_>, P::Error>;

    /// Rings. One that was rung already stays so.
    fn ring(&self);

    /// Resets the event and returns whether it was rung. Does not wait.
    fn drain(&self) -> bool;

    /// Returns the doorbell that this end asks `peer` to ring when the program wants `wanted`.
    fn choose(wanted: Doorbell, peer: &P::Credentials) -> Doorbell;

    /// Returns whether this end may ring an event of this peer.
    fn may_ring(peer: &P::Credentials) -> bool;
}

/// The parts of a [`Link`] after the handshake.
#[derive(Debug)]
pub struct Parts<P: Platform> {
    /// This end's memory.
    pub own: OwnEnd<P::OwnRegion>,
    /// The peer's memory.
    pub peer: PeerEnd<P::PeerRegion>,
    /// The control socket or pipe.
    pub channel: P::Channel,
    /// The doorbell that this end wants the peer to ring.
    pub doorbell: Doorbell,
    /// The event that the peer rings, for [`Doorbell::Eventfd`].
    pub own_event: Option<P::Event>,
    /// The event that the peer wants to be rung by, if this end [may](Event::may_ring).
    pub peer_event: Option<P::Event>,
    /// The peer's process.
    pub process: Option<P::Process>,
    /// The limits of this end that the peer was told.
    pub limits: Limits,
    /// The name for the own lane's memory, where the system names memory; at most 249 bytes.
    pub lane_name: String,
    /// Whether the peer is trusted to keep no way to write its attachments: true only for one that may write this process's
    /// memory anyway, of its user or of the system. Others' attachments are copied where the system cannot prove it; on Linux
    /// seals do.
    pub trusts_peer: bool,
}

/// One end of a session. Only one thread at a time may use it.
pub trait Link<P: Platform>:
    Port<Own = OwnEnd<P::OwnRegion>, Peer = PeerEnd<P::PeerRegion>>
    + WatchPeer<P>
    + PassMemory<P>
    + Sized
{
    /// Creates a link from its parts and writes the wanted doorbell to the own page.
    ///
    /// # Errors
    /// An object that the parts lack cannot be created: at the limit of descriptors, handles or memory.
    fn new(parts: Parts<P>) -> Result<Self, P::Error>;

    /// Charges memory that is created for the peer or passed to it from now on to its user's quota.
    #[must_use]
    fn on_quota_of(self, account: LoanAccount) -> Self;

    /// Returns the doorbell that this end wants the peer to ring.
    fn doorbell(&self) -> Doorbell;

    /// Returns whether this is the process that opened the session: always, by default. In a child of fork the session does not
    /// work.
    fn is_owner_process(&self) -> bool {
        true
    }

    /// Returns what is ready while there is a control message or the other end is closed.
    fn arrived(&self) -> P::Borrowed<'_>;

    /// Returns the peer's process.
    fn process(&self) -> Option<&P::Process>;

    /// Opens the peer's process, for a link that was created without it; costs one descriptor or handle.
    fn find_process(&self) -> Option<P::Process>;

    /// Returns the event that the peer rings, for an event loop that polls those of many links itself.
    fn event(&self) -> Option<&P::Event>;

    /// Returns a handle that wakes the thread that is parked here.
    ///
    /// # Errors
    /// At the limit of descriptors or handles: the first one may cost one.
    fn canceller(&self) -> Result<Canceller<P>, P::Error>;

    /// Resets the cancellation and returns whether there was one.
    fn take_cancel(&self) -> bool;

    /// Unmaps everything and returns the control channel, for a caller that closes it elsewhere.
    fn into_channel(self) -> Option<P::Channel>;

    /// Returns the peer's protocol violation on the control channel, if this end found one while it waited.
    fn fault(&self) -> Option<PeerFault>;

    /// Returns what an event loop can wait for: ready when there may be data or space, or the peer is gone; then call
    /// [`Link::acknowledge`] before checking. Returns `None` if the doorbell is a futex.
    ///
    /// # Errors
    /// The first call may create an object: at the limit of descriptors, handles or memory.
    fn pollable(&self) -> Result<Option<P::Borrowed<'_>>, P::Error>;

    /// Consumes the rings so far, so that [`Link::pollable`] becomes ready only for new ones.
    fn acknowledge(&mut self);
}

/// What a [`Link`] knows of its peer, and how it waits for a board.
pub trait WatchPeer<P: Platform> {
    /// Sleeps until the word at `offset` of `board`, which the same peer writes, differs from `seen`, the peer dies, or the
    /// wait is over.
    fn watch(
        &self,
        board: &P::PeerRegion,
        offset: usize,
        seen: u64,
        until: Option<Instant>,
    ) -> Woken;

    /// Returns whether the peer's process ended, or it closed the session or its channel. Does not wait. Records that it
    /// published before remain readable.
    fn peer_gone(&self) -> bool;

    /// Returns what the system has recorded about the life of the peer's serving thread: nothing, by default. No system call.
    fn life(&self) -> LifeState {
        LifeState::Unarmed
    }
}

/// What a [`Link`] does on its control channel after the handshake: messages, and memory that comes with them.
pub trait PassMemory<P: Platform> {
    /// Processes the peer's messages so far: rings need no more, and memory is kept for the record that refers to it.
    ///
    /// # Errors
    /// [`FollowError`]: the peer sent a message that is not allowed here, or this process has no descriptor or handle left; then
    /// the message is kept.
    fn take_control(&mut self) -> Result<DrainOutcome, FollowError>;

    /// Charges memory to the quota of the peer's user, if there is one: then [`PassMemory::pass_attachment`] does not.
    ///
    /// # Errors
    /// [`Shortage`]: the user has too much already, or a copy for it cannot be made.
    fn charge_attachment(&self, sealed: &P::Snapshot) -> Result<(), Shortage>;

    /// Passes a message in memory of its own, for the attach record `id`.
    ///
    /// # Errors
    /// [`Shortage`]: the message was not passed.
    fn pass_attachment(
        &self,
        id: u64,
        generation: u64,
        sealed: &P::Snapshot,
    ) -> Result<(), Shortage>;

    /// Takes the memory of the attach record `id`, checks it and maps it, or copies it where the system cannot prove that nobody
    /// writes it.
    ///
    /// # Errors
    /// [`FollowError`]; after a shortage the message is lost, but the session remains usable.
    fn take_attachment(&mut self, id: u64) -> Result<(Attachment, P::SnapshotMap), FollowError>;

    /// Passes a broadcast ring, for the attach record `id`.
    ///
    /// # Errors
    /// [`Shortage`]: it was not passed.
    fn pass_ring(
        &self,
        id: u64,
        ring: BroadcastRing,
        memory: P::Borrowed<'_>,
    ) -> Result<(), Shortage>;

    /// Takes the broadcast ring of the attach record `id`, checks its memory and maps it.
    ///
    /// # Errors
    /// [`FollowError`]; after a shortage the ring is lost, but the session remains usable.
    fn take_ring(&mut self, id: u64) -> Result<(BroadcastRing, P::PeerRegion), FollowError>;
}

/// What is known about a peer's serving thread without a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LifeState {
    /// It lives; the kernel will say when it ends.
    Alive,
    /// It has ended.
    Died,
    /// Unknown: it holds no life word, or the system has none.
    Unarmed,
}

/// A life word that this thread holds. Drop it on the same thread: the peer then sees [`LifeState::Unarmed`] and is woken.
pub trait LifeLock<P: Platform>: Sized {
    /// Arms the life word of `page` for the calling thread, at most once per page. `None` where the system cannot: the session
    /// works without it.
    fn hold(page: &P::OwnRegion) -> Option<Self>;
}

impl<P: Platform> LifeLock<P> for Absent<P> {
    fn hold(_: &P::OwnRegion) -> Option<Self> {
        None
    }
}

/// The sessions whose clients may wait for a board.
pub trait Watchers<P: Platform>: Default {
    /// Registers a session's client.
    fn join(&self, link: &P::Link);

    /// Wakes all clients when the word at `offset` of `board` has changed.
    fn wake(&self, board: &P::OwnRegion, offset: usize);
}
