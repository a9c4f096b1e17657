//! Linux, as the facade sees it.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use bellwire_core::Instant;
use bellwire_core::resize::{Resource, Shortage};
use bellwire_core::sync::AtomicU32;
use bellwire_shm::{Gauge, Platform};
use rustix::io::Errno;
use rustix::process::{Resource as Limit, getrlimit};

use crate::{
    arrivals, clock, doorbell, endpoint, life, link, memory, notify, pass, peer, poll, reaper,
    region, snapshot, spare, watch,
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
    type WakeEvent = doorbell::WakeEvent;
    type OwnRegion = region::OwnRegion;
    type PeerRegion = region::PeerRegion;
    type SnapshotBuilder = snapshot::SnapshotBuilder;
    type Snapshot = snapshot::Snapshot;
    type SnapshotMap = snapshot::SnapshotMap;
    type Doorbells = link::Doorbells;
    type Poller = poll::Poller;
    type Arrivals = arrivals::Arrivals;
    type Notify = notify::Notify;
    type Watchers = watch::Watchers;
    type LifeLock = life::LifeLock;
    type BindError = endpoint::BindError;
    type InheritError = endpoint::InheritError;

    #[inline]
    fn now() -> Instant {
        clock::now()
    }

    fn memory_limit() -> (u64, Box<dyn Gauge>) {
        memory::limit()
    }

    fn max_maps() -> Option<usize> {
        fs::read_to_string("/proc/sys/vm/max_map_count").ok()?.trim().parse().ok()
    }

    fn hint(resource: Resource) -> &'static str {
        match resource {
            Resource::Descriptors => "raise the limit of open files (RLIMIT_NOFILE)",
            Resource::Memory => {
                "free memory, or raise the limit of the memory cgroup or of file sizes"
            }
            Resource::Maps => "raise vm.max_map_count or RLIMIT_AS",
            Resource::InFlight => "wait for peers to receive theirs, or raise RLIMIT_NOFILE",
            Resource::ControlSocket => "wait for the peer to read",
            _ => "see the code",
        }
    }

    fn shortage(error: Errno) -> Shortage {
        let resource = match error {
            Errno::MFILE | Errno::NFILE => Resource::Descriptors,
            Errno::NOMEM | Errno::NOSPC | Errno::NOBUFS => Resource::Memory,
            _ => Resource::Other,
        };
        Shortage { resource, bytes: 0, code: error.raw_os_error() }
    }

    /// Of the soft limit, [`RLIMIT_NOFILE`](https://man7.org/linux/man-pages/man2/getrlimit.2.html).
    fn fd_usage_eighths(newest: BorrowedFd<'_>, held: usize) -> usize {
        let taken = held.max(usize::try_from(newest.as_raw_fd()).unwrap_or(0));
        let limit = getrlimit(Limit::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
        limit.map_or(0, |limit| taken.saturating_mul(8) / limit.max(1))
    }

    fn borrow(fd: &OwnedFd) -> BorrowedFd<'_> {
        fd.as_fd()
    }

    fn keep_spare() {
        spare::keep();
    }

    fn wake(word: &AtomicU32) {
        doorbell::FutexWord::new(word).wake_all();
    }

    fn wait_any(fds: &[BorrowedFd<'_>], deadline: Option<Instant>) -> Result<bool, Errno> {
        poll::wait_readable(fds, deadline).map(poll::Ready::any)
    }

    fn reap(fds: impl IntoIterator<Item = OwnedFd>) {
        fds.into_iter().for_each(reaper::reap);
    }

    fn has_blocked_close(user: peer::User) -> bool {
        reaper::REAPER.has_blocked_close(&user)
    }

    fn default_run_dir() -> PathBuf {
        endpoint::default_run_dir()
    }

    fn owner_trusted_by_root(run_dir: &Path) -> Option<peer::User> {
        endpoint::owner_trusted_by_root(run_dir)
    }
}
