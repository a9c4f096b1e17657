//! Handlers of batches: many requests in one message, and one message of answers.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bellwire_core::batch::{BatchBuilder, BatchView};
use bellwire_core::wire::Status;

use super::handler::{Answer, Call, Caller, Request, Room, discard, guarded};
use crate::session::{decode_together, write_together};
use crate::{HandlerError, Malformed, Message, Service, reason};

/// The reason for refusing a batch whose answers cannot fit a message, however short they are.
const NO_ROOM: &str = "the batch has more items than its answers have room for in one message";

/// The answers to a batch: one for each request, in order.
///
/// Malformed requests do not reach the handler; their answers are inserted between the others.
///
/// ```
/// use bellwire::{BatchAnswers, Client};
#[doc = include_str!("../doc/increment.txt")]
/// let mut builder = Server::builder(&run_dir);
/// builder.serve_batches::<Increment>(|_, requests: &[u64], answers: &mut BatchAnswers<'_, u64>| {
///     answers.extend(requests.iter().map(|number| number + 1));
/// })?;
/// let server = builder.start()?;
/// let mut numbers = Vec::new();
/// Client::<Increment>::new(&run_dir).connect()?.call_batch(&[1, 2])?.append_to(&mut numbers)?;
/// assert_eq!(numbers, [2, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BatchAnswers<'a, R> {
    caller: &'a Caller,
    batch: &'a mut BatchBuilder,
    /// The malformed items that are still to be answered, in order.
    malformed: &'a [(usize, Malformed)],
    /// The number of answers still due.
    due: usize,
    /// Whether the handler has been informed that the client no longer waits for them.
    is_abandoned: bool,
    response: PhantomData<fn(&R)>,
}

impl<R: Message> BatchAnswers<'_, R> {
    /// Answers the next request. An answer that no longer fits the message fails alone, as
    /// [`Status::TooLarge`](crate::Status::TooLarge). More answers than requests are ignored.
    #[inline]
    pub fn push(&mut self, response: &R) {
        self.answer(|batch| push(batch, response));
    }

    /// Answers the next items, one with each of `responses`; ignores any surplus. Cheaper than calling
    /// [`BatchAnswers::push`] for each if all responses [have the same length](Message::LEN).
    pub fn extend(&mut self, responses: impl IntoIterator<Item = R>) {
        let mut responses = responses.into_iter();
        if self.malformed.is_empty() {
            let count = self.due.min(responses.size_hint().0);
            self.due -= write_together::<R>(self.batch, count, &mut responses);
        }
        while self.due > 0 {
            let Some(response) = responses.next() else { break };
            self.push(&response);
        }
    }

    /// Fails the next request.
    #[cold]
    pub fn fail(&mut self, error: &HandlerError) {
        self.answer(|batch| push_failure(batch, error));
    }

    /// Returns whether the client no longer waits for these answers, like [`Caller::is_abandoned`]. A handler with slow
    /// items should check before each, and return when it is true: the unanswered items then count as never having
    /// reached it, and are answered with [`Status::Stopping`](crate::Status::Stopping).
    #[inline]
    pub fn is_abandoned(&mut self) -> bool {
        self.is_abandoned |= self.caller.is_abandoned();
        self.is_abandoned
    }

    /// Returns how many requests are still to be answered.
    pub fn due(&self) -> usize {
        self.due
    }

    #[inline]
    fn answer(&mut self, push: impl FnOnce(&mut BatchBuilder)) {
        if self.due > 0 {
            self.due -= 1;
            self.refuse_malformed();
            push(self.batch);
        }
    }

    /// Answers the malformed items before the next one.
    #[inline]
    fn refuse_malformed(&mut self) {
        while let Some(((item, malformed), rest)) = self.malformed.split_first() {
            if *item != self.batch.len() {
                break;
            }
            self.malformed = rest;
            push_reason(self.batch, Status::Malformed, &malformed.to_string());
        }
    }

    /// Answers the items that the handler left out.
    fn finish(mut self) {
        while self.due > 0 {
            if self.is_abandoned {
                self.answer(|batch| push_empty(batch, Status::Stopping));
            } else {
                self.fail(&HandlerError::new("the handler gave no answer to this item"));
            }
        }
        self.refuse_malformed();
    }
}

/// A handler of whole batches, with its types.
pub(super) struct TypedBatch<S, F> {
    function: F,
    service: PhantomData<fn(&S)>,
}

impl<S, F> TypedBatch<S, F>
where
    S: Service,
    F: Fn(&Caller, &[S::Request], &mut BatchAnswers<'_, S::Response>) + Send + Sync,
{
    pub(super) fn new(function: F) -> Self {
        Self { function, service: PhantomData }
    }

    fn run(
        &self,
        caller: &Caller,
        requests: &[S::Request],
        batch: &mut BatchBuilder,
        malformed: &[(usize, Malformed)],
    ) {
        let (due, is_abandoned, response) = (requests.len(), false, PhantomData);
        let mut answers = BatchAnswers { caller, batch, malformed, due, is_abandoned, response };
        (self.function)(caller, requests, &mut answers);
        answers.finish();
    }

    fn one(&self, caller: &Caller, request: Request<'_>, answer: &mut Answer) -> Status {
        let request = match request.decode(answer) {
            Ok(request) => request,
            Err(status) => return status,
        };
        let batch = answer.batch();
        batch.begin(1, usize::MAX);
        self.run(caller, &[request], batch, &[]);
        answer.finish_item()
    }

    fn all(&self, caller: &Caller, view: BatchView<'_>, batch: &mut BatchBuilder) {
        // At most as many as the limit allows.
        let (mut requests, mut malformed) = (Vec::with_capacity(view.len()), Vec::new());
        let together =
            view.even().is_some_and(|(items, len)| decode_together(items, len, &mut requests));
        if !together {
            for (at, item) in view.iter().enumerate() {
                match S::Request::decode(item.bytes) {
                    Ok(request) => requests.push(request),
                    Err(error) => malformed.push((at, error)),
                }
            }
        }
        self.run(caller, &requests, batch, &malformed);
    }
}

impl<S, F> Call for TypedBatch<S, F>
where
    S: Service,
    F: Fn(&Caller, &[S::Request], &mut BatchAnswers<'_, S::Response>) + Send + Sync,
{
    /// A single request is a batch of one.
    fn call(&self, caller: &Caller, request: Request<'_>, answer: &mut Answer) -> Status {
        guarded(answer, |answer| self.one(caller, request, answer))
    }

    fn call_batch(&self, caller: &Caller, batch: &[u8], room: Room, answer: &mut Answer) -> Status {
        answer_all(batch, room, answer, |view, batch| self.all(caller, view, batch))
    }
}

/// Runs a handler of single requests for each item of a batch, until it is abandoned.
pub(super) fn item_by_item<S: Service>(
    caller: &Caller,
    bytes: &[u8],
    room: Room,
    answer: &mut Answer,
    handle: impl Fn(S::Request) -> Result<S::Response, HandlerError>,
) -> Status {
    answer_all(bytes, room, answer, |view, batch| {
        for item in view {
            if caller.is_abandoned() {
                break;
            }
            let request = match S::Request::decode(item.bytes) {
                Ok(request) => request,
                Err(malformed) => {
                    push_reason(batch, Status::Malformed, &malformed.to_string());
                    continue;
                }
            };
            // As for a single request: an item whose handler panics fails alone.
            match catch_unwind(AssertUnwindSafe(|| handle(request))) {
                Ok(Ok(response)) => push(batch, &response),
                Ok(Err(error)) => push_failure(batch, &error),
                Err(payload) => {
                    discard(payload);
                    push_reason(batch, Status::Panicked, "");
                }
            }
        }
        while batch.len() < view.len() {
            push_empty(batch, Status::Stopping);
        }
    })
}

/// Answers a batch within `room` with what `fill` adds: an item for each of the batch.
fn answer_all(
    bytes: &[u8],
    room: Room,
    answer: &mut Answer,
    fill: impl FnOnce(BatchView<'_>, &mut BatchBuilder),
) -> Status {
    guarded(answer, |answer| {
        let (view, batch) = match begin(bytes, room, answer) {
            Ok(begun) => begun,
            Err(status) => return status,
        };
        fill(view, batch);
        answer.finish_batch();
        Status::Ok
    })
}

/// Parses a batch, and begins its answer, both within `room`. On error, returns the status to answer with; no handler ran,
/// and the answer holds the reason.
pub(super) fn begin<'a, 'b>(
    bytes: &'a [u8],
    room: Room,
    answer: &'b mut Answer,
) -> Result<(BatchView<'a>, &'b mut BatchBuilder), Status> {
    let reason = match BatchView::parse(bytes) {
        Err(error) => error.to_string(),
        Ok(view) if view.len() > room.items => format!(
            "a batch of {} items is above this server's limit of {}",
            view.len(),
            room.items
        ),
        Ok(view) if !answer.batch().begin(view.len(), room.bytes) => NO_ROOM.into(),
        Ok(view) => return Ok((view, answer.batch())),
    };
    answer.explain(&reason);
    Err(Status::Malformed)
}

#[inline]
pub(super) fn push<R: Message>(batch: &mut BatchBuilder, response: &R) {
    if batch.push(|into| response.encode(into)).is_err() {
        push_empty(batch, Status::TooLarge);
    }
}

#[cold]
pub(super) fn push_reason(batch: &mut BatchBuilder, status: Status, reason: &str) {
    push_with_reason(batch, status, None, reason);
}

#[cold]
pub(super) fn push_failure(batch: &mut BatchBuilder, error: &HandlerError) {
    push_with_reason(batch, Status::Failed, error.code(), error.reason());
}

fn push_with_reason(batch: &mut BatchBuilder, status: Status, code: Option<u32>, reason: &str) {
    if batch.push_with(status, |into| reason::write(code, reason, into)).is_err() {
        push_empty(batch, status);
    }
}

/// There is room for it: the batch was started with this number of items.
#[cold]
fn push_empty(batch: &mut BatchBuilder, status: Status) {
    let pushed = batch.push_with(status, |_| {});
    debug_assert!(pushed.is_ok(), "an empty item always fits");
}
