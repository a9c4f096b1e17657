//! What a transport provides: the contract between the facade and one operating system.
//!
//! A transport implements [`Platform`] for a type without values, which names the transport's types, and for each of those the
//! trait here that has its name. So a port that lacks a function does not compile, and the compiler names the function. Errors
//! and memory orderings are the same on every system unless the transport's own documentation says more.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bellwire_core::control::DrainOutcome;
use bellwire_core::resize::{FollowError, Resource, Shortage};
use bellwire_core::wire::{Attachment, BroadcastRing, Doorbell};
use bellwire_core::{Backend, BackendStatus, Instant, Limits, PeerFault, Port, ServiceName, Woken};

use crate::quota::{Gauge, LoanAccount};
use crate::{OwnEnd, OwnRange, PeerEnd, PeerRange, Received};

/// Every trait of this module, for a caller of their functions.
pub mod prelude {
    pub use super::{
        Arrivals as _, Channel as _, Credentials as _, Endpoint as _, Event as _, Inherited as _,
        LifeLock as _, Link as _, Notify as _, OwnRegion as _, PassMemory as _, PeerRegion as _,
        Platform, Poller as _, Process as _, Snapshot as _, SnapshotBuilder as _, WatchPeer as _,
        Watchers as _,
    };
}

/// An operating system: its types, its clocks and its limits.
pub trait Platform: Sized + 'static {
    /// The error of a system call.
    type Error: Error + Copy + Into<io::Error>;
    /// A descriptor or handle.
    type Owned: 'static;
    /// The same, borrowed.
    type Borrowed<'a>: Copy;
    /// A user of this machine.
    type User: Copy + Eq + 'static;
    /// Which users an endpoint admits.
    type Admission: Clone;
    /// Who is at the other end.
    type Credentials: Credentials<Self>;
    /// A process of this machine.
    type Process: Process<Self>;
    /// One end of a control socket or pipe.
    type Channel: Channel<Self>;
    /// The name of a service, held by this process.
    type Endpoint: Endpoint<Self>;
    /// A socket that the service manager handed over.
    /// [`Absent`] where service managers hand over none.
    type Inherited: Inherited;
    /// An entry of a run directory.
    type EndpointInfo;
    /// The doorbell that is a descriptor or handle.
    type Event: Event<Self>;
    /// Memory that this process writes.
    type OwnRegion: OwnRegion<Self>;
    /// Memory that the peer writes.
    type PeerRegion: PeerRegion<Self>;
    /// A snapshot under construction.
    type SnapshotBuilder: SnapshotBuilder<Self>;
    /// A finished snapshot.
    type Snapshot: Snapshot<Self>;
    /// A readable snapshot.
    type SnapshotMap: Deref<Target = [u8]>;
    /// One end of a session.
    type Link: Link<Self>;
    /// Wakes a thread that is parked in a link.
    type Canceller: Clone + Send + Sync;
    /// Waits for many descriptors or handles.
    type Poller: Poller<Self>;
    /// A wait for an endpoint to come up.
    type Arrivals: Arrivals;
    /// A wait for an endpoint's files to go.
    /// [`Absent`] where an endpoint has no files that can go.
    type Notify: Notify<Self>;
    /// The sessions whose clients may wait for a board.
    type Watchers: Watchers<Self>;
    /// A life word that this thread holds.
    /// [`Absent`] where the system records no thread's end in memory.
    type LifeLock: LifeLock<Self>;
    /// Why memory could not be created.
    type RegionError: Error;
    /// Why a peer's memory or event was refused.
    type VerifyError: Error;
    /// Why a message was not sent.
    type SendError: Error;
    /// Why no message was received.
    type ReceiveError: Error;
    /// Why a service cannot be reached.
    type ConnectError: Error;
    /// Why a name could not be taken.
    type BindError: Error;
    /// Why sockets that were handed over are not used.
    type InheritError: Error;
    /// Why no link could be created.
    type LinkError: Error;

    /// Returns the time on a clock that all processes of the machine share and that nobody sets.
    fn now() -> Instant;

    /// Returns nanoseconds since 1970: for display, never for a wait.
    fn wall_nanos() -> u64;

    /// Returns the memory that this process may have in bytes, and a gauge of how much is left.
    fn memory_limit() -> (u64, Box<dyn Gauge>);

    /// Returns how many maps a process may have; `None`, the default, if only memory limits them.
    fn max_maps() -> Option<usize> {
        None
    }

    /// Returns advice for an operator whose system lacks this.
    fn hint(resource: Resource) -> &'static str;

    /// Returns the resource that a system call without shared memory lacked.
    fn shortage(error: Self::Error) -> Shortage;

    /// Returns a lower bound for the eighths of this process's descriptors that are in use. `newest` was just created, so it
    /// has the lowest free number; `held` is how many the caller knows of, in case some with lower numbers were closed. 0, the
    /// default, if only memory limits them.
    fn fd_usage_eighths(newest: Self::Borrowed<'_>, held: usize) -> usize {
        let _ = (newest, held);
        0
    }

    /// Sleeps until one of `objects` is ready, or until `deadline`; returns whether one is.
    ///
    /// # Errors
    /// More than 64 objects, or no memory.
    fn wait_any(
        objects: &[Self::Borrowed<'_>],
        deadline: Option<Instant>,
    ) -> Result<bool, Self::Error>;

    /// Closes what a peer sent and nobody verified, on the reaper's threads, without waiting for it.
    fn reap(objects: impl IntoIterator<Item = Self::Owned>);

    /// Returns whether each of the reaper's threads is stuck in a close, at least one of them of this user's object.
    fn has_blocked_close(user: Self::User) -> bool;

    /// Returns the default run directory.
    fn default_run_dir() -> PathBuf;

    /// Returns the owner of a run directory that only this owner can replace, if this process acts as root, who gave it. `None`,
    /// the default, where a run directory's place gives nobody rights.
    fn owner_trusted_by_root(run_dir: &Path) -> Option<Self::User> {
        let _ = run_dir;
        None
    }
}

/// What a platform does not have: there is no value of this type.
#[derive(Clone, Copy, Debug)]
pub struct Absent<P>(pub Infallible, PhantomData<P>);

/// Who is at the other end of a channel, according to the system.
pub trait Credentials<P: Platform>: Copy {
    /// Returns who opened the other end.
    ///
    /// # Errors
    /// When the other process may not be queried, or has ended.
    fn of(channel: &P::Channel) -> Result<Self, P::Error>;

    /// Returns the process, if known.
    fn pid(&self) -> Option<u32>;

    /// Returns the user.
    fn user(&self) -> P::User;

    /// Returns whether the peer acts as the user of this process, as the system, or as one of `users`.
    fn is_among(&self, users: &[P::User]) -> bool;

    /// Why a client's identity is not accepted.
    type ConfirmError: Error;

    /// Returns the credentials that are certain once the peer has sent a message.
    ///
    /// # Errors
    /// The client is not who it says it is: refuse it.
    fn confirm(self, channel: &mut P::Channel) -> Result<Self, Self::ConfirmError>;
}

/// A process of this machine, to wait for its end.
pub trait Process<P: Platform>: Sized {
    /// Returns the process at the other end. `None` where this process may not wait for it, or the channel holds it already:
    /// then only the channel reports its end.
    fn watch(channel: &P::Channel) -> Option<Self>;

    /// Returns whether the process has ended. Does not wait.
    fn has_exited(&self) -> bool;
}

/// One end of a control socket or pipe, non-blocking.
pub trait Channel<P: Platform>: Sized {
    /// Whether a client of netipc can be at the other end.
    const CARRIES_NETIPC: bool;

    /// Returns what is ready while there is a message or the other end is closed.
    fn arrived(&self) -> P::Borrowed<'_>;

    /// Sends `bytes` as one message, with `objects`.
    ///
    /// # Errors
    /// Nothing of the message was sent.
    fn send(&self, bytes: &[u8], objects: &[P::Borrowed<'_>]) -> Result<(), P::SendError>;

    /// Receives one message of at most `buf.len()` bytes and `max` objects.
    ///
    /// # Errors
    /// Every received object went to the reaper.
    fn receive(&self, buf: &mut [u8], max: usize) -> Result<Received<P::Owned>, P::ReceiveError>;

    /// Closes the channel without waiting: the peer may have queued objects on it whose close waits.
    fn reap(self);
}

/// The name of a service, held by this process.
pub trait Endpoint<P: Platform>: Sized {
    /// Takes the name without listening: until [`Endpoint::listen`], clients wait as for a provider that is absent. With
    /// `group_may_write`, a run directory is accepted whose group may replace what is in it.
    ///
    /// # Errors
    /// The name is taken, or the run directory is not safe.
    fn reserve(
        run_dir: &Path,
        service: ServiceName,
        admission: &P::Admission,
        group_may_write: bool,
    ) -> Result<Self, P::BindError>;

    /// Takes the name, and serves it at a socket that was handed over. Clients that connect before [`Endpoint::listen`] wait.
    ///
    /// # Errors
    /// As [`Endpoint::reserve`]; and when clients do not reach the socket.
    fn inherit(
        run_dir: &Path,
        service: ServiceName,
        admission: &P::Admission,
        group_may_write: bool,
        inherited: &P::Inherited,
    ) -> Result<Self, P::BindError>;

    /// Returns whether clients find it by its name: always, by default, where a name has no files that can go.
    fn is_in_place(&self) -> bool {
        true
    }

    /// Takes the name again after its files went or were replaced, and listens there. Clients that wait at the old place are
    /// turned away and connect again.
    ///
    /// # Errors
    /// Another process may have taken the name meanwhile. Then this endpoint is unchanged.
    fn take_place(&mut self) -> Result<(), P::BindError> {
        Ok(())
    }

    /// Listens, and wakes the clients that wait for that. At most `most` plus one connections wait for accept. Called again, it
    /// changes that number.
    ///
    /// # Errors
    /// None on an endpoint that is bound.
    fn listen(&self, most: u32) -> Result<(), P::Error>;

    /// Accepts a waiting connection; returns `None` if there is none. Does not wait.
    ///
    /// # Errors
    /// At the limit of descriptors, handles or memory: the connection keeps waiting. Connections that were closed meanwhile are
    /// skipped without an error.
    fn accept(&self) -> Result<Option<P::Channel>, P::Error>;

    /// Refuses further connections where the system can, and closes those that wait for accept.
    fn turn_away(&self);

    /// Returns the service.
    fn service(&self) -> ServiceName;

    /// Connects to a service whose endpoint belongs to this user, to the system, or to one of `owners`. Waits only while the
    /// queue of connections is full, until `until` at most. The caller still checks the [`Credentials`] of the peer.
    ///
    /// # Errors
    /// No process serves it, or one that is not trusted.
    fn connect(
        run_dir: &Path,
        service: ServiceName,
        owners: &[P::User],
        until: Option<Instant>,
    ) -> Result<P::Channel, P::ConnectError>;

    /// Takes the sockets that a service manager hands to this process: none, by default. Once: later calls find none.
    ///
    /// # Errors
    /// Of the first that is no endpoint. The others are closed then.
    fn inherited() -> Result<Vec<P::Inherited>, P::InheritError> {
        Ok(Vec::new())
    }

    /// Lists the endpoints of a run directory by name, and other objects that have an endpoint's name, without connecting.
    ///
    /// # Errors
    /// The directory cannot be read.
    fn list(run_dir: &Path) -> Result<Vec<P::EndpointInfo>, ListError>;
}

/// Whether a process serves an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Liveness {
    /// A process holds its lock; its pid, if known.
    Alive(Option<u32>),
    /// No process serves it: a crash left it.
    Stale,
    /// The name is taken by something else: a socket whose listener does not hold the lock, a socket and a lock of different
    /// users, or an object that is not a socket. Never on Windows, where the pipe's owner shows that.
    Squatted,
    /// A service manager listens, and starts the provider when a client connects. Never on Windows.
    Activated,
    /// This process cannot find out.
    Unknown,
}

/// Why a run directory was not listed.
#[derive(Debug, thiserror::Error)]
#[error("cannot list {}: {source}", .path.display())]
pub struct ListError {
    /// The directory.
    pub path: PathBuf,
    /// The error from the system.
    pub source: io::Error,
}

/// A socket that listens, bound by the service manager, which keeps it open.
pub trait Inherited {
    /// Returns where it was bound.
    fn path(&self) -> &Path;

    /// Returns whether clients of a service look for it there.
    fn is_of(&self, run_dir: &Path, service: ServiceName) -> bool;
}

impl<P> Inherited for Absent<P> {
    fn path(&self) -> &Path {
        match self.0 {}
    }

    fn is_of(&self, _: &Path, _: ServiceName) -> bool {
        match self.0 {}
    }
}

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
    fn from_peer(object: P::Owned) -> Result<Self, P::VerifyError>;

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

/// Memory that this process created and only it writes: a page, a lane or a board.
pub trait OwnRegion<P: Platform>: Deref<Target = OwnRange> + Sized {
    /// Creates `size` zeroed bytes, lets `init` write the constant part, and denies everybody else to write them. Also returns
    /// what to send to the peer; drop it then. `name` shows where the system names memory.
    ///
    /// # Errors
    /// Which step failed. Beyond a memory cgroup's limit the kernel kills the process instead, so bound `size`.
    fn create(
        name: &str,
        size: usize,
        init: impl FnOnce(&Self),
    ) -> Result<(Self, P::Owned), P::RegionError>;

    /// Creates memory as [`OwnRegion::create`] does, charged to a peer's quota until no peer has it any more.
    ///
    /// # Errors
    /// The peer's user holds too much; others as for [`OwnRegion::create`].
    fn lend(
        account: &LoanAccount,
        name: &str,
        size: usize,
        init: impl FnOnce(&Self),
    ) -> Result<(Self, P::Owned), P::RegionError>;
}

/// Memory that the peer created and only the peer writes, mapped read-only.
pub trait PeerRegion<P: Platform>: Deref<Target = PeerRange> + Sized {
    /// Checks a peer's memory and maps it: it must be of exactly `size` bytes, all of them there, and nobody may be able to
    /// take them away. What is refused goes to the reaper.
    ///
    /// # Errors
    /// What is wrong with it.
    fn verify_and_map(object: P::Owned, size: usize) -> Result<Self, P::VerifyError>;
}

/// A snapshot under construction: writable and private to this process.
pub trait SnapshotBuilder<P: Platform>: Sized {
    /// Allocates `len` zeroed bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// Which step failed.
    fn create(name: &str, len: usize) -> Result<Self, P::RegionError>;

    /// Returns the bytes, to be filled.
    fn bytes(&mut self) -> &mut [u8];

    /// Unmaps the bytes and makes them immutable.
    ///
    /// # Errors
    /// The system refused.
    fn seal(self) -> Result<P::Snapshot, P::RegionError>;
}

/// A finished snapshot: immutable for everybody, including this process.
#[allow(clippy::len_without_is_empty, reason = "nobody asks")]
pub trait Snapshot<P: Platform>: Sized {
    /// Creates a snapshot that holds a copy of `bytes`.
    ///
    /// # Errors
    /// Which step failed.
    fn copy_of(name: &str, bytes: &[u8]) -> Result<Self, P::RegionError>;

    /// Returns the length in bytes.
    fn len(&self) -> usize;

    /// Copies the snapshot into private memory.
    ///
    /// # Errors
    /// The system refused.
    fn to_vec(&self) -> Result<Vec<u8>, P::Error>;

    /// Maps the snapshot for reading in this process.
    ///
    /// # Errors
    /// The system refused.
    fn map(&self) -> Result<P::SnapshotMap, P::VerifyError>;
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
    /// The parts do not fit together.
    fn new(parts: Parts<P>) -> Result<Self, P::LinkError>;

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
    fn canceller(&self) -> Result<P::Canceller, P::Error>;

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

/// Waits for many descriptors or handles. It belongs to the thread that created it.
pub trait Poller<P: Platform>: Sized {
    /// Whether a peer's hang-up is reported even if nothing else about its channel is of interest.
    const REPORTS_HANGUP: bool;

    /// Room for the events of one wait, reused from one to the next.
    type Events;

    /// Creates an empty poller with the `wanted` backend where available, and returns which backend it uses.
    ///
    /// # Errors
    /// At the limit of descriptors, handles or memory.
    fn choose(wanted: Backend) -> Result<(Self, BackendStatus), P::Error>;

    /// Watches `object`, which is not watched, from the next wait on. Delete it before it is closed. No token may be `u64::MAX`.
    ///
    /// # Errors
    /// At a limit of the system; where the system notices, it is watched already.
    fn add(
        &mut self,
        object: P::Borrowed<'_>,
        token: u64,
        interest: Interest,
    ) -> Result<(), P::Error>;

    /// Changes what an already watched `object` is watched for.
    ///
    /// # Errors
    /// At a limit of the system; where the system notices, it is not watched.
    fn modify(
        &mut self,
        object: P::Borrowed<'_>,
        token: u64,
        interest: Interest,
    ) -> Result<(), P::Error>;

    /// Stops watching `object` and releases it: its last owner may close it. Returns whether it was watched.
    fn delete(&mut self, object: P::Borrowed<'_>) -> bool;

    /// Waits until something is ready or `timeout` is over (`None`: forever), and returns the number of events. A signal ends
    /// the wait with none.
    ///
    /// # Errors
    /// None in a correct program.
    fn wait(
        &mut self,
        events: &mut Self::Events,
        timeout: Option<Duration>,
    ) -> Result<usize, P::Error>;

    /// Waits until something is ready or `until` has passed (`None`: forever), and returns the number of events; `now` is the
    /// current time. It may end earlier without an event. For callers that wait often with a deadline that rarely expires, which
    /// some systems set at less cost than that of each wait.
    ///
    /// # Errors
    /// As [`Poller::wait`].
    fn sleep(
        &mut self,
        events: &mut Self::Events,
        now: Instant,
        until: Option<Instant>,
    ) -> Result<usize, P::Error> {
        self.wait(events, until.map(|until| until.since(now)))
    }
}

/// Something that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PollEvent {
    /// The token passed to `add`.
    pub token: u64,
    /// It can be read, or it is a process that ended.
    pub readable: bool,
    /// It can be written.
    pub writable: bool,
    /// The other end hung up, or it failed; where [hang-ups are reported](Poller::REPORTS_HANGUP).
    pub hung_up: bool,
}

/// When something that stays ready is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// At each wait while it stays ready.
    Level,
    /// Once for each event; it need not be read.
    Edge,
}

/// What to report, besides a hang-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interest {
    /// Report when it can be read.
    pub readable: bool,
    /// Report when it can be written, where the system can tell.
    pub writable: bool,
    /// How often.
    pub trigger: Trigger,
}

impl Interest {
    /// Reports readable, with this trigger.
    pub const fn readable(trigger: Trigger) -> Self {
        Self { readable: true, writable: false, trigger }
    }

    /// Reports whichever of the two is wanted, as long as it lasts.
    pub const fn exchange(readable: bool, writable: bool) -> Self {
        Self { readable, writable, trigger: Trigger::Level }
    }
}

/// A wait for an endpoint to come up: ready when one may have.
pub trait Arrivals: Sized {
    /// Watches a run directory, which need not exist. Check for the endpoint after this call, and after each
    /// [`Arrivals::take`].
    ///
    /// # Errors
    /// The directory cannot be watched.
    fn watch(run_dir: &Path) -> io::Result<Self>;

    /// Consumes what made it ready.
    ///
    /// # Errors
    /// As of [`Arrivals::watch`]: no further change is noticed.
    fn take(&self) -> io::Result<()>;

    /// Closes what the next wait would use again: a process that has found its provider keeps nothing from others.
    fn release();
}

/// Watches a run directory, or where it was, for files that go or are replaced: ready when something may have happened.
pub trait Notify<P: Platform>: Sized {
    /// Watches a run directory. `None` if that is not possible, or nothing can happen: then changes go unnoticed.
    fn watch(run_dir: &Path) -> Option<Self>;

    /// Returns what to wait for.
    fn changed(&self) -> P::Borrowed<'_>;

    /// Consumes the events and keeps watching the directory, or its nearest existing ancestor. Check the files after this call.
    /// `is_missing` says that some of them were not there before: then nothing else tells that the directory goes.
    fn take(&self, is_missing: bool);
}

impl<P: Platform> Notify<P> for Absent<P> {
    fn watch(_: &Path) -> Option<Self> {
        None
    }

    fn changed(&self) -> P::Borrowed<'_> {
        match self.0 {}
    }

    fn take(&self, _: bool) {
        match self.0 {}
    }
}

/// The sessions whose clients may wait for a board.
pub trait Watchers<P: Platform>: Default {
    /// Registers a session's client.
    fn join(&self, link: &P::Link);

    /// Wakes all clients when the word at `offset` of `board` has changed.
    fn wake(&self, board: &P::OwnRegion, offset: usize);
}
