#![allow(unsafe_code, reason = "says why the mapped ranges may be read and written")]
//! Memory that one process alone writes: its handles grant nobody else the right.
//!
//! What is done with it is in [`OwnRange`] and [`PeerRange`]: no slice is ever formed over it.

use std::ops::Deref;
use std::os::windows::io::{AsHandle, BorrowedHandle, OwnedHandle};

use bellwire_transport::{Lender, Loan, OwnRange, PeerRange};

use crate::mapping::Mapping;
pub use crate::section::{RegionError, VerifyError};
use crate::{clock, reaper, section};

/// Memory that this process made and alone writes: a page, a lane or a board.
///
/// It is a section over the paging file without a name. It is mapped read-write once; the handle that could
/// map it so again is closed before anybody gets one. Whoever holds a handle can read and nothing else: the
/// section's list of rights grants nobody more (Windows 8.1 or newer).
///
/// One thread at a time uses it (`Send`, not `Sync`): [`OwnRange::write`] is an ordinary copy.
#[derive(Debug)]
pub struct OwnRegion {
    range: OwnRange,
    // Unmaps on drop, after the last use of `range`.
    _mapping: Mapping,
    // Dropped last. Counts on for a while, since a peer may still have the memory.
    loan: Option<Loan>,
}

/// Memory that the peer made and alone writes, mapped read-only.
#[derive(Debug)]
pub struct PeerRegion {
    range: PeerRange,
    // Unmaps on drop, after the last use of `range`.
    _mapping: Mapping,
}

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
        // `_mapping` lives, and reached through this alone.
        let range = unsafe { OwnRange::new(mapping.start(), size) };
        let region = Self { range, _mapping: mapping, loan: None };
        init(&region);
        Ok((region, section::seal(section)?))
    }

    /// Makes memory as [`OwnRegion::create`] does, on a peer's quota, and for a minute after it was dropped: nothing tells
    /// here when no peer has it any more.
    ///
    /// # Errors
    /// [`RegionError::Quota`] when the peer's user holds too much; others as there.
    pub fn lend(
        lender: &Lender,
        name: &str,
        size: usize,
        init: impl FnOnce(&Self),
    ) -> Result<(Self, OwnedHandle), RegionError> {
        let charge = lender.quota.charge_lent(size as u64, clock::now())?;
        let (mut region, section) = Self::create(name, size, init)?;
        region.loan = Some(Loan::new(charge, None, clock::now));
        Ok((region, section))
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
        let range = unsafe { PeerRange::new(mapping.start(), expected_size) };
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
