//! How a [`Link`] waits for its peer: on all its handles together, and never past the peer's end.

use std::os::windows::io::AsHandle;

use bellwire_core::control::{BLOCKED_SLICE, DrainOutcome};
use bellwire_core::{Instant, PeerMemory, Woken, sliced};

use super::Link;
use crate::{clock, poll};

/// The maximum number of handles that a park waits for: the bell, the cancellation, the process and the pipe.
const MOST: usize = 4;

/// Sleeps until a word has changed or the wait is over. A ring for an earlier change does not end the sleep: the waiting end stays armed.
pub(super) fn sleep(link: &Link, moved: impl Fn() -> bool, until: Option<Instant>) -> Woken {
    let reason = || link.reason(&moved);
    loop {
        if let Some(reason) = reason() {
            return reason;
        }
        // Messages in the pipe are taken out here: left there they would end the wait immediately. One may be the ring
        // for the latest change, so the word is checked again.
        let outcome = link.drain_before_wait();
        if let Some(reason) = reason() {
            return reason;
        }
        if link.peer.says_closed() || outcome == DrainOutcome::End || link.fault().is_some() {
            return reason().unwrap_or(Woken::PeerGone);
        }
        let (wake, is_slice) = match outcome {
            DrainOutcome::More => {
                let (wake, is_slice) = sliced(until, clock::now().after(BLOCKED_SLICE));
                (Some(wake), is_slice)
            }
            _ => (until, false),
        };
        let woke = wait(link, wake, outcome != DrainOutcome::More);
        if let Some(reason) = reason() {
            return reason;
        }
        if link.peer_gone() {
            // Whatever the peer published before is visible by now: check once more.
            return reason().unwrap_or(Woken::PeerGone);
        }
        // A peer that keeps ringing does not extend a deadline.
        if (!woke && !is_slice) || clock::is_over(until) {
            return Woken::Deadline;
        }
    }
}

/// Waits for any event; returns whether there was one before the deadline.
fn wait(link: &Link, until: Option<Instant>, with_pipe: bool) -> bool {
    let others = [
        link.cancel.event().map(AsHandle::as_handle),
        link.process().map(AsHandle::as_handle),
        // If no message is taken out, the pipe stays ready.
        with_pipe.then(|| link.arrived()),
    ];
    let mut handles = [link.bells.own.as_handle(); MOST];
    let mut used = 1;
    for (slot, other) in handles.iter_mut().skip(1).zip(others.into_iter().flatten()) {
        *slot = other;
        used += 1;
    }
    // Fails only for an invalid handle, and these are all open.
    poll::wait(handles.get(..used).unwrap_or(&handles), until).is_ok_and(|woke| woke.is_some())
}
