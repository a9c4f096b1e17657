#![allow(
    unsafe_code,
    reason = "slices over memory that is private, or that the kernel keeps constant"
)]
//! Memory that is never written again: published once, mapped by many.

use crate::Linux;
use crate::prelude::*;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::slice;
use std::sync::{Arc, Mutex};

use bellwire_core::sync::{AtomicBool, Ordering};
use bellwire_shm::platform;
use bellwire_shm::{Loan, LoanAccount, Quota, lock};
use rustix::buffer::spare_capacity;
use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::lease::Watch;
use crate::mapping::{HUGE, Mapping};
pub use crate::sealed::{RegionError, VerifyError};
use crate::{clock, reaper, sealed};

/// The seals of a snapshot, in the kernel's numbers.
const SEALS: SealFlags =
    SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::SEAL);

/// Whether this kernel refuses to map a write-sealed file shared.
static SHARED_IS_REFUSED: AtomicBool = AtomicBool::new(false);

/// A snapshot under construction: writable and private to this process.
#[derive(Debug)]
pub struct SnapshotBuilder {
    mapping: Mapping,
    memfd: OwnedFd,
    len: usize,
}

/// A finished snapshot: immutable for everybody, including this process. Send [`Snapshot::as_fd`] to its readers.
#[derive(Debug)]
pub struct Snapshot {
    fd: Arc<OwnedFd>,
    len: usize,
    /// The memory that peers on a quota have: this one, and copies for users who keep much. The kernel reports whether
    /// anybody has a memfd, not who. So a user who keeps what others have too would fill their quotas.
    lent: Mutex<Vec<SharedCopy>>,
}

/// Memory with the bytes of a snapshot, as peers on a quota receive it.
#[derive(Debug)]
struct SharedCopy {
    passed: Arc<OwnedFd>,
    /// Reports when they have returned it.
    watch: Option<Watch>,
    is_shared: bool,
    /// One loan per user.
    loans: Vec<(Arc<Quota>, Loan)>,
}

/// A readable snapshot, mapped, or copied if it is short. The bytes are constant: the kernel has sealed them against writing,
/// or they are private to this process.
#[derive(Debug)]
pub struct SnapshotMap(Bytes);

#[derive(Debug)]
enum Bytes {
    Mapped { mapping: Mapping, len: usize },
    Copied(Vec<u8>),
}

/// Snapshots up to this many bytes are copied. A copy of one page takes a ninth of the time of mapping, touching and
/// unmapping it; 140 KiB take half the time, and from 1 MiB on it takes as long (`docs/adr/0031-snapshot-prefetch.md`).
const COPIED_UP_TO: usize = 256 << 10;

impl platform::SnapshotBuilder<Linux> for SnapshotBuilder {
    fn create(name: &str, len: usize) -> Result<Self, RegionError> {
        let too_large = RegionError::Allocate { size: len as u64, source: Errno::FBIG };
        let size = file_size(len).ok_or(too_large)?;
        let (memfd, mapping) = sealed::make(name, size)?;
        Ok(Self { mapping, memfd, len })
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `len` bytes of a mapping that lives as long as `self` and is borrowed mutably. The
        // descriptor has not left this struct, so nobody else has the memory mapped.
        unsafe { slice::from_raw_parts_mut(self.mapping.start().as_ptr(), self.len) }
    }

    /// Unmaps the bytes and seals them `WRITE | SHRINK | GROW | SEAL`
    /// ([`F_ADD_SEALS`](https://man7.org/linux/man-pages/man2/F_ADD_SEALS.2const.html), Linux 3.17).
    ///
    /// # Errors
    /// [`RegionError::Seal`]; `EBUSY` means that they are mapped for writing elsewhere, or that their pages were pinned for
    /// over a second.
    fn seal(self) -> Result<Snapshot, RegionError> {
        let Self { mapping, memfd, len } = self;
        // Any live writable mapping, including our own, makes F_SEAL_WRITE fail.
        drop(mapping);
        Snapshot::sealed(memfd, len)
    }
}

impl Snapshot {
    fn sealed(memfd: OwnedFd, len: usize) -> Result<Self, RegionError> {
        sealed::seal(&memfd, SEALS)?;
        Ok(Self { fd: Arc::new(memfd), len, lent: Mutex::default() })
    }

    /// Returns the descriptor to send to a peer, and charges the snapshot to the peer's user until no peer's process has it
    /// any more. A user who already keeps memory gets a copy.
    ///
    /// # Errors
    /// [`RegionError`]: it must not be sent, or there are no resources for a copy.
    pub fn lend(&self, account: &LoanAccount) -> Result<Arc<OwnedFd>, RegionError> {
        let mut all = lock(&self.lent);
        let has_it =
            |lent: &&SharedCopy| lent.loans.iter().any(|(to, _)| Arc::ptr_eq(to, &account.quota));
        if let Some(lent) = all.iter().find(has_it) {
            return Ok(Arc::clone(&lent.passed));
        }
        let charge = account.quota.charge_lent(self.len as u64, clock::now())?;
        let is_shared = !account.quota.exceeds_sharing_limit(self.len as u64);
        let mut lent = match all.iter().position(|lent| is_shared && lent.is_shared) {
            Some(at) => all.swap_remove(at),
            None if all.is_empty() => SharedCopy::new(Arc::clone(&self.fd), is_shared),
            None => SharedCopy::new(self.copied()?, is_shared),
        };
        lent.loans.push((Arc::clone(&account.quota), Watch::loan(lent.watch.clone(), charge)));
        let passed = Arc::clone(&lent.passed);
        all.push(lent);
        Ok(passed)
    }

    fn copied(&self) -> Result<Arc<OwnedFd>, RegionError> {
        let size = self.len as u64;
        let map = self.map().map_err(|_| RegionError::Map { size, source: Errno::NOMEM })?;
        Ok(Self::copy_of("bellwire-snapshot", &map)?.fd)
    }
}

impl platform::Snapshot<Linux> for Snapshot {
    /// Creates a snapshot that holds a copy of `bytes`.
    ///
    /// Below 2 MiB this writes to the file instead of mapping it: a third of the cost, since no page is cleared first or
    /// faulted in.
    ///
    /// # Errors
    /// [`RegionError`] says which step failed.
    fn copy_of(name: &str, bytes: &[u8]) -> Result<Self, RegionError> {
        if bytes.is_empty() || bytes.len() >= HUGE {
            let mut builder = SnapshotBuilder::create(name, bytes.len())?;
            builder.bytes().copy_from_slice(bytes);
            return builder.seal();
        }
        let size = file_size(bytes.len()).unwrap_or(HUGE);
        Self::sealed(sealed::make_of(name, bytes, size)?, bytes.len())
    }

    fn len(&self) -> usize {
        self.len
    }

    fn lend_to<R>(
        &self,
        account: Option<&LoanAccount>,
        pass: impl FnOnce(BorrowedFd<'_>) -> R,
    ) -> Result<R, RegionError> {
        let lent = account.map(|account| self.lend(account)).transpose()?;
        Ok(pass(lent.as_ref().map_or(self.as_fd(), AsFd::as_fd)))
    }

    fn to_vec(&self) -> Result<Vec<u8>, Errno> {
        copy_of(self.fd.as_fd(), self.len)
    }

    fn map(&self) -> Result<SnapshotMap, VerifyError> {
        let size = file_size(self.len).ok_or(VerifyError::System { source: Errno::FBIG })?;
        SnapshotMap::map(self.fd.as_fd(), size, self.len)
    }
}

impl SharedCopy {
    fn new(fd: Arc<OwnedFd>, is_shared: bool) -> Self {
        let (watch, passed) = Watch::begin(fd.as_fd())
            .map_or((None, fd), |(watch, passed)| (Some(watch), Arc::new(passed)));
        Self { passed, watch, is_shared, loans: Vec::new() }
    }
}

impl AsFd for Snapshot {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl SnapshotMap {
    fn map(fd: BorrowedFd<'_>, size: usize, len: usize) -> Result<Self, VerifyError> {
        let private = || Mapping::inherited(fd, size, ProtFlags::READ, MapFlags::PRIVATE);
        // Before Linux 6.7 a write-sealed file cannot be mapped shared, not even for reading. A private mapping that is never
        // written shares the same pages.
        let mapping = if SHARED_IS_REFUSED.load(Ordering::Relaxed) {
            private()
        } else {
            match Mapping::inherited(fd, size, ProtFlags::READ, MapFlags::SHARED) {
                Err(Errno::PERM | Errno::ACCESS | Errno::INVAL) => {
                    let mapping = private();
                    SHARED_IS_REFUSED.fetch_or(mapping.is_ok(), Ordering::Relaxed);
                    mapping
                }
                shared => shared,
            }
        };
        let mapping = mapping.map_err(sealed::unmapped)?;
        Ok(Self(Bytes::Mapped { mapping, len }))
    }
}

impl platform::SnapshotMap<Linux> for SnapshotMap {
    /// Copies up to 256 KiB instead of mapping them.
    ///
    /// It must hold the seals `WRITE`, `SHRINK`, `GROW` and `SEAL`; be a regular file of `len` bytes rounded up to whole
    /// pages, all allocated; and not use hugetlbfs pages.
    fn of_peer(fd: OwnedFd, len: usize, _is_trusted: bool) -> Result<Self, VerifyError> {
        // A length that no file has differs from that of any.
        let size = file_size(len).unwrap_or(usize::MAX);
        if let Err(error) = sealed::check(fd.as_fd(), SEALS, size as u64) {
            reaper::reap(fd);
            return Err(error);
        }
        if len > COPIED_UP_TO {
            return Self::map(fd.as_fd(), size, len);
        }
        match copy_of(fd.as_fd(), len) {
            Ok(copy) => Ok(Self(Bytes::Copied(copy))),
            // The descriptor is open, but not for reading.
            Err(Errno::BADF) => Err(VerifyError::Unreadable),
            Err(source) => Err(VerifyError::System { source }),
        }
    }
}

impl Deref for SnapshotMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            // SAFETY: `len` bytes of a mapping that lives as long as `self`. The file holds F_SEAL_WRITE,
            // which the kernel grants only when no writable mapping is left and after which there never is
            // one again, and F_SEAL_SHRINK: the bytes are there and constant.
            Bytes::Mapped { mapping, len } => unsafe {
                slice::from_raw_parts(mapping.start().as_ptr(), *len)
            },
            Bytes::Copied(bytes) => bytes,
        }
    }
}

/// Returns a copy of the first `len` bytes of a snapshot.
fn copy_of(fd: BorrowedFd<'_>, len: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let at = bytes.len() as u64;
        match rustix::io::pread(fd, spare_capacity(&mut bytes), at) {
            // Sealed against shrinking: there is no early end.
            Ok(0) => return Err(Errno::IO),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    // The copy may include the padding of the last page.
    bytes.truncate(len);
    Ok(bytes)
}

/// Returns the file size for `len` bytes: whole pages, at least one; `None` on overflow.
fn file_size(len: usize) -> Option<usize> {
    let size = len.max(1).checked_next_multiple_of(rustix::param::page_size())?;
    isize::try_from(size).is_ok().then_some(size)
}
