#![allow(unsafe_code, reason = "says why the mapped ranges may be read and written")]
//! Memory that only one process writes: its handles grant the right to nobody else.
//!
//! [`OwnRange`] and [`PeerRange`] define the accesses: no slice is ever formed over this memory.

use std::ops::Deref;
use std::os::windows::io::{AsHandle, BorrowedHandle, OwnedHandle};

use bellwire_shm::platform;
use bellwire_shm::{Loan, LoanAccount, OwnRange, PeerRange};

use crate::Windows;
use crate::mapping::Mapping;
pub use crate::section::{RegionError, VerifyError};
use crate::{clock, section};
pub use bellwire_shm::{ReceiveRegion, TransmitRegion};

/// Memory that this process created and only it writes: a page, a lane or a board.
///
/// It is an unnamed section of the paging file. It is mapped read-write once; the handle that allows such a mapping is closed
/// before any peer gets a handle. Holders of a handle can only read: the section's access control list grants no more rights
/// (Windows 8.1 or newer).
///
/// Only one thread at a time may use it (`Send`, not `Sync`): [`OwnRange::write`] is an ordinary copy.
#[derive(Debug)]
pub struct OwnRegion {
    range: OwnRange,
    // Unmaps on drop, after the last use of `range`.
    _mapping: Mapping,
    // Dropped last. Keeps counting for a while, since a peer may still have the memory.
    loan: Option<Loan>,
}

/// Memory that the peer created and only the peer writes, mapped read-only.
#[derive(Debug)]
pub struct PeerRegion {
    range: PeerRange,
    // Unmaps on drop, after the last use of `range`.
    _mapping: Mapping,
}

impl platform::OwnRegion<Windows> for OwnRegion {
    /// Memory is unnamed, so no name can be guessed, squatted or left behind.
    fn create(
        name: &str,
        size: usize,
        init: impl FnOnce(&Self),
    ) -> Result<(Self, OwnedHandle), RegionError> {
        let _ = name;
        let section = section::make(size)?;
        let mapping = section::map(section.as_handle(), size, true)?;
        // SAFETY: a view of at least `size` bytes, of whole pages, mapped for reading and writing as long as
        // `_mapping` lives, and reached through this alone.
        let range = unsafe { OwnRange::new(mapping.start(), size) };
        let region = Self { range, _mapping: mapping, loan: None };
        init(&region);
        Ok((region, section::seal(section)?))
    }

    /// The charge lasts until a minute after the drop: Windows does not report when no peer has it any more.
    fn lend(
        account: &LoanAccount,
        name: &str,
        size: usize,
        init: impl FnOnce(&Self),
    ) -> Result<(Self, OwnedHandle), RegionError> {
        let charge = account.quota.charge_lent(size as u64, clock::now())?;
        let (mut region, section) = Self::create(name, size, init)?;
        region.loan = Some(Loan::new(charge, None, clock::now));
        Ok((region, section))
    }
}

impl platform::PeerRegion<Windows> for PeerRegion {
    /// Maps a peer's section read-only and checks it. A handle that could be mapped is a section, whose close never waits.
    ///
    /// It must be a readable section of the paging file of exactly `expected_size` bytes in whole pages, all committed.
    ///
    /// # Errors
    /// [`VerifyError`] says what is wrong with it.
    fn check_and_map(
        section: BorrowedHandle<'_>,
        expected_size: usize,
    ) -> Result<Self, VerifyError> {
        let mapping = section::verify_and_map(section, expected_size)?;
        // SAFETY: a view of at least `expected_size` bytes, all committed, which cannot be taken back from a
        // section, of whole pages, mapped as long as `_mapping` lives. It is never written through this.
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
