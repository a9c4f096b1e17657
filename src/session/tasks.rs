//! How the tasks of a runtime wait: see [`crate::asynchronous`].

use bellwire_core::Instant;
use bellwire_core::call::Ticket;
use bellwire_core::counters::Outcome;
use bellwire_core::drive::Look;

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
        let other = self.try_reply_otherwise()?;
        Ok(other.map_or(Replied::Nothing, |(ticket, answer)| Replied::Other(ticket, answer)))
    }

    /// Returns whether requests wait for an answer.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.drive.in_flight() > 0
    }

    /// See [`bellwire_core::drive::CallDriver::begin_spin`].
    #[inline]
    pub(crate) fn begin_spin(&mut self) -> bool {
        self.drive.begin_spin()
    }

    /// See [`bellwire_core::drive::CallDriver::look`].
    #[inline]
    pub(crate) fn look(&mut self) -> Look {
        self.drive.look()
    }

    /// See [`bellwire_core::drive::CallDriver::end_spin`].
    #[inline]
    pub(crate) fn end_spin(&mut self, found: bool) {
        self.drive.end_spin(found);
    }

    /// See [`bellwire_core::drive::CallDriver::woke`].
    pub(crate) fn woke(&mut self, began: Instant) {
        self.drive.woke(began);
    }

    /// Withdraws what [`Session::arm`] requested: this end looks by itself.
    pub(crate) fn disarm(&self) {
        self.drive.end().disarm();
    }
}
