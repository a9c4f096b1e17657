use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use bellwire_hostile::wire::{Target, rest};

/// How many descriptors one process keeps: below its limit.
const MAX_DESCRIPTORS: usize = 19_000;

/// Opens sessions and closes them, keeping the memory that the server created for each.
pub(super) fn kept(target: &Target) {
    keep(target, Some);
}

/// The same with `O_PATH` descriptors, which cannot be mapped but keep the memory allocated.
pub(super) fn by_path(target: &Target) {
    keep(target, |fd| {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
    });
}

/// Opens sessions, and keeps each page and lane as the descriptor that `convert` returns.
fn keep(target: &Target, convert: impl Fn(OwnedFd) -> Option<OwnedFd>) {
    let mut kept = Vec::new();
    loop {
        let Some(session) = target.open("echo") else { continue };
        if kept.len() < MAX_DESCRIPTORS {
            // Page and lane; the board is the same for all sessions.
            kept.extend(session.server_fds.into_iter().take(2).filter_map(&convert));
        }
    }
}

/// Opens as many sessions as the server admits, and keeps only the socket of each.
pub(super) fn idle(target: &Target) {
    let mut open = Vec::new();
    loop {
        match target.open("echo") {
            Some(session) if open.len() < MAX_DESCRIPTORS => open.push(session.socket),
            _ => rest(),
        }
    }
}

/// Opens a thousand sessions, or as many as the server admits, closes them together, and repeats that.
pub(super) fn churn(target: &Target) {
    loop {
        drop(target.sessions("echo", 1_000));
    }
}
