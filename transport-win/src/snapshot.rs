#![allow(
    unsafe_code,
    reason = "slices over memory that is private, or that nobody can write any more"
)]
//! Memory that is never written again: published once, mapped by many.

use crate::Windows;
use crate::prelude::*;
use std::ops::Deref;
use std::os::windows::io::{AsHandle, BorrowedHandle, OwnedHandle};
use std::slice;
use std::sync::{Arc, Mutex};

use bellwire_shm::platform;
use bellwire_shm::{Loan, LoanAccount, PeerRange, Quota, lock};

use crate::mapping::Mapping;
use crate::section::{self, PAGE};
pub use crate::section::{RegionError, VerifyError};
use crate::{OsError, clock, reaper};

/// A snapshot under construction: writable and private to this process.
#[derive(Debug)]
pub struct SnapshotBuilder {
    mapping: Mapping,
    section: OwnedHandle,
    len: usize,
}

/// A finished snapshot: no handle or view that could write it is left. Send [`Snapshot::as_handle`] to its readers.
#[derive(Debug)]
pub struct Snapshot {
    section: OwnedHandle,
    // Read-only.
    mapping: Mapping,
    len: usize,
    /// Loans on the quotas of the users whose peers got it, one per user.
    loans: Mutex<Vec<(Arc<Quota>, Loan)>>,
}

/// A readable snapshot with constant bytes.
#[derive(Debug)]
pub struct SnapshotMap(Bytes);

#[derive(Debug)]
enum Bytes {
    Shared { mapping: Mapping, len: usize },
    Copied(Box<[u8]>),
}

impl platform::SnapshotBuilder<Windows> for SnapshotBuilder {
    fn create(name: &str, len: usize) -> Result<Self, RegionError> {
        let _ = name;
        let too_large =
            RegionError::Allocate { size: len as u64, source: OsError::NOT_ENOUGH_MEMORY };
        let size = section_size(len).ok_or(too_large)?;
        let section = section::make(size)?;
        let mapping = section::map(section.as_handle(), size, true)?;
        Ok(Self { mapping, section, len })
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `len` bytes of a view that lives as long as `self` and is borrowed mutably. The handle
        // has not left this struct, so nobody else has the memory mapped.
        unsafe { slice::from_raw_parts_mut(self.mapping.start().as_ptr(), self.len) }
    }

    fn seal(self) -> Result<Snapshot, RegionError> {
        let Self { mapping, section, len } = self;
        drop(mapping);
        let section = section::seal(section)?;
        let mapping = section::map(section.as_handle(), len, false)?;
        Ok(Snapshot { section, mapping, len, loans: Mutex::default() })
    }
}

impl platform::Snapshot<Windows> for Snapshot {
    fn copy_of(name: &str, bytes: &[u8]) -> Result<Self, RegionError> {
        let mut builder = SnapshotBuilder::create(name, bytes.len())?;
        builder.bytes().copy_from_slice(bytes);
        builder.seal()
    }

    fn len(&self) -> usize {
        self.len
    }

    fn lend_to<R>(
        &self,
        account: Option<&LoanAccount>,
        pass: impl FnOnce(BorrowedHandle<'_>) -> R,
    ) -> Result<R, RegionError> {
        if let Some(account) = account {
            let mut loans = lock(&self.loans);
            if !loans.iter().any(|(quota, _)| Arc::ptr_eq(quota, &account.quota)) {
                let charge = account.quota.charge_lent(self.len as u64, clock::now())?;
                loans.push((Arc::clone(&account.quota), Loan::new(charge, None, clock::now)));
            }
        }
        Ok(pass(self.as_handle()))
    }

    fn to_vec(&self) -> Result<Vec<u8>, OsError> {
        // SAFETY: `len` bytes of a view that lives as long as `self`; nobody can write them any more.
        Ok(unsafe { slice::from_raw_parts(self.mapping.start().as_ptr(), self.len) }.to_vec())
    }

    fn map(&self) -> Result<SnapshotMap, VerifyError> {
        let mapping = Mapping::new(self.section.as_handle(), false)
            .map_err(|source| VerifyError::System { source })?;
        Ok(SnapshotMap(Bytes::Shared { mapping, len: self.len }))
    }
}

impl AsHandle for Snapshot {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.section.as_handle()
    }
}

impl platform::SnapshotMap<Windows> for SnapshotMap {
    /// It must be a section of the paging file of `len` bytes rounded up to whole pages, all committed. Windows cannot prove that
    /// a section is no longer writable: that of an untrusted peer is copied into private memory.
    fn of_peer(section: OwnedHandle, len: usize, is_trusted: bool) -> Result<Self, VerifyError> {
        // A length that no section has differs from that of any.
        let size = section_size(len).unwrap_or(usize::MAX / PAGE * PAGE);
        let mapping = section::verify_and_map(section.as_handle(), size);
        let mapping = mapping.inspect_err(|_| reaper::reap(section))?;
        if is_trusted {
            return Ok(Self(Bytes::Shared { mapping, len }));
        }
        let mut copy = vec![0; len].into_boxed_slice();
        // SAFETY: the view of whole pages was checked to have at least `len` bytes, and lives until the end of this
        // function; it is only read.
        let range = unsafe { PeerRange::new(mapping.start(), len) };
        range.read(0, &mut copy);
        Ok(Self(Bytes::Copied(copy)))
    }
}

impl Deref for SnapshotMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            // SAFETY: `len` bytes of a view that lives as long as `self`, all committed. Its maker unmapped
            // its own view and closed the handle that could map another before it sent this one: `Snapshot::map` has one
            // that did. `of_peer` has one of a peer that is trusted to have kept no way to write what it attaches: `Parts` says
            // so of one that may write this process's memory anyway.
            Bytes::Shared { mapping, len } => unsafe {
                slice::from_raw_parts(mapping.start().as_ptr(), *len)
            },
            Bytes::Copied(bytes) => bytes,
        }
    }
}

/// Returns the section size for `len` bytes: whole pages, at least one; `None` on overflow.
fn section_size(len: usize) -> Option<usize> {
    let size = len.max(1).checked_next_multiple_of(PAGE)?;
    isize::try_from(size).is_ok().then_some(size)
}
