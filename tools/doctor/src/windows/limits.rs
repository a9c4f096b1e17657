#![allow(unsafe_code, reason = "asks the system for numbers, into locals")]

use std::mem::size_of;
use std::ptr;

use crate::check::{Check, CheckResult, Finding, Group};
use windows_sys::Win32::System::JobObjects::{
    JOB_OBJECT_LIMIT_JOB_MEMORY, JOB_OBJECT_LIMIT_PROCESS_MEMORY,
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JobObjectExtendedLimitInformation,
    QueryInformationJobObject,
};
use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};

use bellwire_win::OsError;

const MIB: u64 = 1 << 20;
/// Below this limit the check gives advice.
const LITTLE: u64 = 128 * MIB;

/// Checks limits that may be too low. None of them prevents Bellwire from working.
pub(super) fn checks() -> Vec<Check> {
    let mut group = Group::new("limits");
    group.optional("committed memory", "", committed());
    group.optional("job", "", job());
    group.into_checks()
}

/// Checks committed memory: sections are charged to the paging file when they are created.
fn committed() -> CheckResult {
    let length = u32::try_from(size_of::<MEMORYSTATUSEX>())?;
    let mut status = MEMORYSTATUSEX { dwLength: length, ..MEMORYSTATUSEX::default() };
    // SAFETY: `status` is a live local that says its own length.
    if unsafe { GlobalMemoryStatusEx(&mut status) } == 0 {
        return Err(OsError::last().into());
    }
    let (left, all) = (status.ullAvailPageFile, status.ullTotalPageFile);
    let detail = format!("{} of {} MiB can still be committed", left / MIB, all / MIB);
    Ok(if left >= LITTLE {
        Finding::ok(detail)
    } else {
        Finding::limited(detail, "enlarge the paging file, or end what needs memory")
    })
}

/// Checks the job's limit on committed memory: beyond it memory cannot be created, and a session keeps its lanes.
fn job() -> CheckResult {
    let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
    let length = u32::try_from(size_of::<JOBOBJECT_EXTENDED_LIMIT_INFORMATION>())?;
    // SAFETY: `limits` is a live local of the length given; no handle means the job of this process.
    let done = unsafe {
        QueryInformationJobObject(
            ptr::null_mut(),
            JobObjectExtendedLimitInformation,
            (&raw mut limits).cast(),
            length,
            ptr::null_mut(),
        )
    };
    if done == 0 {
        return Ok(Finding::ok("this process is in none, or may not ask"));
    }
    let flags = limits.BasicLimitInformation.LimitFlags;
    let set = |flag, limit: usize| (flags & flag != 0).then_some(limit as u64);
    let process = set(JOB_OBJECT_LIMIT_PROCESS_MEMORY, limits.ProcessMemoryLimit);
    let whole = set(JOB_OBJECT_LIMIT_JOB_MEMORY, limits.JobMemoryLimit);
    Ok(match process.into_iter().chain(whole).min() {
        None => Finding::ok("no limit of memory"),
        Some(limit) if limit >= LITTLE => Finding::ok(format!("{} MiB", limit / MIB)),
        Some(limit) => Finding::limited(
            format!("{} MiB may be committed", limit / MIB),
            "raise the job's limit, or bound the sizes of lanes and snapshots",
        ),
    })
}
