use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use bellwire_core::wire::{Join, Message, PAGE_SIZE};

use bellwire_hostile::wire::{SEALS, Target, memfd, send};

/// How many connections one process keeps open.
const MAX_CONNECTIONS: usize = 4_000;

/// Connects, and sends nothing.
pub(super) fn silent(target: &Target) {
    hold_open(|| target.connect("echo"));
}

/// Sends HELLO, and nothing more.
pub(super) fn hello(target: &Target) {
    hold_open(|| target.hello("echo"));
}

/// Joins with memory that is too small, and is refused.
pub(super) fn join(target: &Target) {
    let Ok(wrong) = memfd(PAGE_SIZE as u64, &[], SEALS, false) else { return };
    hold_open(|| {
        let (socket, session, _) = target.hello_to_welcome("echo")?;
        send(&socket, &Message::Join(Join { session }), &[wrong.as_fd(), wrong.as_fd()]);
        Some(socket)
    });
}

/// Keeps opening connections, and closes the oldest ones beyond the maximum.
fn hold_open(mut connect: impl FnMut() -> Option<OwnedFd>) {
    let mut connections = VecDeque::new();
    loop {
        connections.extend(connect());
        if connections.len() > MAX_CONNECTIONS {
            connections.pop_front();
        }
    }
}
