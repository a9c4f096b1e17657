//! What a transport provides: the contract between the facade and one operating system.
//!
//! A transport implements [`Platform`] for a type without values, which names the transport's types, and for each of those the
//! trait here that has its name. So a port that lacks a function does not compile, and the compiler names the function. Errors
//! and memory orderings are the same on every system unless the transport's own documentation says more.

mod admission;
mod endpoint;
mod error;
mod link;
mod memory;
mod peer;
mod poll;

use std::convert::Infallible;
use std::error::Error;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fmt, io};

use bellwire_core::resize::{Resource, Shortage};
use bellwire_core::sync::AtomicU32;
use bellwire_core::{Instant, nanos};

use crate::quota::Gauge;

pub use admission::Admission;
pub use endpoint::{
    Arrivals, ConnectError, Endpoint, EndpointInfo, Inherited, ListError, Liveness, Notify, list,
    lock_path,
};
pub use error::{ReceiveError, RegionError, SendError, VerifyError};
pub use link::{Doorbells, LifeLock, LifeState, Parts, WakeEvent, Watchers};
pub use memory::{OwnRegion, PeerRegion, Snapshot, SnapshotBuilder, SnapshotMap};
pub use peer::{Channel, Credentials, Process};
pub use poll::{Interest, PollEvent, Poller, Trigger};

/// Every trait of this module, for a caller of their functions.
pub mod prelude {
    pub use super::{
        Arrivals as _, Channel as _, Credentials as _, Doorbells as _, Endpoint as _,
        Inherited as _, LifeLock as _, Notify as _, OwnRegion as _, PeerRegion as _, Platform,
        Poller as _, Process as _, Snapshot as _, SnapshotBuilder as _, SnapshotMap as _,
        WakeEvent as _, Watchers as _,
    };
}

/// An operating system: its types, its clocks and its limits.
pub trait Platform: Sized + 'static {
    /// The error of a system call.
    type Error: Error + Copy + Into<io::Error> + 'static;
    /// A descriptor or handle.
    type Owned: 'static;
    /// The same, borrowed.
    type Borrowed<'a>: Copy;
    /// A user of this machine.
    type User: Copy + Eq + fmt::Debug + fmt::Display + 'static;
    /// A group of users.
    type Group: Copy + Eq + 'static;
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
    /// The doorbell that is a descriptor or handle.
    type WakeEvent: WakeEvent<Self> + Send + Sync;
    /// Memory that this process writes.
    type OwnRegion: OwnRegion<Self>;
    /// Memory that the peer writes.
    type PeerRegion: PeerRegion<Self>;
    /// A snapshot under construction.
    type SnapshotBuilder: SnapshotBuilder<Self>;
    /// A finished snapshot.
    type Snapshot: Snapshot<Self>;
    /// A readable snapshot.
    type SnapshotMap: SnapshotMap<Self>;
    /// The doorbells of one end of a session.
    type Doorbells: Doorbells<Self>;
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
    /// Why a name could not be taken.
    type BindError: Error;
    /// Why sockets that were handed over are not used.
    type InheritError: Error;

    /// Returns the time on a clock that all processes of the machine share and that nobody sets.
    fn now() -> Instant;

    /// Returns nanoseconds since 1970: for display, never for a wait.
    fn wall_nanos() -> u64 {
        nanos(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }

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

    /// Borrows a descriptor or handle.
    fn borrow(object: &Self::Owned) -> Self::Borrowed<'_>;

    /// Opens the spare descriptor again that a receive may have given up, once what was received is closed; nothing, the default,
    /// where there is none.
    fn keep_spare() {}

    /// Wakes the threads of this process that sleep on `word`; nothing, the default, where none can.
    fn wake(word: &AtomicU32) {
        let _ = word;
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
