#![allow(
    unsafe_code,
    reason = "MapViewOfFile and UnmapViewOfFile; everything above works on the range that this owns"
)]
//! A mapped view of a section.

use std::mem::size_of;
use std::os::windows::io::{AsRawHandle, BorrowedHandle};
use std::ptr::NonNull;

use windows_sys::Win32::Foundation::ERROR_FILE_INVALID;
use windows_sys::Win32::System::Memory::{
    FILE_MAP_READ, FILE_MAP_WRITE, MEM_COMMIT, MEM_MAPPED, MEMORY_BASIC_INFORMATION,
    MEMORY_MAPPED_VIEW_ADDRESS, MapViewOfFile, PAGE_READONLY, UnmapViewOfFile, VirtualQuery,
};
use windows_sys::Win32::System::ProcessStatus::K32GetMappedFileNameW;

use crate::OsError;
use crate::handle::own_process;

/// A view of a whole section, unmapped on drop. It grants no access by itself: code that dereferences [`Mapping::start`] has
/// to justify that. A child process does not inherit it.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
}

/// The memory manager's description of a view, from its start to the first change of attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// Its length in bytes: whole pages.
    pub(crate) len: usize,
    /// Whether all of it is backed by memory.
    pub(crate) committed: bool,
    /// Whether it is an ordinary read-only view: cached, without guard pages.
    pub(crate) plain: bool,
}

// SAFETY: the struct is an address. Any thread may unmap the view, and it is done once.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives the address away, nothing else.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a whole section; with `write` also for writing, which the handle has to allow.
    pub fn new(section: BorrowedHandle<'_>, write: bool) -> Result<Self, OsError> {
        let access = if write { FILE_MAP_READ | FILE_MAP_WRITE } else { FILE_MAP_READ };
        // SAFETY: the kernel picks a range that nothing else uses; a handle of something else is an error.
        let view = unsafe { MapViewOfFile(section.as_raw_handle(), access, 0, 0, 0) };
        NonNull::new(view.Value.cast()).map(|start| Self { start }).ok_or_else(OsError::last)
    }

    /// Returns the first byte's address, page-aligned.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Queries the memory behind the view.
    pub(crate) fn examine(&self) -> Result<View, OsError> {
        let mut found = MEMORY_BASIC_INFORMATION::default();
        // SAFETY: `found` is a live local of the size given; the address is only looked up, not used.
        let len = unsafe {
            VirtualQuery(
                self.start.as_ptr().cast(),
                &mut found,
                size_of::<MEMORY_BASIC_INFORMATION>(),
            )
        };
        if len == 0 {
            return Err(OsError::last());
        }
        let whole = found.BaseAddress == self.start.as_ptr().cast();
        Ok(View {
            len: found.RegionSize,
            committed: found.State == MEM_COMMIT,
            plain: whole && found.Protect == PAGE_READONLY && found.Type == MEM_MAPPED,
        })
    }

    /// Returns whether a file backs the view; the error for "no file" means no.
    pub(crate) fn is_of_a_file(&self) -> bool {
        // The name does not matter and may be truncated.
        let mut name = [0_u16; 8];
        // SAFETY: `name` is a live local of the length given; the address is only looked up, not used.
        let len = unsafe {
            K32GetMappedFileNameW(
                own_process().as_raw_handle(),
                self.start.as_ptr().cast(),
                name.as_mut_ptr(),
                8,
            )
        };
        len != 0 || OsError::last().code() != ERROR_FILE_INVALID
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let view = MEMORY_MAPPED_VIEW_ADDRESS { Value: self.start.as_ptr().cast() };
        // SAFETY: mapped by `new`, and every pointer into it borrows from, or lives no longer than, this
        // mapping. Unmapping a whole own view cannot fail in a way worth acting on.
        let _ = unsafe { UnmapViewOfFile(view) };
    }
}
