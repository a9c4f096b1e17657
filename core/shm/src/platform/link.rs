//! One end of a session, and what wakes it.

use bellwire_core::wire::Doorbell;
use bellwire_core::{Bell, Instant, Limits, Park, Woken};

use super::{Absent, Platform, VerifyError};
use crate::{Link, OwnEnd, PeerEnd};

/// The doorbell that is a descriptor or handle.
pub trait WakeEvent<P: Platform>: Sized {
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
    pub own_event: Option<P::WakeEvent>,
    /// The event that the peer wants to be rung by, if this end [may](WakeEvent::may_ring).
    pub peer_event: Option<P::WakeEvent>,
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

/// The doorbells of a [`Link`], and how it waits for its peer. In a child of fork it neither rings nor waits.
pub trait Doorbells<P: Platform>: Sized {
    /// Creates what the events lack. Also returns the doorbell that this end wants the peer to ring: `wanted`, if it can be rung.
    ///
    /// # Errors
    /// At the limit of descriptors, handles or memory.
    fn new(
        wanted: Doorbell,
        own: Option<P::WakeEvent>,
        peer: Option<P::WakeEvent>,
    ) -> Result<(Self, Doorbell), P::Error>;

    /// Returns the event that the peer rings.
    fn event(&self) -> Option<&P::WakeEvent>;

    /// Returns whether this is the process that created them: always, by default.
    fn is_owner_process(&self) -> bool {
        true
    }

    /// Returns [`Platform::now`]. A function of the link that is compiled with the transport: where LLVM sees that the link does not
    /// matter, it outlines what each call runs through, and a call takes nine instructions more.
    fn now(link: &Link<P>) -> Instant;

    /// Rings the peer, which wants the doorbell `wanted`; `None` if it asks for an invalid one.
    fn ring(link: &Link<P>, bell: Bell, wanted: Option<Doorbell>);

    /// Sleeps as [`Port::park`](bellwire_core::Port::park) says.
    fn park(link: &Link<P>, park: &Park) -> Woken;

    /// Sleeps as [`Link::watch`] says.
    fn watch(
        link: &Link<P>,
        board: &P::PeerRegion,
        offset: usize,
        seen: u64,
        until: Option<Instant>,
    ) -> Woken;

    /// Returns whether the peer's process ended, or it closed its channel. Does not wait.
    fn has_died(link: &Link<P>) -> bool;

    /// As [`Link::life`]: nothing, by default.
    fn life(link: &Link<P>) -> LifeState {
        let _ = link;
        LifeState::Unarmed
    }

    /// As [`Link::pollable`].
    ///
    /// # Errors
    /// As [`Link::pollable`].
    fn pollable(link: &Link<P>) -> Result<Option<P::Borrowed<'_>>, P::Error>;

    /// As [`Link::acknowledge`].
    fn acknowledge(link: &Link<P>);
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
    fn join(&self, link: &Link<P>);

    /// Wakes all clients when the word at `offset` of `board` has changed.
    fn wake(&self, board: &P::OwnRegion, offset: usize);
}
