#![allow(unsafe_code, reason = "CreateFileMappingW; its handle is owned at once")]
//! A section object of the paging file: creates one, and checks a peer's.

use std::os::windows::io::{BorrowedHandle, FromRawHandle, OwnedHandle};
use std::ptr;

use bellwire_core::resize::{Resource, Shortage};
use bellwire_shm::OverQuota;
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_INVALID_HANDLE, ERROR_NO_SYSTEM_RESOURCES, INVALID_HANDLE_VALUE,
};
use windows_sys::Win32::System::Memory::{
    CreateFileMappingW, PAGE_READWRITE, SEC_COMMIT, SECTION_MAP_READ, SECTION_QUERY,
};

use crate::OsError;
use crate::handle::{Access, duplicate};
use crate::mapping::Mapping;
use crate::security::Descriptor;

/// The size of a memory page in bytes on every processor that Windows supports.
pub(crate) const PAGE: usize = 4096;
/// Nobody may open the section, and its owner may not change that. Without an entry of its own the owner could restore its
/// right to write (`WRITE_DAC`). Without any list everybody could, since the section has no name: `DuplicateHandle` then
/// grants any requested right.
const NOBODY: &str = "D:P(A;;RC;;;OW)";

/// Why memory for a region or a snapshot could not be created. The fault is this system's, or the caller's if it asked for
/// too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The pages could not be reserved.
    #[error(
        "cannot reserve {size} bytes of shared memory: {source}; ask for less, free some memory or enlarge the paging file"
    )]
    Allocate {
        /// The requested size in bytes.
        size: u64,
        /// The error from the system.
        source: OsError,
    },
    /// The memory could not be mapped.
    #[error("cannot map {size} bytes: {source}")]
    Map {
        /// The requested size in bytes.
        size: u64,
        /// The error from the system.
        source: OsError,
    },
    /// The peers of a user already hold as much memory of this process as they may.
    #[error(transparent)]
    Quota(#[from] OverQuota),
    /// The right to write could not be given up.
    #[error("cannot make a handle that only reads: {source}")]
    Seal {
        /// The error from the system.
        source: OsError,
    },
}

impl RegionError {
    /// Returns the resource that this system lacked for memory of `bytes`.
    pub fn shortage(&self, bytes: u64) -> Shortage {
        let (resource, source) = match self {
            // Out of handles, or of the memory that they use.
            Self::Allocate { source, .. } if source.code() == ERROR_NO_SYSTEM_RESOURCES => {
                (Resource::Descriptors, source)
            }
            Self::Allocate { source, .. } => (Resource::Memory, source),
            Self::Map { source, .. } => (Resource::Maps, source),
            Self::Quota(_) => return Shortage { resource: Resource::Quota, bytes, code: 0 },
            Self::Seal { source } => (Resource::Descriptors, source),
        };
        Shortage { resource, bytes, code: source.code().cast_signed() }
    }
}

/// Why a peer's handle was not mapped. The peer is at fault unless noted otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// It is not a section.
    #[error("the peer sent a handle of something that is no section")]
    NotSection,
    /// The handle does not allow reading.
    #[error("the peer sent a section without the right to read it: it must grant SECTION_MAP_READ")]
    NotReadable,
    /// A file or an image backs it: a read could fail or wait for a device.
    #[error("the peer sent a section of a file: it must be one of the paging file")]
    FileBacked,
    /// It has unusual memory attributes: guarded or not cached.
    #[error("the peer sent a section of special memory")]
    Special,
    /// Its size differs from the announced one.
    #[error("the peer's section has {found} bytes where {expected} were announced")]
    Size {
        /// The actual size in bytes, in whole pages.
        found: u64,
        /// The announced size in bytes.
        expected: u64,
    },
    /// The announced size is zero or exceeds this side's limit.
    #[error(
        "the peer announced {len} bytes where 1 to {max} are allowed: raise the limit if that is right"
    )]
    Limit {
        /// The announced size in bytes.
        len: u64,
        /// The limit, in bytes.
        max: u64,
    },
    /// Pages are missing: reading them would crash this process.
    #[error("the peer's section has pages without memory: it must be made with SEC_COMMIT")]
    Sparse,
    /// This system refused to examine or map it.
    #[error("the peer's section cannot be examined or mapped: {source}")]
    System {
        /// The error from the system.
        source: OsError,
    },
}

/// Creates an unnamed section of `size` zeroed bytes, all charged to this process now
/// ([`CreateFileMappingW`](https://learn.microsoft.com/en-us/windows/win32/api/memoryapi/nf-memoryapi-createfilemappingw)).
pub(crate) fn make(size: usize) -> Result<OwnedHandle, RegionError> {
    let bytes = size as u64;
    let failed = |source| RegionError::Allocate { size: bytes, source };
    let rights = Descriptor::parse(NOBODY).map_err(failed)?;
    let [low, high] = halves(bytes);
    // SAFETY: `rights` lives until the call is over; no name is given.
    let handle = unsafe {
        CreateFileMappingW(
            INVALID_HANDLE_VALUE,
            &rights.attributes(),
            PAGE_READWRITE | SEC_COMMIT,
            high,
            low,
            ptr::null(),
        )
    };
    if handle.is_null() {
        return Err(failed(OsError::last()));
    }
    // SAFETY: made just now; nobody else knows it.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// Maps a section that [`make`] created.
pub(crate) fn map(
    section: BorrowedHandle<'_>,
    size: usize,
    write: bool,
) -> Result<Mapping, RegionError> {
    Mapping::new(section, write).map_err(|source| RegionError::Map { size: size as u64, source })
}

/// Gives up the right to write: the returned handle maps for reading only, and no other handle remains. An existing view is
/// unchanged.
pub(crate) fn seal(section: OwnedHandle) -> Result<OwnedHandle, RegionError> {
    let reads = Access::Only(SECTION_MAP_READ | SECTION_QUERY);
    let reader = duplicate(&section, reads).map_err(|source| RegionError::Seal { source });
    drop(section);
    reader
}

/// Maps a peer's section for reading and checks the view before any read.
pub(crate) fn verify_and_map(
    section: BorrowedHandle<'_>,
    expected: usize,
) -> Result<Mapping, VerifyError> {
    let mapping = Mapping::new(section, false).map_err(|source| match source.code() {
        ERROR_INVALID_HANDLE => VerifyError::NotSection,
        ERROR_ACCESS_DENIED => VerifyError::NotReadable,
        _ => VerifyError::System { source },
    })?;
    let view = mapping.examine().map_err(|source| VerifyError::System { source })?;
    if !view.committed {
        return Err(VerifyError::Sparse);
    }
    if !view.plain {
        return Err(VerifyError::Special);
    }
    // A view consists of whole pages. If it is committed only in front, it ends where the committed memory ends.
    if expected == 0 || view.len != expected.next_multiple_of(PAGE) {
        return Err(VerifyError::Size { found: view.len as u64, expected: expected as u64 });
    }
    if mapping.is_of_a_file() {
        return Err(VerifyError::FileBacked);
    }
    Ok(mapping)
}

/// Returns the low and the high half of a 64-bit size, as Windows takes it.
#[allow(clippy::cast_possible_truncation, reason = "the halves are what is meant")]
fn halves(size: u64) -> [u32; 2] {
    [size as u32, (size >> 32) as u32]
}
