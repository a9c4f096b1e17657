//! Passes snapshots: the newest one now, or the next one when it is published.

use std::sync::Arc;

use bellwire_core::end::Why;
use bellwire_core::wire::Status;

use super::answers::Attachment;
use super::{ServerSession, TurnContext};
use crate::publisher::{Published, SnapshotStore};
use crate::server::handler::Handler;

/// The snapshot that a client awaits, and the last one it was passed.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// The request for the first snapshot after a generation that is not published yet.
    request: Option<(u64, u64)>,
    /// Whether something was published since the last turn.
    has_news: bool,
    /// Start and end in the lane of the last answer to such a request. The client takes it when it wants the
    /// snapshot, so only what precedes it counts as unread.
    unhurried: Option<(u64, u64)>,
}

impl ServerSession {
    /// Answers a request for a snapshot: the newest, or the first one after a generation.
    pub(super) fn snapshot(
        &mut self,
        id: u64,
        len: usize,
        context: &TurnContext<'_>,
        store: &Arc<SnapshotStore>,
    ) -> Result<(), Why> {
        if len == 0 {
            return self.pass_newest(id, store);
        }
        let after = context.scratch.request.get(..len).and_then(|request| request.try_into().ok());
        let Some(after) = after.map(u64::from_le_bytes) else {
            return self.respond(id, Status::Malformed, b"a generation has 8 bytes");
        };
        if let Some(newest) = store.newest().filter(|newest| newest.generation > after) {
            return self.pass_awaited(id, newest);
        }
        // One at a time; and other requests must still be accepted, if only to cancel it.
        if self.awaited.request.is_some() || self.driver.is_at_limit() {
            return self.respond(id, Status::Busy, &[]);
        }
        self.awaited.request = Some((id, after));
        Ok(())
    }

    /// Passes the newest snapshot: the descriptor first, so that it has arrived when the client sees the record.
    pub(super) fn pass_newest(&mut self, id: u64, store: &SnapshotStore) -> Result<(), Why> {
        match store.newest() {
            Some(newest) => self.pass(id, newest),
            None => self.respond(id, Status::NotYet, &[]),
        }
    }

    fn pass(&mut self, id: u64, newest: Published) -> Result<(), Why> {
        // A client that does not read its socket gets the answer *busy* in the lane.
        self.attach(id, Attachment::Snapshot(newest.generation, newest.sealed), Status::Busy)
    }

    fn pass_awaited(&mut self, id: u64, newest: Published) -> Result<(), Why> {
        let begin = self.end().lanes().position();
        self.pass(id, newest)?;
        self.awaited.unhurried = Some((begin, self.end().lanes().position()));
        Ok(())
    }

    /// Notes that something was published. Returns whether a turn would find work.
    pub(in crate::server) fn hear_news(&mut self) -> bool {
        self.awaited.has_news = self.awaited.request.is_some();
        !self.is_quiet()
    }

    /// Returns whether the awaited snapshot may be published.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.awaited.has_news
    }

    /// Passes the awaited snapshot if it is published now. Returns true when it was.
    #[cold]
    pub(super) fn take_news(&mut self, handler: &Handler) -> Result<bool, Why> {
        self.awaited.has_news = false;
        let (Some((id, after)), Handler::Snapshot(store)) = (self.awaited.request, handler) else {
            return Ok(false);
        };
        let Some(newest) = store.newest().filter(|newest| newest.generation > after) else {
            return Ok(false);
        };
        self.awaited.request = None;
        self.pass_awaited(id, newest)?;
        Ok(true)
    }

    /// Ends the wait for a snapshot, of this request or of any. Returns true when there was one.
    pub(super) fn stop_awaiting(&mut self, id: Option<u64>, status: Status) -> Result<bool, Why> {
        match self.awaited.request {
            Some((awaited, _)) if id.is_none_or(|id| id == awaited) => {
                self.awaited.request = None;
                self.respond(awaited, status, &[])?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Returns whether the client has taken everything except the answer that it may leave.
    pub(super) fn may_leave_the_rest(&mut self) -> Result<bool, Why> {
        let Some((begin, end)) = self.awaited.unhurried else { return Ok(false) };
        Ok(end == self.end().lanes().position() && self.driver.end_mut().taken()? >= begin)
    }
}
