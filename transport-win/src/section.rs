#![allow(unsafe_code, reason = "CreateFileMappingW; its handle is owned at once")]
//! A section object of the paging file: creates one, and checks a peer's.

use std::os::windows::io::{BorrowedHandle, OwnedHandle};
use std::ptr;

use bellwire_shm::platform;
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_INVALID_HANDLE, INVALID_HANDLE_VALUE,
};
use windows_sys::Win32::System::Memory::{
    CreateFileMappingW, PAGE_READWRITE, SEC_COMMIT, SECTION_MAP_READ, SECTION_QUERY,
};

use crate::Windows;
use crate::handle::{Access, duplicate, made};
use crate::mapping::Mapping;
use crate::security::Descriptor;

/// The size of a memory page in bytes on every processor that Windows supports.
pub(crate) const PAGE: usize = 4096;
/// Nobody may open the section, and its owner may not change that. Without an entry of its own the owner could restore its
/// right to write (`WRITE_DAC`). Without any list everybody could, since the section has no name: `DuplicateHandle` then
/// grants any requested right.
const NOBODY: &str = "D:P(A;;RC;;;OW)";

/// Why memory for a region or a snapshot could not be created.
pub type RegionError = platform::RegionError<Windows>;

/// Why a peer's handle was not mapped.
pub type VerifyError = platform::VerifyError<Windows>;

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
    // SAFETY: made just now; nobody else knows it.
    unsafe { made(handle) }.map_err(failed)
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
        ERROR_INVALID_HANDLE => VerifyError::NotMemory { source },
        ERROR_ACCESS_DENIED => VerifyError::Unreadable,
        _ => VerifyError::System { source },
    })?;
    let view = mapping.examine().map_err(|source| VerifyError::System { source })?;
    if !view.committed {
        return Err(VerifyError::Uncommitted { size: view.len as u64 });
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
