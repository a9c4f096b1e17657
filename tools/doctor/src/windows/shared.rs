#![allow(unsafe_code, reason = "asks for each range of this process's memory what it is")]

use std::collections::BTreeMap;
use std::io;
use std::mem::size_of;
use std::os::windows::io::AsRawHandle;
use std::ptr;

use windows_sys::Win32::Foundation::ERROR_FILE_INVALID;
use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEM_MAPPED, MEMORY_BASIC_INFORMATION, PAGE_READONLY, PAGE_READWRITE, VirtualQuery,
};
use windows_sys::Win32::System::ProcessStatus::K32GetMappedFileNameW;

use bellwire_win::OsError;
use bellwire_win::handle::own_process;

/// Returns the sections of the paging file that this process has mapped: the size of each view in bytes, by a number.
///
/// Windows does not number sections: the numbers identify views and differ between processes. The result includes sections
/// that other libraries have mapped; this library does not change those.
///
/// # Errors
/// None.
pub fn shared_memory() -> io::Result<BTreeMap<u64, u64>> {
    let mut held = BTreeMap::new();
    let mut at = 0;
    while let Some(range) = query(at) {
        let base = range.AllocationBase.addr();
        if range.Type == MEM_MAPPED
            && range.State == MEM_COMMIT
            && matches!(range.Protect, PAGE_READONLY | PAGE_READWRITE)
            && !is_of_a_file(base)
        {
            *held.entry(number(base)).or_default() += range.RegionSize as u64;
        }
        let Some(next) = range.BaseAddress.addr().checked_add(range.RegionSize) else { break };
        at = next;
    }
    Ok(held)
}

/// Returns a view's number: user addresses have 47 bits and are multiples of 64 KiB.
fn number(base: usize) -> u64 {
    u64::from(std::process::id()) << 32 | (base as u64 >> 16)
}

/// Returns the region at and behind an address; `None` behind the last one.
fn query(at: usize) -> Option<MEMORY_BASIC_INFORMATION> {
    let mut found = MEMORY_BASIC_INFORMATION::default();
    let size = size_of::<MEMORY_BASIC_INFORMATION>();
    // SAFETY: `found` is a live local of the size given; the address is only looked up, not used.
    let len = unsafe { VirtualQuery(ptr::without_provenance(at), &mut found, size) };
    (len != 0 && found.RegionSize > 0).then_some(found)
}

fn is_of_a_file(base: usize) -> bool {
    // The name does not matter and may be truncated.
    let mut name = [0_u16; 8];
    // SAFETY: `name` is a live local of the length given; the address is only looked up, not used.
    let len = unsafe {
        K32GetMappedFileNameW(
            own_process().as_raw_handle(),
            ptr::without_provenance(base),
            name.as_mut_ptr(),
            8,
        )
    };
    len != 0 || OsError::last().code() != ERROR_FILE_INVALID
}
