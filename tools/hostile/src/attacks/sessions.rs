use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use crate::wire::{Target, pause};

/// Descriptors that one process keeps: below its limit.
const MOST: usize = 19_000;

/// Opens sessions and closes them, keeping what the server made for each.
pub(super) fn kept(target: &Target) {
    keep(target, Some);
}

/// The same by descriptors that cannot be mapped, but hold the pages all the same.
pub(super) fn by_path(target: &Target) {
    keep(target, |fd| {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
    });
}

fn keep(target: &Target, as_what: impl Fn(OwnedFd) -> Option<OwnedFd>) {
    let mut kept = Vec::new();
    loop {
        let Some(session) = target.open("echo") else { continue };
        if kept.len() < MOST {
            // Page and lane; all sessions have one board.
            kept.extend(session.theirs.into_iter().take(2).filter_map(&as_what));
        }
    }
}

/// Opens as many as there are to be had, with no descriptor here but the socket.
pub(super) fn idle(target: &Target) {
    let mut open = Vec::new();
    loop {
        match target.open("echo") {
            Some(session) if open.len() < MOST => open.push(session.socket),
            _ => _ = pause::<()>(),
        }
    }
}

/// Opens a thousand, or as many as there are to be had, and closes them together, again and again.
pub(super) fn churn(target: &Target) {
    loop {
        drop(target.sessions("echo", 1_000));
    }
}
