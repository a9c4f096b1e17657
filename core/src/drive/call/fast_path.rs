//! The fast path of a plain message: one that needs nothing but a record in the lane.

use super::{CallDriver, CallFailed};
use crate::call::Ticket;
use crate::{Deadline, Executed, Observer, Port};

impl<P: Port, O: Observer> CallDriver<P, O> {
    /// Takes an answer if one has arrived that is complete, Ok, expected and no longer than `buffer`: the fast path
    /// of [`CallDriver::try_reply`], which handles all others. The returned number is its length at the start of `buffer`.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a call saves and restores six registers")]
    pub fn try_reply_fast(&mut self, buffer: &mut [u8]) -> Option<(Ticket, usize)> {
        if self.end.is_over() {
            return None;
        }
        let (lanes, own, peer) = self.end.parts();
        let reply = self.calls.try_reply_fast(lanes, own, peer, buffer);
        if let Some((ticket, len)) = reply {
            self.end.took(ticket.id(), len);
        }
        // As in `try_reply`.
        if self.end.lanes.wake_check_due() {
            self.give_back();
        }
        reply
    }

    /// Commits for a caller that only receives.
    #[cold]
    fn give_back(&mut self) {
        self.commit();
    }

    /// Waits for the next answer, if it is one for [`CallDriver::try_reply_fast`]. Returns `None` when something else has to be
    /// handled.
    ///
    /// # Errors
    /// As [`CallDriver::wait_for_reply`].
    #[inline]
    pub fn wait_fast(
        &mut self,
        until: &mut Deadline,
        buffer: &mut [u8],
    ) -> Result<Option<(Ticket, usize)>, CallFailed> {
        let mut has_waited = false;
        loop {
            let reply = self.try_reply_fast(buffer);
            if reply.is_some() || has_waited || self.has_reply() {
                return Ok(reply);
            }
            self.wait(false, until, Executed::Maybe)?;
            has_waited = true;
        }
    }

    /// Returns whether [`CallDriver::try_reply`] has anything to read or report.
    #[inline]
    pub fn has_reply(&self) -> bool {
        self.end.is_over() || self.has_unread || self.end.lanes.has_unread() || self.end.has_moved()
    }
}
