//! Windows, as the facade sees it.

use std::convert::Infallible;
use std::os::windows::io::{BorrowedHandle, OwnedHandle};
use std::path::PathBuf;

use bellwire_core::Instant;
use bellwire_core::resize::{Resource, Shortage};
use bellwire_shm::platform::Absent;
use bellwire_shm::{Gauge, Platform};

use crate::{
    OsError, arrivals, clock, doorbell, endpoint, link, memory, pass, peer, poll, reaper, region,
    shortage, snapshot, watch,
};

/// The platform of this transport: see [`Platform`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {}

impl Platform for Windows {
    type Error = OsError;
    type Owned = OwnedHandle;
    type Borrowed<'a> = BorrowedHandle<'a>;
    type User = peer::User;
    type Group = peer::Group;
    type Credentials = peer::Credentials;
    type Process = peer::Process;
    type Channel = pass::Channel;
    type Endpoint = endpoint::Endpoint;
    type Inherited = Absent<Self>;
    type Event = doorbell::Event;
    type OwnRegion = region::OwnRegion;
    type PeerRegion = region::PeerRegion;
    type SnapshotBuilder = snapshot::SnapshotBuilder;
    type Snapshot = snapshot::Snapshot;
    type SnapshotMap = snapshot::SnapshotMap;
    type Link = link::Link;
    type Poller = poll::Poller;
    type Arrivals = arrivals::Arrivals;
    type Notify = Absent<Self>;
    type Watchers = watch::Watchers;
    type LifeLock = Absent<Self>;
    type ConnectError = endpoint::ConnectError;
    type BindError = endpoint::BindError;
    type InheritError = Infallible;

    #[inline]
    fn now() -> Instant {
        clock::now()
    }

    fn wall_nanos() -> u64 {
        clock::wall_nanos()
    }

    fn memory_limit() -> (u64, Box<dyn Gauge>) {
        memory::limit()
    }

    fn hint(resource: Resource) -> &'static str {
        shortage::hint(resource)
    }

    fn shortage(error: OsError) -> Shortage {
        shortage::of(error)
    }

    fn wait_any(
        handles: &[BorrowedHandle<'_>],
        deadline: Option<Instant>,
    ) -> Result<bool, OsError> {
        poll::wait(handles, deadline).map(|ready| ready.is_some())
    }

    fn reap(handles: impl IntoIterator<Item = OwnedHandle>) {
        reaper::reap_all(handles);
    }

    fn has_blocked_close(user: peer::User) -> bool {
        reaper::has_blocked_close(user)
    }

    fn default_run_dir() -> PathBuf {
        endpoint::default_run_dir()
    }
}
