//! Linux, as the facade sees it.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use bellwire_core::Instant;
use bellwire_core::resize::{Resource, Shortage};
use bellwire_core::sync::AtomicU32;
use bellwire_shm::{Gauge, Platform};
use rustix::io::Errno;

use crate::{
    arrivals, clock, doorbell, endpoint, life, link, memory, notify, pass, peer, poll, reaper,
    region, shortage, snapshot, watch,
};

/// The platform of this transport: see [`Platform`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linux {}

impl Platform for Linux {
    type Error = Errno;
    type Owned = OwnedFd;
    type Borrowed<'a> = BorrowedFd<'a>;
    type User = peer::User;
    type Group = peer::Group;
    type Credentials = peer::Credentials;
    type Process = peer::Process;
    type Channel = pass::Channel;
    type Endpoint = endpoint::Endpoint;
    type Inherited = endpoint::Inherited;
    type Event = doorbell::Event;
    type OwnRegion = region::OwnRegion;
    type PeerRegion = region::PeerRegion;
    type SnapshotBuilder = snapshot::SnapshotBuilder;
    type Snapshot = snapshot::Snapshot;
    type SnapshotMap = snapshot::SnapshotMap;
    type Link = link::Link;
    type Poller = poll::Poller;
    type Arrivals = arrivals::Arrivals;
    type Notify = notify::Notify;
    type Watchers = watch::Watchers;
    type LifeLock = life::LifeLock;
    type ConnectError = endpoint::ConnectError;
    type BindError = endpoint::BindError;
    type InheritError = endpoint::InheritError;

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

    fn max_maps() -> Option<usize> {
        memory::max_maps()
    }

    fn hint(resource: Resource) -> &'static str {
        shortage::hint(resource)
    }

    fn shortage(error: Errno) -> Shortage {
        shortage::of(error)
    }

    fn fd_usage_eighths(newest: BorrowedFd<'_>, held: usize) -> usize {
        shortage::fd_usage_eighths(newest, held)
    }

    fn wake(word: &AtomicU32) {
        doorbell::FutexWord::new(word).wake_all();
    }

    fn wait_any(fds: &[BorrowedFd<'_>], deadline: Option<Instant>) -> Result<bool, Errno> {
        poll::wait_any(fds, deadline)
    }

    fn reap(fds: impl IntoIterator<Item = OwnedFd>) {
        reaper::reap_all(fds);
    }

    fn has_blocked_close(user: peer::User) -> bool {
        reaper::has_blocked_close(user)
    }

    fn default_run_dir() -> PathBuf {
        endpoint::default_run_dir()
    }

    fn owner_trusted_by_root(run_dir: &Path) -> Option<peer::User> {
        endpoint::owner_trusted_by_root(run_dir)
    }
}
