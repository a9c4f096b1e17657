use std::fs;
use std::path::Path;

use bellwire_core::doctor::{Check, Finding, Group, Tried};
use io_uring::{IoUring, opcode};
use rustix::thread::{CapabilitySet, capabilities};

/// What no session needs.
pub(super) fn checks() -> Vec<Check> {
    let mut group = Group::new("optional");
    group.optional(
        "io_uring",
        "sysctl kernel.io_uring_disabled=0, and a sandbox that allows it; epoll is used instead",
        ring(),
    );
    group.optional(
        "io_uring futex wait",
        "Linux 6.7 or newer has it; epoll and futex_waitv are used instead",
        ring_futex(),
    );
    group.optional(
        "eBPF tracer",
        "needed by the tracer alone: run it as root, or with CAP_BPF and CAP_PERFMON, on a kernel with BTF",
        bpf(),
    );
    group.into_checks()
}

fn ring() -> Tried {
    let ring = IoUring::new(8)?;
    let entries = ring.params().sq_entries();
    ring.submitter().submit()?;
    Ok(Finding::ok(format!("a ring of {entries} entries was set up")))
}

fn ring_futex() -> Tried {
    let ring = IoUring::new(8)?;
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    if !probe.is_supported(opcode::FutexWait::CODE) {
        return Err("the kernel does not know IORING_OP_FUTEX_WAIT".into());
    }
    Ok(Finding::ok("IORING_OP_FUTEX_WAIT is there"))
}

fn bpf() -> Tried {
    let has = capabilities(None)?.effective;
    let all = CapabilitySet::SYS_ADMIN;
    let enough = has.contains(all) || has.contains(CapabilitySet::BPF | CapabilitySet::PERFMON);
    let unprivileged = fs::read_to_string("/proc/sys/kernel/unprivileged_bpf_disabled");
    let unprivileged = unprivileged.unwrap_or_default();
    let btf = Path::new("/sys/kernel/btf/vmlinux").exists();
    let said = |have, what: &str| format!("{what}: {}", if have { "yes" } else { "no" });
    let detail = [
        said(enough, "capabilities"),
        said(btf, "kernel BTF"),
        said(unprivileged.trim() == "0", "unprivileged BPF"),
    ]
    .join(", ");
    Ok(if enough && btf { Finding::ok(detail) } else { Finding::missing(detail) })
}
