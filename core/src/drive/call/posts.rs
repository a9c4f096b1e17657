//! One-way requests.

use super::{CallDriver, CallFailed};
use crate::sync::Ordering;
use crate::{Deadline, Executed, Observer, PeerMemory, Port, Word};

impl<P: Port, O: Observer> CallDriver<P, O> {
    /// Returns how many one-way requests the peer has not taken; after its end, it never will.
    pub fn unconsumed_posts(&self) -> usize {
        self.calls.unconsumed_after(self.taken())
    }

    /// Returns where the last one-way request ends, unless the peer is known to have taken all of them.
    pub fn last_post_end(&self) -> Option<u64> {
        self.calls.last_post_end()
    }

    /// Returns whether the peer has taken everything before `position`.
    pub fn has_taken(&self, position: u64) -> bool {
        self.taken() >= position
    }

    /// How far the peer has taken this end's records, as it says now.
    fn taken(&self) -> u64 {
        let (seen, head) =
            (self.end.lanes.seen_taken(), self.port().peer().load(Word::Head, Ordering::Relaxed));
        // Relaxed: nothing is read or written by it. An invalid `head` is reported where it matters.
        if head <= self.end.lanes.position() { head.max(seen) } else { seen }
    }

    /// Waits until the peer takes what was posted, or publishes something: first take answers as for
    /// [`CallDriver::wait_for_room`]. Returns whether it has taken all.
    ///
    /// # Errors
    /// [`CallFailed`]; the session is usable after [`CallFailed::Deadline`] and [`CallFailed::Cancelled`].
    pub fn wait_consumed(&mut self, until: &mut Deadline) -> Result<bool, CallFailed> {
        let (lanes, _, peer) = self.end.parts();
        self.calls.unconsumed(lanes, peer).map_err(|fault| self.end.fail(fault))?;
        let Some(last) = self.calls.last_post_end() else { return Ok(true) };
        self.check_open()?;
        self.end.lanes.await_consumed(last);
        self.wait(true, until, Executed::Maybe)?;
        Ok(false)
    }

    /// Requests a ring when the peer has taken everything before `position`, and for the next answer and, with `room`, for room
    /// as [`CallDriver::arm`] does: for an event loop that is about to sleep. Returns true if any of it is already there.
    ///
    /// # Errors
    /// [`CallFailed::Peer`] when the peer violates the protocol.
    pub fn arm_for_consumed(&mut self, position: u64, room: bool) -> Result<bool, CallFailed> {
        if room && !self.needs_answer {
            self.end.lanes.await_consumed_or_room(position);
        } else {
            self.end.lanes.await_consumed(position);
        }
        self.arm_with(true)
    }
}
