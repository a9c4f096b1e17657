//! Attaching to a probe as `perf` does: the kernel's uprobes, without a program.
#![allow(unsafe_code, reason = "perf_event_open has no wrapper")]

use std::ffi::CString;
use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::mem::size_of;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::elf::Note;

/// An attached tracer. Detaches when it is dropped.
#[derive(Debug)]
pub(crate) struct Attached(#[allow(dead_code, reason = "held, to be closed")] OwnedFd);

/// `struct perf_event_attr` of Linux 4.1, the fields that a uprobe needs.
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    path: u64,
    offset: u64,
    rest: [u64; 5],
}

/// What stands before the offset of a semaphore in `config`.
const REF_CTR_SHIFT: u32 = 32;
/// `PERF_FLAG_FD_CLOEXEC`
const CLOEXEC: u64 = 8;

/// Attaches to this probe of the file in all processes, those that start later among them.
pub(crate) fn attach(path: &Path, note: &Note) -> Result<Attached> {
    let kind = fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")?;
    let kind = kind.trim().parse().map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
    let name = CString::new(path.as_os_str().as_bytes())?;
    let attr = Attr {
        kind,
        size: u32::try_from(size_of::<Attr>()).unwrap(),
        config: note.semaphore << REF_CTR_SHIFT,
        path: name.as_ptr() as u64,
        offset: note.nop,
        ..Attr::default()
    };
    let (anyone, first_cpu, no_group) = (-1_i64, 0_i64, -1_i64);
    // SAFETY: the structure has the size that it says, and its path outlives the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            anyone,
            first_cpu,
            no_group,
            CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else knows.
    Ok(Attached(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).unwrap()) }))
}
