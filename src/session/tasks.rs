//! How the tasks of a runtime wait: see [`crate::asynchronous`].

use bellwire_core::call::Ticket;
use bellwire_core::counters::Outcome;

use super::Session;
use crate::{CallError, Service};

/// What [`Session::try_reply_to`] found.
pub(crate) enum Replied<R> {
    Nothing,
    Passed,
    Other(Ticket, Result<R, CallError>),
}

impl<S: Service> Session<S> {
    /// Passes the next answer to `to`, which stores it where it stays, if it is plain: [`Replied::Passed`]. All others are
    /// returned, as by [`Session::try_reply`].
    #[inline]
    pub(crate) fn try_reply_to(
        &mut self,
        to: impl FnOnce(Ticket, S::Response),
    ) -> Result<Replied<S::Response>, CallError> {
        if self.pending_replies.is_empty() && self.batches.is_empty() {
            if let Some((ticket, len)) = self.drive.try_reply_fast(&mut self.inbox) {
                return Ok(match self.decode_inbox(len) {
                    Ok(response) => {
                        self.ended(ticket, Outcome::Answered);
                        to(ticket, response);
                        Replied::Passed
                    }
                    Err(malformed) => {
                        Replied::Other(ticket, Err(self.unreadable(ticket, malformed)))
                    }
                });
            }
        }
        let other = self.try_reply_slow()?;
        Ok(other.map_or(Replied::Nothing, |(ticket, answer)| Replied::Other(ticket, answer)))
    }

    /// Returns whether requests wait for an answer.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.drive.in_flight() > 0
    }
}
