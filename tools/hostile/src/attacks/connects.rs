use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use bellwire_core::wire::{Attach, Message, PAGE_SIZE};

use crate::wire::{SEALS, Target, memfd, send};

/// Connections of one process that are open at once.
const MOST: usize = 4_000;

/// Connects, and sends nothing.
pub(super) fn silent(target: &Target) {
    crowd(|| target.connect("echo"));
}

/// Sends HELLO, and nothing more.
pub(super) fn hello(target: &Target) {
    crowd(|| target.hello("echo"));
}

/// Attaches memory that is too small, and is refused.
pub(super) fn attach(target: &Target) {
    let Ok(wrong) = memfd(PAGE_SIZE as u64, &[], SEALS, false) else { return };
    crowd(|| {
        let (socket, session, _) = target.enter("echo")?;
        send(&socket, &Message::Attach(Attach { session }), &[wrong.as_fd(), wrong.as_fd()]);
        Some(socket)
    });
}

fn crowd(mut come: impl FnMut() -> Option<OwnedFd>) {
    let mut crowd = VecDeque::new();
    loop {
        crowd.extend(come());
        if crowd.len() > MOST {
            crowd.pop_front();
        }
    }
}
