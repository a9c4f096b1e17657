#![allow(unsafe_code, reason = "says why the mapped ranges may be read and written")]
//! Memory that one process alone writes: its handles grant nobody else the right.
//!
//! No slice is ever formed over it. Words are reached as atomics, bytes by raw copies, and what a copy
//! brought is parsed only once it lies in private memory.

use std::cell::Cell;
use std::marker::PhantomData;
use std::os::windows::io::{AsHandle, BorrowedHandle, OwnedHandle};

use bellwire_core::sync::Ordering;

use crate::mapping::Mapping;
use crate::range::Range;
use crate::reaper;
use crate::section;
pub use crate::section::{RegionError, VerifyError};

/// Memory that this process made and alone writes: a page, a lane or a board.
///
/// It is a section over the paging file without a name. It is mapped read-write once; the handle that could
/// map it so again is closed before anybody gets one. Whoever holds a handle can read and nothing else: the
/// section's list of rights grants nobody more (Windows 8.1 or newer).
///
/// One thread at a time uses it (`Send`, not `Sync`): [`OwnRegion::write`] is an ordinary copy.
#[derive(Debug)]
pub struct OwnRegion {
    range: Range,
    // Unmaps on drop, after the last use of `range`.
    _mapping: Mapping,
    not_sync: PhantomData<Cell<u8>>,
}

/// Memory that the peer made and alone writes, mapped read-only.
#[derive(Debug)]
pub struct PeerRegion {
    range: Range,
    // Unmaps on drop, after the last use of `range`.
    _mapping: Mapping,
}

// SAFETY: the pointer is into a view that any thread may use, and that lives as long as the region.
unsafe impl Send for OwnRegion {}
// SAFETY: as for `OwnRegion`.
unsafe impl Send for PeerRegion {}
// SAFETY: no method of a peer's region writes.
unsafe impl Sync for PeerRegion {}

impl OwnRegion {
    /// Makes `size` bytes, zeroed, lets `init` write what stays constant, and gives up the right to map them
    /// for writing again. Returns a handle that reads, too: send it to the peer, then drop it.
    ///
    /// `name` is for systems where memory has one: here nothing has, so that nothing can be guessed,
    /// taken first or left behind.
    ///
    /// # Errors
    /// [`RegionError`] says which step failed.
    pub fn create(
        name: &str,
        size: usize,
        init: impl FnOnce(&Self),
    ) -> Result<(Self, OwnedHandle), RegionError> {
        let _ = name;
        let section = section::make(size)?;
        let mapping = section::map(section.as_handle(), size, true)?;
        // SAFETY: a view of at least `size` bytes, page-aligned, mapped for reading and writing as long as
        // `_mapping` lives. The region is not Sync: one thread at a time stores and writes.
        let range = unsafe { Range::new(mapping.start(), size) };
        let region = Self { range, _mapping: mapping, not_sync: PhantomData };
        init(&region);
        Ok((region, section::seal(section)?))
    }

    /// The size in bytes.
    pub fn size(&self) -> usize {
        self.range.len()
    }

    /// Stores a word with at least the ordering given. Does nothing when `offset` is not that of an
    /// aligned word inside the region, which is the caller's mistake.
    #[inline]
    pub fn store_u64(&self, offset: usize, value: u64, order: Ordering) {
        self.range.store(offset, value, order);
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
        self.range.write(offset, bytes);
    }

    /// A hint that `offset` will be written soon: takes its cache line away from other processors now.
    #[inline]
    pub fn will_write(&self, offset: usize) {
        self.range.will_touch::<true>(offset);
    }
}

impl PeerRegion {
    /// Maps a peer's section read-only and checks it; closes the handle either way, on the reaper thread.
    ///
    /// It must be a section of the paging file that grants the right to read, of exactly `expected_size`
    /// bytes in whole pages, all of them with memory behind them.
    ///
    /// # Errors
    /// [`VerifyError`] says what is wrong with it.
    pub fn verify_and_map(section: OwnedHandle, expected_size: usize) -> Result<Self, VerifyError> {
        let mapped = Self::check_and_map(section.as_handle(), expected_size);
        // What was mapped is a section, whose closing never waits.
        match &mapped {
            Ok(_) => drop(section),
            Err(_) => reaper::reap(section),
        }
        mapped
    }

    /// The same; the handle stays with the caller.
    ///
    /// # Errors
    /// [`VerifyError`] says what is wrong with it.
    pub fn check_and_map(
        section: BorrowedHandle<'_>,
        expected_size: usize,
    ) -> Result<Self, VerifyError> {
        let mapping = section::verify_and_map(section, expected_size)?;
        // SAFETY: a view of at least `expected_size` bytes, all committed, which cannot be taken back from a
        // section, page-aligned, mapped as long as `_mapping` lives. It is never written through this.
        let range = unsafe { Range::new(mapping.start(), expected_size) };
        Ok(Self { range, _mapping: mapping })
    }

    /// The size in bytes.
    pub fn size(&self) -> usize {
        self.range.len()
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
        self.range.read(offset, into);
    }

    /// Copies `N` bytes at `offset` out, as [`PeerRegion::read`] does.
    #[inline]
    pub fn read_header<const N: usize>(&self, offset: usize) -> [u8; N] {
        self.range.read_array(offset)
    }

    /// A hint that `offset` will be read at once: starts to fetch its cache line.
    #[inline]
    pub fn will_read(&self, offset: usize) {
        self.range.will_touch::<false>(offset);
    }
}
