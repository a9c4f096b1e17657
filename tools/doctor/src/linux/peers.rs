use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::check::{Check, CheckResult, Finding, Group};
use bellwire_memfd::prelude::*;
use bellwire_memfd::{clock, pass, peer, poll};
use rustix::fs::{MemfdFlags, fstat, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

const TIMEOUT: Duration = Duration::from_secs(5);

/// Checks peer credentials and descriptor passing.
pub(super) fn checks(child: &mut Command) -> Vec<Check> {
    let mut group = Group::new("peers");
    group.required(
        "SCM_RIGHTS over SEQPACKET",
        "a sandbox (seccomp, gVisor) may forbid it: allow socket(2), sendmsg(2) and recvmsg(2) of AF_UNIX",
        pass_descriptor(),
    );
    group.optional(
        "SO_PASSRIGHTS",
        "Linux 6.16 or newer has it; without it a client can send descriptors before it is admitted, which are closed",
        refuse_descriptor(),
    );
    group.required("SO_PEERCRED", "without it nobody can tell who connects", credentials());
    group.optional(
        "SO_PEERPIDFD",
        "Linux 6.5 or newer has it; pidfd_open is used instead, with a tiny race at a peer's death",
        pidfd_of_peer(),
    );
    group.optional(
        "pidfd_open and poll",
        "Linux 5.3 or newer has it; without it only the closed socket reports a peer's death",
        pidfd_and_poll(child),
    );
    group.into_checks()
}

fn pair() -> Result<(OwnedFd, OwnedFd), rustix::io::Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn pass_descriptor() -> CheckResult {
    let (here, there) = pair()?;
    let sent = memfd_create("bellwire-doctor", MemfdFlags::CLOEXEC)?;
    pass::send(here.as_fd(), b"one", &[sent.as_fd()])?;
    pass::send(here.as_fd(), b"two", &[])?;
    let mut bytes = [0; 16];
    let received = pass::receive(there.as_fd(), &mut bytes, 4)?;
    if received.len != 3 {
        return Err("messages ran together".into());
    }
    let fd = received.into_objects().next().ok_or("no descriptor arrived")?;
    if fstat(&fd)?.st_ino != fstat(&sent)?.st_ino {
        return Err("another descriptor arrived".into());
    }
    Ok(Finding::ok("a descriptor arrived with its message"))
}

fn refuse_descriptor() -> CheckResult {
    let (here, there) = pair()?;
    pass::set_passrights(there.as_fd(), false)?;
    match pass::send(here.as_fd(), b"one", &[there.as_fd()]) {
        Ok(()) => Err("a descriptor was sent all the same".into()),
        Err(_) => Ok(Finding::ok("a client sends descriptors only once it is admitted")),
    }
}

fn credentials() -> CheckResult {
    let (here, _there) = pair()?;
    let found = peer::credentials(here.as_fd())?;
    if found.overflow {
        return Ok(Finding::limited(
            "this user is not mapped in its user namespace: peers cannot be distinguished",
            "map a range of uids into the namespace",
        ));
    }
    if found.uid != peer::own_uid() || found.pid != Some(std::process::id()) {
        return Err(format!("wrong: {found:?}").into());
    }
    Ok(Finding::ok(format!("uid {} and pid {}, as they are", found.uid, std::process::id())))
}

fn pidfd_of_peer() -> CheckResult {
    let (here, _there) = pair()?;
    let process = peer::socket_pidfd(here.as_fd())?;
    if process.has_exited() {
        return Err("it says that this process has ended".into());
    }
    Ok(Finding::ok("the kernel names the peer's process without a race"))
}

fn pidfd_and_poll(child: &mut Command) -> CheckResult {
    let mut child =
        child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let pid = Pid::from_child(&child);
    let ended = pidfd_open(pid, PidfdFlags::empty())
        .and_then(|pidfd| poll::wait_readable(&[pidfd.as_fd()], Some(clock::now().after(TIMEOUT))));
    child.wait()?;
    if !ended?.any() {
        return Err("the end of a process was not reported".into());
    }
    Ok(Finding::ok("the end of a process was seen"))
}
