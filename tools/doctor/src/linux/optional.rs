use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use crate::check::{Check, CheckResult, Finding, Group};
use bellwire_core::Backend;
use bellwire_memfd::doorbell::Eventfd;
use bellwire_memfd::poll::{Events, Interest, Poller, Trigger};
use bellwire_memfd::prelude::*;
use io_uring::{IoUring, opcode};
use rustix::thread::{CapabilitySet, capabilities};

/// Much longer than a wake takes.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Checks features that no session requires.
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

/// Sets up the ring that a reactor would wait with, and checks that it sees two rings of a doorbell.
fn ring() -> CheckResult {
    let (mut poller, in_use) = Poller::choose(Backend::IoUring)?;
    if let Some(why) = in_use.why_not {
        return Err(format!("servers wait with {}: {why}", in_use.backend).into());
    }
    let bell = Eventfd::create()?;
    poller.add(bell.as_fd(), 7, Interest::readable(Trigger::Edge))?;
    let mut events = Events::with_capacity(4);
    for _ in 0..2 {
        bell.ring();
        if poller.wait(&mut events, Some(TIMEOUT))? != 1 {
            return Err("a ring was not seen".into());
        }
    }
    let (_, default) = Poller::choose(Backend::Auto)?;
    Ok(Finding::ok(format!("it works; servers wait with {} by default", default.backend)))
}

fn ring_futex() -> CheckResult {
    let ring = IoUring::new(8)?;
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    if !probe.is_supported(opcode::FutexWait::CODE) {
        return Err("the kernel does not know IORING_OP_FUTEX_WAIT".into());
    }
    Ok(Finding::ok("IORING_OP_FUTEX_WAIT is there"))
}

fn bpf() -> CheckResult {
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
