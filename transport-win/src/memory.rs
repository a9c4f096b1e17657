#![allow(unsafe_code, reason = "asks the system for numbers, into locals")]
//! How much memory this process may have.

use std::mem::size_of;

pub use bellwire_transport::{
    Charge, Gauge, Lender, MemoryPool, OverQuota, OverQuotaReason, Pressure, Quota,
};
use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};

/// How many views a process may have: as many as there is memory for.
pub const fn most_maps() -> Option<usize> {
    None
}

/// The memory that this process may have in bytes: the machine's. Nobody is ended for lack of memory here: an allocation
/// fails.
pub fn limit() -> (u64, Box<dyn Gauge>) {
    let length = u32::try_from(size_of::<MEMORYSTATUSEX>()).unwrap_or(0);
    let mut status = MEMORYSTATUSEX { dwLength: length, ..MEMORYSTATUSEX::default() };
    // SAFETY: `status` is a live local that says its own length.
    let is_told = unsafe { GlobalMemoryStatusEx(&mut status) } != 0;
    // Where the system does not say it, or nothing that can be true: what most machines have at least.
    let told = if is_told { status.ullTotalPhys } else { 0 };
    (told.max(1 << 30), Box::new(()))
}
