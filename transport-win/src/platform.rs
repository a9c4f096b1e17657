//! Windows, as the facade sees it.

use std::convert::Infallible;
use std::os::windows::io::{AsHandle, BorrowedHandle, OwnedHandle};
use std::path::PathBuf;

use bellwire_core::Instant;
use bellwire_core::resize::{Resource, Shortage};
use bellwire_shm::platform::Absent;
use bellwire_shm::{Gauge, Platform};
use windows_sys::Win32::Foundation::{
    ERROR_COMMITMENT_LIMIT, ERROR_NO_SYSTEM_RESOURCES, ERROR_NOT_ENOUGH_MEMORY, ERROR_OUTOFMEMORY,
    ERROR_TOO_MANY_OPEN_FILES,
};

use crate::{
    OsError, arrivals, clock, doorbell, endpoint, link, memory, pass, peer, poll, reaper, region,
    snapshot, watch,
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
    type WakeEvent = doorbell::WakeEvent;
    type OwnRegion = region::OwnRegion;
    type PeerRegion = region::PeerRegion;
    type SnapshotBuilder = snapshot::SnapshotBuilder;
    type Snapshot = snapshot::Snapshot;
    type SnapshotMap = snapshot::SnapshotMap;
    type Doorbells = link::Doorbells;
    type Poller = poll::Poller;
    type Arrivals = arrivals::Arrivals;
    type Notify = Absent<Self>;
    type Watchers = watch::Watchers;
    type LifeLock = Absent<Self>;
    type BindError = endpoint::BindError;
    type InheritError = Infallible;

    #[inline]
    fn now() -> Instant {
        clock::now()
    }

    fn memory_limit() -> (u64, Box<dyn Gauge>) {
        memory::limit()
    }

    fn hint(resource: Resource) -> &'static str {
        match resource {
            Resource::Descriptors => "close handles, of this process or of the client's",
            Resource::Memory => "free memory, enlarge the paging file, or raise the job's limit",
            Resource::Maps => "free memory or address space of this process",
            Resource::InFlight | Resource::ControlSocket => "wait for the peer to read",
            _ => "see the code",
        }
    }

    fn shortage(error: OsError) -> Shortage {
        let resource = match error.code() {
            ERROR_NO_SYSTEM_RESOURCES | ERROR_TOO_MANY_OPEN_FILES => Resource::Descriptors,
            ERROR_NOT_ENOUGH_MEMORY | ERROR_OUTOFMEMORY | ERROR_COMMITMENT_LIMIT => {
                Resource::Memory
            }
            _ => Resource::Other,
        };
        Shortage { resource, bytes: 0, code: error.code().cast_signed() }
    }

    fn borrow(handle: &OwnedHandle) -> BorrowedHandle<'_> {
        handle.as_handle()
    }

    fn wait_any(
        handles: &[BorrowedHandle<'_>],
        deadline: Option<Instant>,
    ) -> Result<bool, OsError> {
        poll::wait(handles, deadline).map(|ready| ready.is_some())
    }

    fn reap(handles: impl IntoIterator<Item = OwnedHandle>) {
        handles.into_iter().for_each(reaper::reap);
    }

    fn has_blocked_close(user: peer::User) -> bool {
        reaper::REAPER.has_blocked_close(&user)
    }

    /// Returns the default run directory: `bellwire` below `LOCALAPPDATA`, or below the directory for temporary files without
    /// that.
    fn default_run_dir() -> PathBuf {
        let local = std::env::var_os("LOCALAPPDATA").filter(|local| !local.is_empty());
        local.map_or_else(std::env::temp_dir, PathBuf::from).join("bellwire")
    }
}
