//! Snapshots: the newest one now, or the next one when there is one.

use std::sync::Arc;

use bellwire_core::Port;
use bellwire_core::wire::Status;

use super::answers::Attachable;
use super::{Conversation, Desk, Ended};
use crate::publisher::{Published, Shelf};
use crate::server::handler::Handler;

/// What a client awaits, and how far it is with what it was passed.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// The request for the first snapshot after a generation, while there is none.
    request: Option<(u64, u64)>,
    /// Something was published since the last turn.
    has_news: bool,
    /// Where the last answer to such a request begins and ends in the lane. The client takes it when it comes to it: only
    /// what lies before it is overdue.
    unhurried: Option<(u64, u64)>,
}

impl Conversation {
    /// Answers a request for a snapshot: for the newest, or for the first one after a generation.
    pub(super) fn snapshot(
        &mut self,
        id: u64,
        len: usize,
        desk: &Desk<'_>,
        shelf: &Arc<Shelf>,
    ) -> Result<(), Ended> {
        if len == 0 {
            return self.pass_newest(id, shelf);
        }
        let after = desk.scratch.request.get(..len).and_then(|request| request.try_into().ok());
        let Some(after) = after.map(u64::from_le_bytes) else {
            return self.respond(id, Status::Malformed, b"a generation has 8 bytes");
        };
        if let Some(newest) = shelf.newest().filter(|newest| newest.generation > after) {
            return self.pass_awaited(id, newest);
        }
        // One at a time, and others must be able to come in meanwhile, if only to cancel it.
        if self.awaited.request.is_some() || self.serve.is_at_limit() {
            return self.respond(id, Status::Busy, &[]);
        }
        self.awaited.request = Some((id, after));
        Ok(())
    }

    /// Passes the newest snapshot: its descriptor first, so that it is there when the record is seen.
    pub(super) fn pass_newest(&mut self, id: u64, shelf: &Shelf) -> Result<(), Ended> {
        match shelf.newest() {
            Some(newest) => self.pass(id, newest),
            None => self.respond(id, Status::NotYet, &[]),
        }
    }

    fn pass(&mut self, id: u64, newest: Published) -> Result<(), Ended> {
        // A client that does not read its socket is told to come again, in the lane.
        self.attach(id, Attachable::Snapshot(newest.generation, newest.sealed), Status::Busy)
    }

    fn pass_awaited(&mut self, id: u64, newest: Published) -> Result<(), Ended> {
        let begin = self.lanes.position();
        self.pass(id, newest)?;
        self.awaited.unhurried = Some((begin, self.lanes.position()));
        Ok(())
    }

    /// Hears that something was published. Whether a turn would find something to do.
    pub(in crate::server) fn hear_news(&mut self) -> bool {
        self.awaited.has_news = self.awaited.request.is_some();
        !self.is_quiet()
    }

    /// Whether what is awaited may be there.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.awaited.has_news
    }

    /// Passes what was awaited, if it is there now. True when it was.
    #[cold]
    pub(super) fn take_news(&mut self, handler: &Handler) -> Result<bool, Ended> {
        self.awaited.has_news = false;
        let (Some((id, after)), Handler::Snapshot(shelf)) = (self.awaited.request, handler) else {
            return Ok(false);
        };
        let Some(newest) = shelf.newest().filter(|newest| newest.generation > after) else {
            return Ok(false);
        };
        self.awaited.request = None;
        self.pass_awaited(id, newest)?;
        Ok(true)
    }

    /// Ends the wait for a snapshot: of this request, or whichever it is. True when there was one.
    pub(super) fn stop_awaiting(&mut self, id: Option<u64>, status: Status) -> Result<bool, Ended> {
        match self.awaited.request {
            Some((awaited, _)) if id.is_none_or(|id| id == awaited) => {
                self.awaited.request = None;
                self.respond(awaited, status, &[])?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Whether the client has taken all but the answer that it may leave until it comes to it.
    pub(super) fn may_leave_the_rest(&mut self) -> Result<bool, Ended> {
        let Some((begin, end)) = self.awaited.unhurried else { return Ok(false) };
        Ok(end == self.lanes.position() && self.lanes.taken(self.link.peer())? >= begin)
    }
}
