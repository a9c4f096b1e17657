#![allow(unsafe_code, reason = "says why the mapped ranges may be read, written and waited on")]
//! Memory that only one process writes: the kernel denies it to others by seals.
//!
//! [`OwnRange`] and [`PeerRange`] define the accesses: no slice is ever formed over this memory.

use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use bellwire_core::sync::AtomicU32;
use bellwire_shm::platform;
use bellwire_shm::{Loan, LoanAccount, OwnRange, PeerRange};
use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};

use crate::Linux;
use crate::doorbell::FutexWord;
use crate::lease::Watch;
use crate::mapping::Mapping;
pub use crate::sealed::{RegionError, VerifyError};
use crate::{clock, sealed};
pub use bellwire_shm::{ReceiveRegion, TransmitRegion};

/// The seals of such memory, in the kernel's numbers.
const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// Memory that this process created and only it writes: a page, a lane or a board.
///
/// The memfd ([`memfd_create(2)`](https://man7.org/linux/man-pages/man2/memfd_create.2.html)) is first mapped read-write and
/// then sealed `SHRINK | GROW | FUTURE_WRITE | SEAL` (Linux 5.1), so that this mapping remains the only way to change a byte.
/// A forked child does not inherit it.
///
/// Only one thread at a time may use it (`Send`, not `Sync`): [`OwnRange::write`] is an ordinary copy.
#[derive(Debug)]
pub struct OwnRegion {
    range: OwnRange,
    // Shared with the life lock inside it: the kernel accesses that when the thread dies.
    mapping: Arc<Mapping>,
    // Dropped last. Keeps counting after the unmap here while a peer has the memory.
    loan: Option<Loan>,
}

/// Memory that the peer created and only the peer writes, mapped read-only.
#[derive(Debug)]
pub struct PeerRegion {
    range: PeerRange,
    // Unmaps on drop, after the last use of `range`.
    _mapping: Mapping,
}

impl OwnRegion {
    /// Wakes one thread that is parked on the low half of the word at `offset` and returns whether there was one.
    #[inline]
    pub fn wake_one(&self, offset: usize) -> bool {
        self.word(offset).wake_one()
    }

    /// Wakes every thread that is parked on the low half of the word at `offset` and returns how many there were.
    pub fn wake_all(&self, offset: usize) -> usize {
        self.word(offset).wake_all()
    }

    /// Returns the word to wake at. It stays private, since another thread might load it while this one writes.
    #[inline]
    fn word(&self, offset: usize) -> FutexWord<'_> {
        // SAFETY: aligned, and mapped as long as `self`; a wake does not access it.
        FutexWord::new(unsafe { self.range.low_half(offset).cast::<AtomicU32>().as_ref() })
    }

    /// Returns the life word's bytes and the mapping that keeps them mapped: see [`OwnRange::take_life`].
    pub(crate) fn take_life(&self) -> Option<(Arc<Mapping>, NonNull<u8>)> {
        self.range.take_life().map(|at| (Arc::clone(&self.mapping), at))
    }
}

impl platform::OwnRegion<Linux> for OwnRegion {
    fn create(
        name: &str,
        size: usize,
        init: impl FnOnce(&Self),
    ) -> Result<(Self, OwnedFd), RegionError> {
        let (memfd, mapping) = sealed::make(name, size)?;
        // SAFETY: a shared mapping of whole pages for reading and writing, which lives as long as the region and is
        // reached through this alone, but for the life lock's words, which the kernel and atomics write.
        let range = unsafe { OwnRange::new(mapping.start(), mapping.len()) };
        let region = Self { range, mapping: Arc::new(mapping), loan: None };
        init(&region);
        // Sealed after mapping, or the owner would be locked out; sealed before sending, or the peer could write.
        sealed::seal(&memfd, SEALS)?;
        Ok((region, memfd))
    }

    fn lend(
        account: &LoanAccount,
        name: &str,
        size: usize,
        init: impl FnOnce(&Self),
    ) -> Result<(Self, OwnedFd), RegionError> {
        let charge = account.quota.charge_lent(size as u64, clock::now())?;
        let (mut region, memfd) = Self::create(name, size, init)?;
        let watched = if account.is_watching { Watch::begin(memfd.as_fd()) } else { None };
        let (watch, passed) = watched.unzip();
        region.loan = Some(Watch::loan(watch, charge));
        Ok((region, passed.unwrap_or(memfd)))
    }
}

impl PeerRegion {
    /// Returns the low half of the word at `offset`, to park on.
    ///
    /// # Panics
    /// If that is not an aligned word inside the region.
    #[inline]
    pub fn word(&self, offset: usize) -> FutexWord<'_> {
        // SAFETY: aligned, and mapped for reading as long as `self`; this process loads it as atomics only, and a
        // `FutexWord` can do nothing else.
        FutexWord::new(unsafe { self.range.low_half(offset).cast::<AtomicU32>().as_ref() })
    }
}

impl platform::PeerRegion<Linux> for PeerRegion {
    /// Checks a peer's memfd and maps it read-only.
    ///
    /// It must hold the seals `SHRINK`, `GROW`, `SEAL`, and `FUTURE_WRITE` or `WRITE`; be a regular file of exactly
    /// `expected_size` bytes with all pages allocated; and not use hugetlbfs pages.
    ///
    /// # Errors
    /// [`VerifyError`] says what is wrong with it.
    fn check_and_map(fd: BorrowedFd<'_>, expected_size: usize) -> Result<Self, VerifyError> {
        sealed::check(fd, SEALS, expected_size as u64)?;
        let mapping = Mapping::new(fd, expected_size, ProtFlags::READ, MapFlags::SHARED)
            .map_err(sealed::unmapped)?;
        // SAFETY: a mapping of whole pages for reading, which lives as long as the region. It stays readable, since
        // SHRINK is sealed. It is never written through this.
        let range = unsafe { PeerRange::new(mapping.start(), mapping.len()) };
        Ok(Self { range, _mapping: mapping })
    }
}

impl Deref for OwnRegion {
    type Target = OwnRange;

    #[inline]
    fn deref(&self) -> &OwnRange {
        &self.range
    }
}

impl Deref for PeerRegion {
    type Target = PeerRange;

    #[inline]
    fn deref(&self) -> &PeerRange {
        &self.range
    }
}
