//! Fetching snapshots, and asking for the next one before it is there.

use std::time::Duration;

use bellwire_core::Deadline;
use bellwire_core::call::Ticket;
use bellwire_core::wire::Status;

use super::{Answer, Body, Outgoing, Session};
use crate::transport::snapshot::SnapshotMap;
use crate::{CallError, Malformed, Service};

/// The memfd of an attached answer.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) generation: u64,
    pub(crate) map: SnapshotMap,
}

impl<S: Service> Session<S> {
    /// Fetches the newest snapshot, which is `newest` or a later one. `None` when there is nothing yet.
    ///
    /// What was [asked for ahead](Session::ask_ahead) lies here already, as a rule: then nobody is asked or woken.
    pub(crate) fn fetch(
        &mut self,
        newest: u64,
        timeout: Duration,
        max: usize,
    ) -> Result<Option<Attached>, CallError> {
        let mut until = Deadline::within(timeout);
        if let Some(ticket) = self.ahead.take() {
            self.sent(ticket);
            match self.fetch_ahead(ticket, &mut until, max) {
                // A later one has followed it.
                Ok(attached) if attached.generation < newest => {}
                // It could not be passed then.
                Err(CallError::Declined { status: Status::Busy }) => {}
                fetched => return fetched.map(Some),
            }
        }
        let answer = match self.exchange_until(Outgoing::Bytes(&[]), &mut until) {
            Err(CallError::Declined { status: Status::NotYet }) => return Ok(None),
            answer => answer?,
        };
        self.attached(answer, max).map(Some)
    }

    /// Asks for the first snapshot after `generation` and wakes nobody for it. Only if nothing was asked for ahead.
    pub(crate) fn ask_ahead(&mut self, generation: u64) {
        debug_assert!(self.ahead.is_none());
        self.ahead = self.drive.submit_unhurried(&generation.to_le_bytes());
    }

    /// Whether what was asked for ahead may lie here.
    pub(crate) fn has_ahead(&self) -> bool {
        self.ahead.is_some() && self.drive.has_news()
    }

    fn fetch_ahead(
        &mut self,
        ticket: Ticket,
        until: &mut Deadline,
        max: usize,
    ) -> Result<Attached, CallError> {
        if !self.drive.has_news() {
            // The provider may be asleep, and not know yet what was asked for.
            self.drive.commit();
        }
        let answer = self.await_answer(ticket, until)?;
        let answer = self.checked(answer)?;
        self.attached(answer, max)
    }

    /// The memory of an answer, which is booked.
    fn attached(&mut self, answer: Answer, max: usize) -> Result<Attached, CallError> {
        let malformed = |why| CallError::Malformed(Malformed { at: 0, len: answer.reply.len, why });
        let attached = match answer.body {
            Body::Mapped(_, map) if map.len() > max => Err(malformed("longer than a snapshot is")),
            Body::Mapped(generation, map) => Ok(Attached { generation, map }),
            Body::Lost(shortage) => {
                Err(CallError::Short { shortage, executed: bellwire_core::Executed::Maybe })
            }
            Body::Inbox | Body::Own(_) => Err(malformed("not an attachment")),
        };
        self.book_answer(answer.reply.ticket, attached.as_ref().err());
        attached
    }
}
