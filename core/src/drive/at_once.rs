//! The short way of a plain message: what needs nothing but a record in the lane.

use super::{CallFailed, Drive};
use crate::call::Ticket;
use crate::{Deadline, Executed, Port};

impl<P: Port> Drive<P> {
    /// Writes a request without publishing it, if it takes no more than that: the short way of [`Drive::push`], which is
    /// for whatever else there is to do. `None` when there is, and nothing was written.
    #[inline]
    pub fn push_at_once(&mut self, payload: &[u8]) -> Option<Ticket> {
        if self.poisoned.is_some() || self.gone {
            return None;
        }
        self.trace.begin(|| self.port.now());
        let ticket = self.calls.submit_at_once(&mut self.lanes, self.port.own(), payload);
        match ticket {
            Some(_) => self.trace.wrote(self.lanes.position()),
            None => self.trace.begins_again(),
        }
        ticket
    }

    /// An answer, if one has arrived that is whole, Ok, waited for, and no longer than `buffer`: the short way of
    /// [`Drive::try_reply`], which is for whatever else may have. It lies in the first bytes of `buffer`, as many as the
    /// number says.
    #[inline]
    pub fn reply_at_once(&mut self, buffer: &mut [u8]) -> Option<(Ticket, usize)> {
        if self.poisoned.is_some() {
            return None;
        }
        let (own, peer) = (self.port.own(), self.port.peer());
        let reply = self.calls.reply_at_once(&mut self.lanes, own, peer, buffer);
        if let Some((ticket, len)) = reply {
            let end = || self.lanes.received().bytes;
            self.trace.took(peer, ticket.id(), len, end, || self.port.now());
        }
        // As in `try_reply`.
        if self.lanes.owes_a_look() {
            self.give_back();
        }
        reply
    }

    /// Publishes for a caller that only takes.
    #[cold]
    fn give_back(&mut self) {
        self.commit();
    }

    /// Waits for the next answer, if it is one for [`Drive::reply_at_once`]. `None` when there is something else to look at.
    ///
    /// # Errors
    /// As [`Drive::wait_for_reply`].
    #[inline]
    pub fn wait_at_once(
        &mut self,
        until: &mut Deadline,
        buffer: &mut [u8],
    ) -> Result<Option<(Ticket, usize)>, CallFailed> {
        let mut reply = self.reply_at_once(buffer);
        if reply.is_none() && !self.has_news() {
            self.wait(false, until, Executed::Maybe)?;
            reply = self.reply_at_once(buffer);
        }
        Ok(reply)
    }

    /// Whether [`Drive::try_reply`] has anything to look at, or to say.
    #[inline]
    pub fn has_news(&self) -> bool {
        let is_over = self.poisoned.is_some() || self.calls.closed().is_some();
        is_over || self.unread || self.lanes.has_untaken() || self.lanes.moved(self.port.peer())
    }
}
