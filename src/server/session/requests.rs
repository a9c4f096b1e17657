//! What a client asks for: run at once, or queued for a worker.

use bellwire_core::end::EndReason;
use bellwire_core::resize::FollowError;
use bellwire_core::serve::Incoming;
use bellwire_core::wire::{ONE_WAY, Status};

use super::{Scratch, ServerSession, TurnContext};
use crate::server::handler::{Handler, Request, Room};
use crate::server::incidents::IncidentCause;
use crate::server::tasks::Withdrawn;
use crate::server::workers::{JOB, Job, JobPayload};
use crate::transport::memory::OverQuota;
use crate::{Payload, payload};

impl ServerSession {
    /// Returns what the client sent next. A request that arrives in parts takes the shared buffer with it until it is
    /// complete: other sessions have turns in between.
    #[inline]
    pub(super) fn next(&mut self, scratch: &mut Scratch) -> Result<Option<Incoming>, EndReason> {
        let was_arriving = self.driver.is_arriving();
        let buffer = if was_arriving { &mut self.arriving } else { &mut scratch.request };
        let incoming = self.driver.next(buffer)?;
        if was_arriving != self.driver.is_arriving() {
            std::mem::swap(&mut self.arriving, &mut scratch.request);
            if was_arriving {
                self.arriving = Vec::new();
                self.arriving_charge.clear();
            }
        }
        Ok(incoming)
    }

    /// Charges the received bytes of a request in parts. Above the user's quota, its rest is skipped.
    pub(super) fn charge_arriving(&mut self) {
        let bytes = if self.driver.is_arriving() { self.arriving.len() as u64 } else { 0 };
        if let Err(over) = self.arriving_charge.resize(bytes) {
            self.note_over_quota(&over);
            self.driver.give_up_arriving();
            self.arriving = Vec::new();
            self.arriving_charge.clear();
        }
    }

    pub(super) fn request(
        &mut self,
        id: u64,
        len: usize,
        context: &mut TurnContext<'_>,
    ) -> Result<(), EndReason> {
        let handler = match context.handler {
            Handler::Snapshot(_) if id == ONE_WAY => {
                return self.respond(id, Status::Malformed, &[]);
            }
            // Cloned, since lending it would take a server 4 instructions more for each call.
            Handler::Snapshot(store) => return self.published(id, len, context, &store.clone()),
            Handler::Task(_) => {
                let request = take_away(&mut context.scratch.request, len);
                return self.submit(id, JobPayload::Bytes(request), len, context);
            }
            Handler::Call(handler) => handler,
        };
        let Scratch { request, answer } = context.scratch;
        if context.workers.is_empty() {
            answer.clear();
            let sampled = self.driver.end().observer().is_handling();
            let incoming = Request::Buffer(request, len);
            let status = match sampled {
                false => handler.call(&self.caller, incoming, answer),
                true => handler.call_traced(&self.caller, incoming, answer),
            };
            if len >= payload::WORTH_KEEPING {
                payload::refill(request);
            }
            return self.deliver(id, status, answer);
        }
        let request = take_away(request, len);
        self.submit(id, JobPayload::Bytes(request), len, context)
    }

    /// Handles many requests in one message.
    pub(super) fn batch(
        &mut self,
        id: u64,
        len: usize,
        context: &mut TurnContext<'_>,
    ) -> Result<(), EndReason> {
        let bytes = usize::try_from(self.end().lanes().max_message()).unwrap_or(usize::MAX);
        let room = Room { bytes, items: self.max_batch };
        let Scratch { request, answer } = context.scratch;
        match context.handler {
            Handler::Snapshot(_) => {
                self.respond(id, Status::Malformed, b"a snapshot is asked for alone")
            }
            Handler::Call(handler) if context.workers.is_empty() => {
                answer.clear();
                let batch = request.get(..len).unwrap_or_default();
                let status = handler.call_batch(&self.caller, batch, room, answer);
                self.deliver(id, status, answer)
            }
            Handler::Call(_) | Handler::Task(_) => {
                let batch = take_away(request, len);
                self.submit(id, JobPayload::Batch(batch, room), len, context)
            }
        }
    }

    /// Handles an attached request.
    pub(super) fn attached(
        &mut self,
        id: u64,
        context: &mut TurnContext<'_>,
    ) -> Result<(), EndReason> {
        let Some(request) = self.receive(id)? else {
            // It reached no handler and may be sent again.
            return self.respond(id, Status::Busy, &[]);
        };
        match context.handler {
            Handler::Snapshot(_) if id == ONE_WAY => self.respond(id, Status::Malformed, &[]),
            Handler::Snapshot(store) => self.pass_newest(id, store),
            Handler::Call(handler) if context.workers.is_empty() => {
                let answer = &mut context.scratch.answer;
                answer.clear();
                let status = handler.call_traced(&self.caller, Request::Mapped(request), answer);
                let delivered = self.deliver(id, status, answer);
                answer.clear();
                delivered
            }
            Handler::Call(_) | Handler::Task(_) => {
                let len = request.len();
                self.submit(id, JobPayload::Mapped(request), len, context)
            }
        }
    }

    /// Queues a request of `len` bytes for a worker, or starts its future.
    fn submit(
        &mut self,
        id: u64,
        request: JobPayload,
        len: usize,
        context: &TurnContext<'_>,
    ) -> Result<(), EndReason> {
        let charge = match self.user_handle.quota.charge((len + JOB) as u64) {
            Ok(charge) => charge,
            Err(over) => {
                self.note_over_quota(&over);
                return self.respond(id, Status::Busy, &[]);
            }
        };
        let (client, slot, caller) = (self.client, context.slot, self.caller.unwatched());
        if id == ONE_WAY {
            self.queued_posts += 1;
        } else {
            self.last_queued = id;
        }
        let after = self.last_queued;
        let traced = self.end().observer().queue(id);
        let job = Job { client, slot, id, after, caller, request, traced, charge };
        context.handler.queue(job, context.workers, context.tasks);
        Ok(())
    }

    #[cold]
    pub(super) fn note_over_quota(&mut self, over: &OverQuota) {
        self.incident.get_or_insert(IncidentCause::over_quota(over));
    }

    /// Returns the memory of a request; `None` when it cannot be mapped now.
    pub(super) fn receive(&mut self, id: u64) -> Result<Option<Payload>, EndReason> {
        match self.driver.end_mut().port_mut().take_attachment(id) {
            Ok((_, map)) => Ok(Some(Payload::mapped(map))),
            Err(FollowError::Peer(fault)) => Err(fault.into()),
            Err(FollowError::Short(shortage)) => {
                self.incident.get_or_insert(IncidentCause::Short(shortage));
                Ok(None)
            }
        }
    }

    pub(super) fn cancel(&mut self, id: u64, context: &TurnContext<'_>) -> Result<(), EndReason> {
        if self.stop_awaiting(Some(id), Status::Cancelled)? {
            return Ok(());
        }
        if context.workers.withdraw(context.slot, id) {
            return self.respond(id, Status::Cancelled, &[]);
        }
        match context.tasks.withdraw(context.slot, id) {
            Some(Withdrawn::Unbegun) => self.respond(id, Status::Cancelled, &[]),
            Some(Withdrawn::Begun) => self.respond(id, Status::Failed, b"cancelled on the way"),
            None => Ok(()),
        }
    }
}

/// Takes the first bytes out of a shared buffer, for a worker.
fn take_away(buffer: &mut Vec<u8>, len: usize) -> Vec<u8> {
    if len < payload::WORTH_KEEPING {
        return buffer.get(..len).unwrap_or_default().to_vec();
    }
    let mut taken = std::mem::take(buffer);
    taken.truncate(len);
    taken
}
