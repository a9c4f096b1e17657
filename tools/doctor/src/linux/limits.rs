use std::fs;

use crate::check::{Check, CheckResult, Finding, Group};
use rustix::process::{Resource, getrlimit};

use bellwire_memfd::prelude::*;
use bellwire_memfd::{Linux, memory};

/// Descriptors that one session takes in a process.
const FDS_PER_SESSION: u64 = 3;
/// Maps that one session takes in a process, at most.
const MAPS_PER_SESSION: u64 = 6;
/// Below this number of sessions the check gives advice.
const FEW: u64 = 1000;
const MIB: u64 = 1 << 20;

/// Checks limits that may be too low. None of them prevents Bellwire from working.
pub(super) fn checks() -> Vec<Check> {
    let mut group = Group::new("limits");
    group.optional("open files", "", Ok(open_files()));
    group.optional("maps (vm.max_map_count)", "", maps());
    group.optional("locked memory", "", Ok(locked()));
    group.optional("file size", "", Ok(file_size()));
    group.optional("memory cgroup", "", Ok(memory_cgroup()));
    group.optional("vm.memfd_noexec", "", Ok(memfd_noexec()));
    group.into_checks()
}

fn open_files() -> Finding {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.map_or("no limit".into(), |hard| hard.to_string());
    let Some(soft) = limit.current else {
        return Finding::ok("no limit (RLIMIT_NOFILE)");
    };
    let sessions = soft.saturating_sub(32) / FDS_PER_SESSION;
    let detail = format!(
        "{} soft, {hard} hard (RLIMIT_NOFILE): about {} sessions per process at {FDS_PER_SESSION} descriptors each",
        soft, sessions,
    );
    if sessions >= FEW {
        return Finding::ok(detail);
    }
    let how = match limit.maximum {
        Some(hard) if hard > soft => format!("`ulimit -n {hard}` or LimitNOFILE= gives more"),
        _ => "raise it with LimitNOFILE= or in limits.conf".into(),
    };
    Finding::limited(detail, format!("for many sessions {how}"))
}

fn maps() -> CheckResult {
    let limit = Linux::max_maps().ok_or("cannot be read")?;
    let sessions = limit as u64 / MAPS_PER_SESSION;
    let detail = format!("{}: about {} sessions per process", limit, sessions);
    Ok(if sessions >= FEW {
        Finding::ok(detail)
    } else {
        Finding::limited(detail, "for many sessions `sysctl vm.max_map_count=262144`")
    })
}

fn locked() -> Finding {
    let limit = getrlimit(Resource::Memlock).current;
    let limit = limit.map_or("no limit".into(), |limit| format!("{} KiB", limit / 1024));
    Finding::ok(format!(
        "{limit} (RLIMIT_MEMLOCK); nothing of a session is locked, the eBPF tracer may need it before Linux 5.11"
    ))
}

fn file_size() -> Finding {
    match getrlimit(Resource::Fsize).current {
        None => Finding::ok("no limit (RLIMIT_FSIZE)"),
        Some(limit) if limit >= 64 * MIB => {
            Finding::ok(format!("{} MiB (RLIMIT_FSIZE)", limit / MIB))
        }
        Some(limit) => Finding::limited(
            format!("{} bytes (RLIMIT_FSIZE): no lane or snapshot can be larger", limit),
            "raise it with `ulimit -f unlimited` or LimitFSIZE=",
        ),
    }
}

/// Returns the lowest memory limit of the cgroups that contain this process. Beyond it the kernel does not refuse an
/// allocation of shared memory but kills the process.
fn memory_cgroup() -> Finding {
    // Version 1 reports "no limit" as a number near 2^63.
    match memory::cgroup_limit().filter(|limit| *limit < 1 << 60) {
        None => Finding::ok("no limit"),
        Some(limit) if limit >= 128 * MIB => Finding::ok(format!("{} MiB", limit / MIB)),
        Some(limit) => Finding::limited(
            format!("{} MiB; whoever allocates past it is killed, not refused", limit / MIB),
            "raise MemoryMax=, or bound the sizes of lanes and snapshots",
        ),
    }
}

fn memfd_noexec() -> Finding {
    let setting = fs::read_to_string("/proc/sys/vm/memfd_noexec").ok();
    match setting.as_deref().map(str::trim) {
        None => Finding::ok("not there: Linux 6.3 has it"),
        Some("0") => Finding::ok("0: memfds may be executable; Bellwire's are not"),
        Some("1") => Finding::ok("1: memfds are not executable unless asked for"),
        Some(other) => {
            Finding::ok(format!("{other}: memfds are never executable, Bellwire's are not"))
        }
    }
}
