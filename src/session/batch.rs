//! Batches: many requests in one message.

use std::borrow::Borrow;
use std::time::Duration;

use bellwire_core::batch::{BatchBuilder, BatchView};
use bellwire_core::call::{self, Ticket};
use bellwire_core::counters::Outcome;
use bellwire_core::{Deadline, LimitOwner, Port};

use super::replies::{BatchReplies, OversizedItem};
use super::requests::Unwritten;
use super::{Answer, Answered, Body, Outgoing, Session, lost, metrics};
use crate::{CallError, Malformed, Message, Service};

/// The limits of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    bytes: u64,
    items: usize,
}

/// A batch ready to be sent.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(super) batch: Box<BatchBuilder>,
    pub(super) shape: Shape,
    most: usize,
    /// Requests above the item limit.
    surplus: usize,
}

/// A batch that was sent.
#[derive(Debug)]
pub(super) struct SentBatch {
    pub(super) ticket: Ticket,
    pub(super) shape: Shape,
}

/// Which requests of a batch were sent.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    /// The number of requests sent.
    sent: usize,
    left_out: Vec<OversizedItem>,
}

impl<S: Service> Session<S> {
    /// Calls with many requests in one message and waits for the answers, at most for the session's configured time.
    /// In a steady state, it allocates nothing.
    ///
    /// A request for which the message has no room is left out and fails alone with [`CallError::TooLarge`]; a
    /// request that the handler fails does so with its own reason. The handler runs for every request that was sent, also
    /// where its answer no longer fits the message: that one fails alone, as [`Status::TooLarge`](crate::Status::TooLarge). In
    /// a function that returns a [`CallError`], `?` unboxes an item's error.
    ///
    /// A batch is one message and is never split: send a list that may exceed the provider's limit in
    /// [chunks](slice::chunks) of [`Session::max_batch`].
    ///
    /// # Errors
    /// [`CallError`] of the whole batch: [`CallError::TooManyItems`] before anything is sent. The session stays
    /// usable unless the provider is gone or violated the protocol.
    pub fn call_batch<'r>(
        &mut self,
        requests: impl IntoIterator<Item = &'r S::Request>,
    ) -> Result<BatchReplies<'_, S>, CallError> {
        self.call_batch_within(requests, self.timeout)
    }

    /// Calls like [`Session::call_batch`], but waits at most for `timeout`.
    ///
    /// # Errors
    /// Like [`Session::call_batch`].
    pub fn call_batch_within<'r>(
        &mut self,
        requests: impl IntoIterator<Item = &'r S::Request>,
        timeout: Duration,
    ) -> Result<BatchReplies<'_, S>, CallError> {
        let answered = self.call_batch_until(requests, &mut Deadline::within(timeout));
        self.open_batch(answered)
    }

    /// Returns the answers, which [`Session::open_batch`] lends.
    pub(crate) fn call_batch_until<'r>(
        &mut self,
        requests: impl IntoIterator<Item = &'r S::Request>,
        until: &mut Deadline,
    ) -> Result<(Answer, Shape), CallError> {
        let (shape, answer) = self.with_batch(requests, |session, batch| {
            let sent = batch.and_then(|batch| session.submit_waiting(batch, until));
            let ticket = sent.map_err(|error| session.unsent(error))?;
            let answer = session.await_answer(ticket, until)?;
            session.checked(answer)
        });
        Ok((answer?, shape))
    }

    /// Sends many requests in one message and returns immediately; [`Session::try_batch`] returns the answers.
    ///
    /// # Errors
    /// Like [`Session::submit`]; [`CallError::TooManyItems`] above [`Session::max_batch`].
    pub fn submit_batch<'r>(
        &mut self,
        requests: impl IntoIterator<Item = &'r S::Request>,
    ) -> Result<Ticket, CallError> {
        let (shape, ticket) = self
            .with_batch(requests, |session, batch| session.submit_alone(batch?, Unwritten::Long));
        let ticket = ticket.map_err(|error| self.unsent(error))?;
        self.batches.push_back(SentBatch { ticket, shape });
        Ok(ticket)
    }

    /// Returns the answers to the next submitted batch, in the order in which the provider sent them; `None` when
    /// none has arrived. Never waits. Answers to single requests stay for [`Session::try_reply`].
    ///
    /// # Errors
    /// [`CallError`] of the session; an error of one batch is in the returned value.
    pub fn try_batch(&mut self) -> Result<Option<Answered<BatchReplies<'_, S>>>, CallError> {
        match self.next_batch()? {
            Some((ticket, checked)) => Ok(Some((ticket, self.open_batch(checked)))),
            None => self.nothing(),
        }
    }

    /// Waits until [`Session::try_batch`] has answers and returns them; waits at most for `timeout`. Copies answers
    /// to single requests that arrive first, which stay for [`Session::try_reply`].
    ///
    /// # Errors
    /// [`CallError::Deadline`] when none has arrived; requests stay in flight. Otherwise like [`Session::try_batch`].
    pub fn wait_batch(
        &mut self,
        timeout: Duration,
    ) -> Result<Answered<BatchReplies<'_, S>>, CallError> {
        let (ticket, checked) =
            self.wait_for(timeout, |session| match session.next_batch()? {
                None => session.nothing(),
                batch => Ok(batch),
            })?;
        Ok((ticket, self.open_batch(checked)))
    }

    /// Returns the next answer to a batch; an error is already counted.
    pub(super) fn next_batch(&mut self) -> Result<Option<Answered<(Answer, Shape)>>, CallError> {
        let Some(answer) = self.next_of(true)? else { return Ok(None) };
        let ticket = answer.reply.ticket;
        let at = self.batches.binary_search_by_key(&ticket, |batch| batch.ticket).ok();
        let shape = at.and_then(|at| self.batches.remove(at)).map(|batch| batch.shape);
        let checked = self.checked(answer).map(|answer| (answer, shape.unwrap_or_default()));
        Ok(Some((ticket, checked)))
    }

    /// Waits until any answer has arrived, at most for the session's configured time: take it with
    /// [`Session::try_reply`] or [`Session::try_batch`]. Copies it meanwhile; [`Session::wait_reply`] and
    /// [`Session::wait_batch`] do not, so use those if you know which kind comes next.
    ///
    /// # Errors
    /// [`CallError`]; requests stay in flight unless the provider is gone or violated the protocol.
    pub fn wait(&mut self) -> Result<(), CallError> {
        self.wait_for(self.timeout, |session| {
            let has_any = !session.pending_replies.is_empty() || session.keep_next_reply()?;
            if has_any { Ok(Some(())) } else { session.nothing() }
        })
    }

    /// Assembles a batch and passes it, or why it cannot be sent, to `send`.
    pub(super) fn with_batch<'r, T>(
        &mut self,
        requests: impl IntoIterator<Item = &'r S::Request>,
        send: impl FnOnce(&mut Self, Result<Outgoing<'_>, CallError>) -> T,
    ) -> (Shape, T) {
        let (batch, room) = self.packing(self.driver.end().lanes().max_message());
        let mut packed = Packed::new::<S>(batch, room, requests);
        let sent = send(self, packed.outgoing());
        self.batch = Some(packed.batch);
        (packed.shape, sent)
    }

    /// Returns the arguments of [`Packed::new`] other than the requests, for a batch of at most this many bytes.
    pub(super) fn packing(&mut self, bytes: u64) -> (Box<BatchBuilder>, Room) {
        let batch = self.batch.take().unwrap_or_else(|| Box::new(BatchBuilder::new(0)));
        (batch, Room { bytes, items: self.max_batch })
    }

    /// Parses the answers to a batch that was taken off the lane where they arrived, counted as one answer.
    pub(crate) fn open_batch(
        &mut self,
        checked: Result<(Answer, Shape), CallError>,
    ) -> Result<BatchReplies<'_, S>, CallError> {
        let (Answer { reply, body }, shape) = checked?;
        // The inbox may be in use.
        let in_inbox = match body {
            Body::Inbox => Some(reply.len),
            Body::Own(bytes) if self.driver.is_arriving() => {
                self.batch_inbox = bytes;
                None
            }
            Body::Own(bytes) => {
                self.inbox = bytes;
                Some(self.inbox.len())
            }
            Body::Mapped(_, map) => {
                self.batch_inbox.clear();
                self.batch_inbox.extend_from_slice(&map);
                None
            }
            Body::Lost(shortage) => return Err(lost(shortage)),
        };
        let bytes = match in_inbox {
            Some(len) => self.inbox.get(..len).unwrap_or_default(),
            None => &self.batch_inbox,
        };
        let parsed = replies(bytes, shape);
        let outcome = if parsed.is_ok() { Outcome::Answered } else { Outcome::Unused };
        let port = self.driver.port();
        self.calls.ended(port.own(), reply.ticket.id(), outcome, || port.now());
        parsed.inspect_err(|error| metrics::trace_failed(&self.driver, reply.ticket.id(), error))
    }
}

/// Adds as many of the next `count` items as can be written without individual checks. Returns how many.
pub(crate) fn write_together<M: Message>(
    batch: &mut BatchBuilder,
    count: usize,
    items: &mut impl Iterator<Item: Borrow<M>>,
) -> usize {
    let len = M::LEN.unwrap_or(0);
    batch.extend(len, count, |room| {
        let mut written = 0;
        // Check the room first: an item that does not fit must not be taken from the iterator.
        for (into, item) in room.chunks_exact_mut(len.max(1)).zip(items) {
            item.borrow().write(into);
            written += 1;
        }
        written
    })
}

/// Appends the values in `bytes`, of `len` bytes each (above 0), if they can be read without individual checks and
/// none is malformed; otherwise appends none.
pub(crate) fn decode_together<M: Message>(bytes: &[u8], len: usize, values: &mut Vec<M>) -> bool {
    let (had, count) = (values.len(), bytes.len() / len);
    let decoded = M::LEN == Some(len) && M::decode_all(bytes, values).is_ok();
    let are_all = decoded && values.len() == had + count;
    if !are_all {
        values.truncate(had);
    }
    are_all
}

impl Shape {
    /// Returns why the first request was left out, if one was.
    pub(super) fn left_out(&self) -> Option<CallError> {
        let OversizedItem { len, limit, .. } = *self.left_out.first()?;
        Some(CallError::TooLarge { len, limit, owner: LimitOwner::Own })
    }
}

impl Packed {
    /// Assembles a batch. Leaves out requests for whose bytes there is no room; with too many items, the batch cannot
    /// be sent.
    pub(crate) fn new<'r, S: Service>(
        mut batch: Box<BatchBuilder>,
        room: Room,
        requests: impl IntoIterator<Item = &'r S::Request>,
    ) -> Self {
        let Room { bytes: limit, items: most } = room;
        batch.begin(0, usize::try_from(limit).unwrap_or(usize::MAX));
        let mut shape = Shape::default();
        let mut requests = requests.into_iter();
        let count = requests.size_hint().0.min(most);
        let together = write_together::<S::Request>(&mut batch, count, &mut requests);
        for (at, request) in (together..most).zip(requests.by_ref()) {
            if let Err(error) = batch.push(|into| request.encode(into)) {
                shape.left_out.push(OversizedItem { at, len: error.len as u64, limit });
            }
        }
        shape.sent = batch.len();
        Self { batch, shape, most, surplus: requests.count() }
    }

    pub(super) fn outgoing(&mut self) -> Result<Outgoing<'_>, CallError> {
        if self.surplus > 0 {
            let (items, limit) = (self.most.saturating_add(self.surplus) as u64, self.most as u64);
            return Err(CallError::TooManyItems { items, limit });
        }
        Ok(Outgoing::Bytes(call::Outgoing::batch(self.batch.finish())))
    }
}

pub(super) fn view<'a>(bytes: &'a [u8], shape: &Shape) -> Result<BatchView<'a>, CallError> {
    let malformed = |why| Malformed::new(0, bytes.len(), why);
    let view = BatchView::parse(bytes).map_err(|_| malformed("not a batch"))?;
    if view.len() != shape.sent {
        return Err(malformed("not as many answers as requests").into());
    }
    Ok(view)
}

pub(super) fn replies<S: Service>(
    bytes: &[u8],
    shape: Shape,
) -> Result<BatchReplies<'_, S>, CallError> {
    let view = view(bytes, &shape)?;
    Ok(BatchReplies::new(&view, shape.left_out))
}
