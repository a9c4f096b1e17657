//! What the tasks of a runtime need of a session, none of which may block: see [`crate::asynchronous`].

use bellwire_core::batch::BatchBuilder;
use bellwire_core::call::Ticket;
use bellwire_core::counters::Outcome;

use super::batch::{Room, SentBatch, Shape, replies, view};
use super::{Answer, Answered, Body, Outgoing, Packed, Session, lost};
use crate::{CallError, Service};

/// What [`Session::try_reply_to`] found.
pub(crate) enum Replied<R> {
    Nothing,
    Passed,
    Other(Ticket, Result<R, CallError>),
}

/// The answers to a batch that was sent, not parsed yet.
#[derive(Debug)]
pub(crate) struct ArrivedBatch {
    bytes: Vec<u8>,
    shape: Shape,
}

impl<S: Service> Session<S> {
    /// Like [`Session::write`], but writes only a record that is free in the lane as it is.
    pub(crate) fn write_free(&mut self, request: &S::Request) -> Option<Ticket> {
        self.write_record::<false, true>(request).ok()
    }

    /// Sends a request of either kind if there is room for it now.
    pub(crate) fn send_now<const ONE_WAY: bool>(
        &mut self,
        request: &S::Request,
    ) -> Result<Ticket, CallError> {
        let ticket = self.write_now::<ONE_WAY>(request)?;
        self.publish();
        Ok(ticket)
    }

    /// Posts the bytes of a request if there is room for it now.
    pub(crate) fn post_bytes_now(&mut self, request: &[u8]) -> Result<Ticket, CallError> {
        Ok(self.submit_now(Outgoing::from(request).one_way())?)
    }

    /// Posts a batch if there is room for it now.
    pub(crate) fn post_packed(&mut self, packed: &mut Packed) -> Result<Ticket, CallError> {
        Ok(self.submit_now(packed.outgoing()?.one_way())?)
    }

    /// Sends a batch if there is room for it now; [`Session::try_arrived_batch`] returns its answers.
    pub(crate) fn submit_packed(&mut self, packed: &mut Packed) -> Result<Ticket, CallError> {
        let ticket = self.submit_now(packed.outgoing()?)?;
        self.batches.push_back(SentBatch { ticket, shape: std::mem::take(&mut packed.shape) });
        Ok(ticket)
    }

    /// Returns the arguments of [`Packed::new`] other than the requests, for a batch sent as one record.
    pub(crate) fn packing_one_record(&mut self) -> (Box<BatchBuilder>, Room) {
        let lanes = self.driver.end().lanes();
        self.packing(lanes.max_message().min(lanes.max_payload() as u64))
    }

    /// Takes back the buffers for the next batch.
    pub(crate) fn unpack(&mut self, packed: Packed) {
        self.batch = Some(packed.batch);
    }

    /// Passes the next answer to `to`, which stores it where it stays, if it is plain: [`Replied::Passed`]. All others are
    /// returned, as by [`Session::try_reply`].
    #[inline]
    pub(crate) fn try_reply_to(
        &mut self,
        to: impl FnOnce(Ticket, S::Response),
    ) -> Result<Replied<S::Response>, CallError> {
        if self.pending_replies.is_empty() && self.batches.is_empty() {
            if let Some((ticket, len)) = self.driver.try_reply_fast(&mut self.inbox) {
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

    /// Like [`Session::try_batch`], for callers that cannot borrow from the session: moves or copies the answers out of it.
    pub(crate) fn try_arrived_batch(
        &mut self,
    ) -> Result<Option<Answered<ArrivedBatch>>, CallError> {
        let Some((ticket, checked)) = self.next_batch()? else { return self.nothing() };
        let arrived = checked.and_then(|(answer, shape)| self.arrived(answer, shape));
        Ok(Some((ticket, arrived)))
    }

    fn arrived(&mut self, answer: Answer, shape: Shape) -> Result<ArrivedBatch, CallError> {
        let Answer { reply, body } = answer;
        let bytes = match body {
            Body::Inbox => self.inbox.get(..reply.len).unwrap_or_default().to_vec(),
            Body::Own(bytes) => bytes,
            Body::Mapped(_, map) => map.to_vec(),
            Body::Lost(shortage) => return Err(lost(shortage)),
        };
        let error = view(&bytes, &shape).err();
        self.count_answer(reply.ticket, error.as_ref());
        error.map_or(Ok(ArrivedBatch { bytes, shape }), Err)
    }

    /// Returns whether requests wait for an answer.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.driver.in_flight() > 0
    }

    /// Gives up a request because of the error that ended all of them, and returns its own error.
    pub(crate) fn fail(&mut self, ticket: Ticket, error: &CallError) -> CallError {
        self.batches.retain(|batch| batch.ticket != ticket);
        self.give_up(ticket, error)
    }

    /// Like [`Session::arm`] or, with `room`, [`Session::arm_for_room`], but [`Session::pollable`] also becomes readable when
    /// everything before `position` was taken.
    pub(crate) fn arm_for_consumed(
        &mut self,
        position: u64,
        room: bool,
    ) -> Result<bool, CallError> {
        self.arm_by(|driver| driver.arm_for_consumed(position, room))
    }
}

impl Packed {
    /// Returns why the first request was left out, if one was.
    pub(crate) fn left_out(&self) -> Option<CallError> {
        self.shape.left_out()
    }
}

impl ArrivedBatch {
    /// Adds one answer per request, in request order.
    #[allow(clippy::type_complexity, reason = "how the batch went, and each of its items")]
    pub(crate) fn open<S: Service>(
        self,
    ) -> Result<Vec<Result<S::Response, Box<CallError>>>, CallError> {
        Ok(replies::<S>(&self.bytes, self.shape)?.collect())
    }
}
