#![allow(unsafe_code, reason = "asks the system for numbers, into locals")]
//! How much memory this process may have.

use std::mem::size_of;

pub use bellwire_shm::{
    Charge, Gauge, LoanAccount, MemoryPool, OverQuota, OverQuotaReason, Pressure, Quota,
};
use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};

/// Returns the memory that this process may have in bytes: the machine's. Windows ends no process for lack of memory: an
/// allocation fails.
pub fn limit() -> (u64, Box<dyn Gauge>) {
    let length = u32::try_from(size_of::<MEMORYSTATUSEX>()).unwrap_or(0);
    let mut status = MEMORYSTATUSEX { dwLength: length, ..MEMORYSTATUSEX::default() };
    // SAFETY: `status` is a live local that says its own length.
    let is_told = unsafe { GlobalMemoryStatusEx(&mut status) } != 0;
    // If the system returns no plausible value: the least that most machines have.
    let told = if is_told { status.ullTotalPhys } else { 0 };
    (told.max(1 << 30), Box::new(()))
}
