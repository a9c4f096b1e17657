#![allow(
    unsafe_code,
    reason = "uses memory that two processes of this bench share, and copies in and out of it"
)]
//! Memory that two processes share: words to spin or sleep on, and slots for bytes.
//!
//! Nothing is sealed: both ends are this very binary, and a floor is the cost with full trust.

use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, fstat, memfd_create};

use super::sync::{AtomicU32, AtomicU64};
use super::{Error, Result};

/// The distance that keeps two words out of each other's cache lines, adjacent-line prefetch included.
pub const LINE: usize = 128;

/// A memfd or a file that both ends have mapped, to read and write, for as long as a `Word` or `Slots` of it lives.
#[derive(Clone, Debug)]
pub struct Region {
    map: Arc<MmapRaw>,
    memfd: Arc<OwnedFd>,
}

impl Region {
    /// A new region of `len` bytes, all allocated, all zero.
    pub fn create(len: usize) -> Result<Region> {
        let memfd = memfd_create("bellwire-floor", MemfdFlags::CLOEXEC)
            .map_err(Error::system("create a memfd"))?;
        fallocate(&memfd, FallocateFlags::empty(), 0, len as u64)
            .map_err(Error::system("allocate shared memory"))?;
        Region::map(memfd, len)
    }

    /// The region that the other process created.
    pub fn open(memfd: OwnedFd) -> Result<Region> {
        let stat = fstat(&memfd).map_err(Error::system("look at the shared memory"))?;
        let len = usize::try_from(stat.st_size).unwrap_or(0);
        Region::map(memfd, len)
    }

    fn map(memfd: OwnedFd, len: usize) -> Result<Region> {
        let map = MmapOptions::new().len(len).populate().map_raw(&memfd);
        let map = map.map_err(Error::system("map shared memory"))?;
        Ok(Region { map: Arc::new(map), memfd: Arc::new(memfd) })
    }

    /// The descriptor, to pass on.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }

    /// The word at `offset`.
    pub(super) fn word<T: SharedWord>(&self, offset: usize) -> Result<Word<T>> {
        let at = self.span(offset, size_of::<T>())?.cast::<T>();
        if !at.is_aligned() {
            return Err(Error::arguments("a word that is not aligned"));
        }
        Ok(Word { at, map: Arc::clone(&self.map), kind: PhantomData })
    }

    /// `count` slots of `size` bytes from `offset` on; `count` is a power of two.
    pub(super) fn slots(&self, offset: usize, size: usize, count: usize) -> Result<Slots> {
        let stride = size.next_multiple_of(64);
        let len = stride.checked_mul(count).ok_or_else(|| Error::arguments("too many slots"))?;
        if !count.is_power_of_two() {
            return Err(Error::arguments("a number of slots that is no power of two"));
        }
        let at = self.span(offset, len)?;
        Ok(Slots { at, size, stride, mask: count as u64 - 1, map: Arc::clone(&self.map) })
    }

    /// The start of a range that lies in the region.
    pub fn span(&self, offset: usize, len: usize) -> Result<NonNull<u8>> {
        match offset.checked_add(len) {
            Some(end) if end <= self.map.len() => {}
            _ => return Err(Error::arguments("a range outside the shared memory")),
        }
        let at = NonNull::new(self.map.as_mut_ptr().wrapping_add(offset));
        at.ok_or_else(|| Error::arguments("a map at address zero"))
    }
}

/// An atomic that two processes may share: it has no invalid bit pattern.
pub(super) trait SharedWord: Sync {}
impl SharedWord for AtomicU32 {}
impl SharedWord for AtomicU64 {}

/// One atomic in a [`Region`].
pub(super) struct Word<T> {
    at: NonNull<T>,
    map: Arc<MmapRaw>,
    kind: PhantomData<T>,
}

// SAFETY: a `Word` gives `&T` only, `T: Sync`, and `map` keeps the memory whichever thread holds it.
unsafe impl<T: SharedWord> Send for Word<T> {}

impl<T: SharedWord> Deref for Word<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `Region::word` found it in range and aligned, every bit pattern is a `T`, and `map` lives.
        unsafe { self.at.as_ref() }
    }
}

impl<T> Clone for Word<T> {
    fn clone(&self) -> Word<T> {
        Word { at: self.at, map: Arc::clone(&self.map), kind: PhantomData }
    }
}

/// Room for messages of one size in a [`Region`]; a position counts messages and wraps around the slots.
///
/// A [`Word`], released by one side and acquired by the other, decides which side may access a slot.
pub(super) struct Slots {
    at: NonNull<u8>,
    size: usize,
    stride: usize,
    mask: u64,
    #[expect(dead_code, reason = "keeps the memory mapped")]
    map: Arc<MmapRaw>,
}

// SAFETY: it is an address range that `map` keeps; a `Word` decides which side may access a slot.
unsafe impl Send for Slots {}

impl Slots {
    /// How many messages fit.
    pub(super) fn count(&self) -> u64 {
        self.mask + 1
    }

    /// Copies a message in.
    #[inline]
    pub(super) fn put(&self, position: u64, from: &[u8]) {
        let len = from.len().min(self.size);
        // SAFETY: `slot` has `size` bytes in the map, `from` is private memory; the peer leaves the slot alone.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.slot(position), len) }
    }

    /// Copies a message out.
    #[inline]
    pub(super) fn take(&self, position: u64, into: &mut [u8]) {
        let len = into.len().min(self.size);
        // SAFETY: `slot` has `size` bytes in the map, `into` is private memory; the peer leaves the slot alone.
        unsafe { ptr::copy_nonoverlapping(self.slot(position), into.as_mut_ptr(), len) }
    }

    /// The masked index is below the count, so the slot lies in the range that `Region::slots` checked.
    #[inline]
    fn slot(&self, position: u64) -> *mut u8 {
        let index = usize::try_from(position & self.mask).unwrap_or(0);
        self.at.as_ptr().wrapping_add(index * self.stride)
    }
}
