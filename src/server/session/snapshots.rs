//! Answers readers of what is published: passes the newest snapshot or the ring, and answers when something is published.

use std::sync::Arc;

use bellwire_core::end::EndReason;
use bellwire_core::resize::Shortage;
use bellwire_core::wire::Status;

use super::answers::Attachment;
use super::{ServerSession, TurnContext};
use crate::publication::{AwaitGuard, Publication};
use crate::server::handler::Handler;
use crate::server::incidents::IncidentCause;

/// The generation that a client awaits, and the last answer about one.
#[derive(Debug, Default)]
pub(super) struct LongPoll {
    /// The request, and the generation above which it is answered.
    request: Option<(u64, u64, AwaitGuard)>,
    /// Whether something was published since the last turn.
    has_published: bool,
    /// Start and end in the lane of the last answer to such a request. The client takes it when it polls for the
    /// news, so only what precedes it counts as unread.
    deferrable: Option<(u64, u64)>,
}

impl ServerSession {
    /// Answers a request for something published.
    pub(super) fn published(
        &mut self,
        id: u64,
        len: usize,
        context: &TurnContext<'_>,
        store: &Arc<Publication>,
    ) -> Result<(), EndReason> {
        let request = context.scratch.request.get(..len).unwrap_or_default();
        if request.is_empty() {
            return self.pass_newest(id, store);
        }
        if let Ok(number) = request.try_into().map(u32::from_le_bytes) {
            return match store.ring(number) {
                Some(ring) => self.attach(id, Attachment::Ring(ring), Status::Busy),
                None => self.respond(id, Status::NotYet, &[]),
            };
        }
        match request.try_into() {
            Ok(after) => self.await_publication(id, u64::from_le_bytes(after), store),
            Err(_) => self.respond(id, Status::Malformed, b"no request of a published service"),
        }
    }

    /// Passes the newest snapshot: the descriptor first, so that it has arrived when the client sees the record.
    pub(super) fn pass_newest(&mut self, id: u64, store: &Publication) -> Result<(), EndReason> {
        match store.newest() {
            // A client that does not read its socket gets the answer *busy* in the lane.
            Ok(Some((generation, sealed))) => {
                self.attach(id, Attachment::Snapshot(generation, sealed), Status::Busy)
            }
            Ok(None) => self.respond(id, Status::NotYet, &[]),
            Err(error) => {
                let shortage: Shortage = error.shortage(0);
                self.incident.get_or_insert(IncidentCause::Short(shortage));
                self.respond(id, Status::Busy, &[])
            }
        }
    }

    /// Answers as soon as something after a generation is published.
    fn await_publication(
        &mut self,
        id: u64,
        after: u64,
        store: &Arc<Publication>,
    ) -> Result<(), EndReason> {
        // One at a time; and other requests must still be accepted, if only to cancel it.
        if self.long_poll.request.is_some() || self.driver.is_at_limit() {
            return self.respond(id, Status::Busy, &[]);
        }
        match store.await_after(after) {
            Some(guard) => {
                self.long_poll.request = Some((id, after, guard));
                Ok(())
            }
            None => self.answer_subscriber(id),
        }
    }

    fn answer_subscriber(&mut self, id: u64) -> Result<(), EndReason> {
        let begin = self.end().lanes().position();
        self.respond(id, Status::Ok, &[])?;
        self.long_poll.deferrable = Some((begin, self.end().lanes().position()));
        Ok(())
    }

    /// Notes that something was published. Returns whether a turn would find work.
    pub(in crate::server) fn mark_published(&mut self) -> bool {
        self.long_poll.has_published = self.long_poll.request.is_some();
        !self.is_quiet()
    }

    /// Returns whether what the client awaits may be published.
    #[inline]
    pub(super) fn has_published(&self) -> bool {
        self.long_poll.has_published
    }

    /// Answers if what the client awaits is published now. Returns true when it was.
    #[cold]
    pub(super) fn answer_if_published(&mut self, handler: &Handler) -> Result<bool, EndReason> {
        self.long_poll.has_published = false;
        let (Some((id, after, _)), Handler::Snapshot(store)) = (&self.long_poll.request, handler)
        else {
            return Ok(false);
        };
        let id = *id;
        if store.generation() <= *after {
            return Ok(false);
        }
        self.long_poll.request = None;
        self.answer_subscriber(id)?;
        Ok(true)
    }

    /// Ends the wait for a publication, of this request or of any. Returns true when there was one.
    pub(super) fn stop_awaiting(
        &mut self,
        id: Option<u64>,
        status: Status,
    ) -> Result<bool, EndReason> {
        match self.long_poll.request {
            Some((polled, ..)) if id.is_none_or(|id| id == polled) => {
                self.long_poll.request = None;
                self.respond(polled, status, &[])?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Returns whether the client has taken everything except the answer that it may leave.
    pub(super) fn only_deferrable_left(&mut self) -> Result<bool, EndReason> {
        let Some((begin, end)) = self.long_poll.deferrable else { return Ok(false) };
        Ok(end == self.end().lanes().position() && self.driver.end_mut().taken()? >= begin)
    }
}
