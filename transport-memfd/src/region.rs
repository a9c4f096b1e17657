#![allow(unsafe_code, reason = "loads, stores and copies in memory that two processes have mapped")]
//! Memory that one process alone writes: sealed so that the kernel lets nobody else.
//!
//! No slice is ever formed over it. Words are reached as atomics, bytes by raw copies, and what a copy
//! brought is parsed only once it lies in private memory.

use std::arch::asm;
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use bellwire_core::sync::{AtomicU32, AtomicU64, Ordering, fence};
use memfd::FileSeal;
use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};

use crate::doorbell::FutexWord;
use crate::mapping::Mapping;
pub use crate::sealed::{RegionError, VerifyError};
use crate::{reaper, sealed};

/// Memory that this process made and alone writes: a page, a lane or a board.
///
/// The memfd ([`memfd_create(2)`](https://man7.org/linux/man-pages/man2/memfd_create.2.html)) is mapped
/// read-write first and sealed `SHRINK | GROW | FUTURE_WRITE | SEAL` then (Linux 5.1), so that this
/// mapping stays the only way to change a byte. A forked child does not inherit it.
///
/// One thread at a time uses it (`Send`, not `Sync`): [`OwnRegion::write`] is an ordinary copy.
#[derive(Debug)]
pub struct OwnRegion {
    range: Range,
    // Shared with the life lock that may stand in it: the kernel looks there when the thread dies.
    mapping: Arc<Mapping>,
    not_sync: PhantomData<Cell<u8>>,
}

/// Memory that the peer made and alone writes, mapped read-only.
#[derive(Debug)]
pub struct PeerRegion {
    range: Range,
    // Unmaps on drop, after the last use of `range`.
    _mapping: Mapping,
}

/// A mapped range, and the checks of offsets into it.
#[derive(Clone, Copy, Debug)]
struct Range {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the pointer is into a mapping that any thread may use, and that lives as long as the region.
unsafe impl Send for OwnRegion {}
// SAFETY: as for `OwnRegion`.
unsafe impl Send for PeerRegion {}
// SAFETY: no method of a peer's region writes.
unsafe impl Sync for PeerRegion {}

impl OwnRegion {
    /// Makes `size` bytes, zeroed, lets `init` write what stays constant, and seals them. Returns the
    /// descriptor too: send it to the peer, then drop it.
    ///
    /// # Errors
    /// [`RegionError`] says which step failed. Past a memory cgroup's limit the kernel ends the process
    /// instead: bound `size`.
    pub fn create(
        name: &str,
        size: usize,
        init: impl FnOnce(&Self),
    ) -> Result<(Self, OwnedFd), RegionError> {
        let (memfd, mapping) = sealed::make(name, size)?;
        let range = Range { start: mapping.start(), len: mapping.len() };
        let region = Self { range, mapping: Arc::new(mapping), not_sync: PhantomData };
        init(&region);
        // Sealed after mapping, or the owner would be locked out; before sending, or the peer could write.
        sealed::seal(
            &memfd,
            &[
                FileSeal::SealShrink,
                FileSeal::SealGrow,
                FileSeal::SealFutureWrite,
                FileSeal::SealSeal,
            ],
        )?;
        Ok((region, memfd.into_file().into()))
    }

    /// The size in bytes.
    pub fn size(&self) -> usize {
        self.range.len
    }

    /// Stores a word with at least the ordering given. Does nothing when `offset` is not that of an
    /// aligned word inside the region, which is the caller's mistake.
    #[inline]
    pub fn store_u64(&self, offset: usize, value: u64, order: Ordering) {
        let Some(word) = self.range.word64(offset) else { return };
        match order {
            Ordering::Relaxed => word.store(value, Ordering::Relaxed),
            Ordering::SeqCst => word.store(value, Ordering::SeqCst),
            _ => word.store(value, Ordering::Release),
        }
    }

    /// Loads a word that this side stored earlier; 0 outside.
    #[inline]
    pub fn load_u64(&self, offset: usize, order: Ordering) -> u64 {
        self.range.load(offset, order)
    }

    /// Copies `bytes` in at `offset`. Does nothing when they do not fit: the caller has checked, and an
    /// always-on comparison backs it.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let Some(to) = self.range.at(offset, bytes.len()) else { return };
        // SAFETY: `at` has checked that the range is inside the mapping, which lives as long as `self`;
        // `bytes` is private memory, so the two do not overlap. `self` is not Sync: nobody else in this
        // process writes here, and the kernel lets no other process.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
    }

    /// A hint that `offset` will be written soon: takes its cache line away from other processors now.
    #[inline]
    pub fn will_write(&self, offset: usize) {
        if let Some(at) = self.range.at(offset, 1) {
            prefetch::<true>(at);
        }
    }

    /// The low half of the word at `offset`, to wake at; `None` outside the region.
    #[inline]
    pub fn word(&self, offset: usize) -> Option<FutexWord<'_>> {
        self.range.word32(offset)
    }

    /// The mapping and the address of `len` bytes in it, for the life lock.
    pub(crate) fn share(&self, offset: usize, len: usize) -> Option<(Arc<Mapping>, NonNull<u8>)> {
        self.range.at(offset, len).map(|at| (Arc::clone(&self.mapping), at))
    }
}

impl PeerRegion {
    /// Checks a peer's memfd and maps it read-only; closes the descriptor either way, a refused one on
    /// the reaper thread.
    ///
    /// It must hold the seals `SHRINK`, `GROW`, `SEAL`, and `FUTURE_WRITE` or `WRITE`; be a regular file
    /// of exactly `expected_size` bytes with all pages allocated; and not lie on huge pages.
    ///
    /// # Errors
    /// [`VerifyError`] says what is wrong with it.
    pub fn verify_and_map(fd: OwnedFd, expected_size: usize) -> Result<Self, VerifyError> {
        Self::check_and_map(fd.as_fd(), expected_size).inspect_err(|_| reaper::reap(fd))
    }

    /// Checks and maps like [`PeerRegion::verify_and_map`], and leaves the descriptor to the caller.
    pub(crate) fn check_and_map(
        fd: BorrowedFd<'_>,
        expected_size: usize,
    ) -> Result<Self, VerifyError> {
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        sealed::check(fd, seals, expected_size as u64)?;
        let mapping = Mapping::new(fd, expected_size, ProtFlags::READ, MapFlags::SHARED)
            .map_err(sealed::unmapped)?;
        let range = Range { start: mapping.start(), len: mapping.len() };
        Ok(Self { range, _mapping: mapping })
    }

    /// The size in bytes.
    pub fn size(&self) -> usize {
        self.range.len
    }

    /// Loads a word with at least the ordering given; 0 when `offset` is not that of an aligned word
    /// inside the region, which is the caller's mistake.
    #[inline]
    pub fn load_u64(&self, offset: usize, order: Ordering) -> u64 {
        self.range.load(offset, order)
    }

    /// Copies `into.len()` bytes at `offset` out. What stands in `into` afterwards cannot change any
    /// more, whatever the peer writes meanwhile. Zeroes where the region ends too early: the caller has
    /// checked, and an always-on comparison backs it.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        let Some(from) = self.range.at(offset, into.len()) else {
            into.fill(0);
            return;
        };
        // SAFETY: `at` has checked that the range is inside the mapping, which lives as long as `self`;
        // it stays readable, since SHRINK is sealed. `into` is private, so the two do not overlap. The
        // peer may write at the same time: any mix of old and new bytes is a valid `[u8]`.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
        opaque(into.as_mut_ptr());
    }

    /// Copies `N` bytes at `offset` out, as [`PeerRegion::read`] does.
    #[inline]
    pub fn read_header<const N: usize>(&self, offset: usize) -> [u8; N] {
        let Some(from) = self.range.at(offset, N) else { return [0; N] };
        let mut copy = MaybeUninit::<[u8; N]>::uninit();
        // SAFETY: as in `read`; `copy` has room for N bytes.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), copy.as_mut_ptr().cast::<u8>(), N) };
        opaque(copy.as_mut_ptr().cast());
        // SAFETY: all N bytes were written above.
        unsafe { copy.assume_init() }
    }

    /// A hint that `offset` will be read at once: starts to fetch its cache line.
    #[inline]
    pub fn will_read(&self, offset: usize) {
        if let Some(at) = self.range.at(offset, 1) {
            prefetch::<false>(at);
        }
    }

    /// The low half of the word at `offset`, to park on; `None` outside the region.
    #[inline]
    pub fn word(&self, offset: usize) -> Option<FutexWord<'_>> {
        self.range.word32(offset)
    }
}

impl Range {
    /// The address of `len` bytes at `offset`; `None` when they are not all inside.
    #[inline]
    fn at(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let inside = offset <= self.len && len <= self.len - offset;
        debug_assert!(inside, "{len} bytes at {offset} are not inside {}", self.len);
        // SAFETY: `offset` is at most the mapping's length, so that the result stays in it or at its end.
        inside.then(|| unsafe { self.start.add(offset) })
    }

    #[inline]
    fn word64(&self, offset: usize) -> Option<&AtomicU64> {
        let at = self.aligned(offset)?.cast();
        // SAFETY: inside the mapping, aligned for u64, and only ever reached through atomics: the word
        // areas of pages and boards and the record area of lanes do not overlap.
        Some(unsafe { AtomicU64::from_ptr(at.as_ptr()) })
    }

    #[inline]
    fn word32(&self, offset: usize) -> Option<FutexWord<'_>> {
        let at = self.aligned(offset)?.cast();
        // SAFETY: as in `word64`; the low half comes first on a little-endian machine.
        Some(FutexWord::new(unsafe { AtomicU32::from_ptr(at.as_ptr()) }))
    }

    #[inline]
    fn aligned(&self, offset: usize) -> Option<NonNull<u8>> {
        let aligned = offset.is_multiple_of(size_of::<u64>());
        debug_assert!(aligned, "the word at {offset} is not aligned");
        if aligned { self.at(offset, size_of::<u64>()) } else { None }
    }

    #[inline]
    fn load(&self, offset: usize, order: Ordering) -> u64 {
        let Some(word) = self.word64(offset) else { return 0 };
        // A relaxed load and a fence, not an acquiring load: only relaxed loads are promised to work on
        // memory that is mapped read-only. The fence is free on x86.
        if order == Ordering::SeqCst {
            // Pairs with the SeqCst fence that the other side puts between its store and its own load.
            fence(Ordering::SeqCst);
        }
        let value = word.load(Ordering::Relaxed);
        if order != Ordering::Relaxed {
            // Pairs with the release store of the word's owner.
            fence(Ordering::Acquire);
        }
        value
    }
}

/// Asks for a cache line, for writing or for reading; does nothing where there is no such instruction.
#[inline]
fn prefetch<const WRITE: bool>(at: NonNull<u8>) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};
        let at = at.as_ptr().cast_const().cast();
        if WRITE {
            // SAFETY: a prefetch is a hint: it neither faults nor changes what any load sees.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(at) };
        } else {
            // SAFETY: as above.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Makes the compiler forget what it knows of the memory behind `copied`: it cannot read the source of
/// the copy again instead. Costs no instruction.
#[inline]
fn opaque(copied: *mut u8) {
    // SAFETY: no instruction at all. Without `nomem` it counts as reading and writing any memory that
    // the pointer reaches.
    unsafe { asm!("/* {0} */", in(reg) copied, options(nostack, preserves_flags)) };
}
