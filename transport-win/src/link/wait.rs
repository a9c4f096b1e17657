//! How a [`Link`] waits for its peer: on all its handles at once, and never past the peer's end.

use std::os::windows::io::AsHandle;

use bellwire_core::control::{BLOCKED_SLICE, Heard};
use bellwire_core::sync::Ordering;
use bellwire_core::{Instant, Park, PeerMemory, Woken, sliced};

use super::Link;
use crate::peer::Process;
use crate::region::PeerRegion;
use crate::{clock, poll};

/// The most handles that a park waits for: the bell, the cancellation, the process and the pipe.
const MOST: usize = 4;

/// What a wait ended by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Bell,
    Cancel,
    Process,
    Pipe,
}

impl Link {
    /// Sleeps until the word at `offset` of `board`, which the same peer writes, moves on from `seen`, the peer
    /// dies, or the wait is over. The peer rings this link's event after it has moved the word.
    pub fn watch(
        &self,
        board: &PeerRegion,
        offset: usize,
        seen: u64,
        until: Option<Instant>,
    ) -> Woken {
        self.sleep(|| board.load_u64(offset, Ordering::Acquire) != seen, until)
    }

    /// Whether the peer's process ended, or it closed the session or its pipe. Does not wait. What it
    /// published before is still there to be read.
    pub fn peer_gone(&self) -> bool {
        self.peer.says_closed()
            || self.process().is_some_and(Process::has_exited)
            || !self.channel.is_open()
    }

    pub(super) fn park_on_event(&self, park: &Park) -> Woken {
        self.sleep(|| park.has_moved(&self.peer), park.until)
    }

    /// Sleeps until something has moved, or the wait is over. Data before death: what was published is read first. A
    /// ring for what was seen before is slept over: whoever waits stays armed.
    fn sleep(&self, moved: impl Fn() -> bool, until: Option<Instant>) -> Woken {
        let reason = || {
            if self.cancel.is_set() {
                Some(Woken::Cancelled)
            } else if moved() {
                Some(Woken::Rung)
            } else {
                None
            }
        };
        loop {
            if let Some(reason) = reason() {
                return reason;
            }
            // What is in the pipe is taken out here: left there it would end the wait at once. It may have been the
            // ring for what has just moved: the word is looked at again.
            let heard = self.hear();
            if let Some(reason) = reason() {
                return reason;
            }
            if self.peer.says_closed() || heard == Heard::End || self.fault().is_some() {
                return reason().unwrap_or(Woken::PeerGone);
            }
            let (wake, is_slice) = match heard {
                Heard::More => {
                    let (wake, is_slice) = sliced(until, clock::now().after(BLOCKED_SLICE));
                    (Some(wake), is_slice)
                }
                _ => (until, false),
            };
            let woke = self.wait(wake, heard != Heard::More);
            if woke == Some(Source::Cancel) && !self.cancel.is_set() {
                // What is left of a cancellation that was taken. One that comes now has set its word before.
                self.cancel.settle();
            }
            if let Some(reason) = reason() {
                return reason;
            }
            if woke == Some(Source::Process) || self.peer_gone() {
                // Whatever it published before it went is visible by now: look once more.
                return reason().unwrap_or(Woken::PeerGone);
            }
            // A peer that keeps ringing does not extend a deadline.
            if (woke.is_none() && !is_slice) || clock::is_over(until) {
                return Woken::Deadline;
            }
        }
    }

    /// Waits for whatever may happen; `None` at the deadline.
    fn wait(&self, until: Option<Instant>, with_pipe: bool) -> Option<Source> {
        let bell = (Source::Bell, self.own_event.as_handle());
        let mut sources = [bell; MOST];
        let others = [
            (Source::Cancel, self.cancel.event().map(AsHandle::as_handle)),
            (Source::Process, self.process().map(AsHandle::as_handle)),
            // One that nothing is taken out of stays ready.
            (Source::Pipe, with_pipe.then(|| self.channel.arrived())),
        ];
        let mut used = 1;
        let others = others.into_iter().filter_map(|(source, handle)| Some((source, handle?)));
        for (slot, other) in sources.iter_mut().skip(1).zip(others) {
            *slot = other;
            used += 1;
        }
        let handles = sources.map(|(_, handle)| handle);
        // It fails for a handle that is none, and these are all open.
        let woke = poll::wait(handles.get(..used).unwrap_or(&handles), until).ok().flatten();
        woke.and_then(|at| sources.get(at)).map(|(source, _)| *source)
    }
}
