//! The fast path of a plain message: one that needs nothing but a record in the lane.

use super::{CallFailed, Drive};
use crate::call::Ticket;
use crate::{Deadline, Executed, Port};

impl<P: Port> Drive<P> {
    /// Writes an unpublished request if that takes nothing but a record in the lane: the fast path of
    /// [`Drive::push`]. Returns `None`, and writes nothing, otherwise.
    #[inline]
    pub fn try_push(&mut self, payload: &[u8]) -> Option<Ticket> {
        if self.poisoned.is_some() || self.gone {
            return None;
        }
        self.trace.begin(|| self.port.now());
        let ticket = self.calls.try_submit(&mut self.lanes, self.port.own(), payload);
        match ticket {
            Some(_) => self.trace.wrote(self.lanes.position()),
            None => self.trace.begins_again(),
        }
        ticket
    }

    /// Takes an answer if one has arrived that is complete, Ok, expected and no longer than `buffer`: the fast path
    /// of [`Drive::try_reply`], which handles all others. The returned number is its length at the start of `buffer`.
    #[inline]
    pub fn try_reply_fast(&mut self, buffer: &mut [u8]) -> Option<(Ticket, usize)> {
        if self.poisoned.is_some() {
            return None;
        }
        let (own, peer) = (self.port.own(), self.port.peer());
        let reply = self.calls.try_reply_fast(&mut self.lanes, own, peer, buffer);
        if let Some((ticket, len)) = reply {
            let end = || self.lanes.received().bytes;
            self.trace.took(peer, ticket.id(), len, end, || self.port.now());
        }
        // As in `try_reply`.
        if self.lanes.wake_check_due() {
            self.give_back();
        }
        reply
    }

    /// Commits for a caller that only receives.
    #[cold]
    fn give_back(&mut self) {
        self.commit();
    }

    /// Waits for the next answer, if it is one for [`Drive::try_reply_fast`]. Returns `None` when something else has to be
    /// handled.
    ///
    /// # Errors
    /// As [`Drive::wait_for_reply`].
    #[inline]
    pub fn try_wait(
        &mut self,
        until: &mut Deadline,
        buffer: &mut [u8],
    ) -> Result<Option<(Ticket, usize)>, CallFailed> {
        let mut reply = self.try_reply_fast(buffer);
        if reply.is_none() && !self.has_news() {
            self.wait(false, until, Executed::Maybe)?;
            reply = self.try_reply_fast(buffer);
        }
        Ok(reply)
    }

    /// Returns whether [`Drive::try_reply`] has anything to read or report.
    #[inline]
    pub fn has_news(&self) -> bool {
        let is_over = self.poisoned.is_some() || self.calls.closed().is_some();
        is_over || self.unread || self.lanes.has_untaken() || self.lanes.moved(self.port.peer())
    }
}
