use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bellwire_core::batch::{BATCH_HEAD, BatchBuilder, BatchView};
use bellwire_core::wire::Status;

use super::batch;
use super::tasks::{Task, Tasks};
use super::watch::Watch;
use super::workers::{Job, Workers};
use crate::publication::Publication;
use crate::trace::handling;
use crate::transport::peer::User;
use crate::{Dynamic, HandlerError, Malformed, Message, Payload, Service, payload, reason};

/// The caller, as the system reported it when the session was opened, and whether it still waits.
///
/// ```
/// use bellwire::{Caller, Client};
#[doc = include_str!("../doc/increment.txt")]
/// let mut builder = Server::builder(&run_dir);
/// builder.serve::<Increment>(|caller: &Caller, number| match caller.user.is_own() {
///     true => Ok(number + 1),
///     false => Err("only for the user that started this".into()),
/// })?;
/// let server = builder.start()?;
/// assert_eq!(Client::<Increment>::new(&run_dir).call(&41)?, 42);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The process; `None` when its pid namespace is not visible from this one.
    pub pid: Option<u32>,
    /// The user.
    pub user: User,
    /// The session's number, unique within this server.
    pub session: u64,
    pub(super) watch: Watch,
}

impl Caller {
    /// Returns whether the answer is no longer wanted. A slow handler should check this often, at one load each, and
    /// return anything when it is true.
    ///
    /// In a worker ([`ServerConfig::workers`](crate::ServerConfig::workers)), it becomes true when the client's
    /// session ends, when the client cancels the request, and when
    /// [`ServerConfig::drain_timeout`](crate::ServerConfig::drain_timeout) has passed since the server was told to
    /// stop. On the reactor thread, only the last is detected: the reactor does not observe the client while the
    /// handler runs.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.watch.is_abandoned()
    }

    /// Returns the same caller without a watched call.
    pub(super) fn unwatched(&self) -> Self {
        Self { watch: Watch::Nothing, ..*self }
    }
}

/// The most items in a batch, and the most bytes in its answer.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) bytes: usize,
    pub(super) items: usize,
}

/// What an endpoint does with a request.
#[derive(Clone)]
pub(super) enum Handler {
    /// Runs a function.
    Call(Arc<dyn Call>),
    /// Starts a future.
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "see `serve_async`"))]
    Task(Arc<dyn Task>),
    /// Passes the newest snapshot.
    Snapshot(Arc<Publication>),
}

impl Handler {
    /// Has a worker handle a request, or starts its future.
    pub(super) fn queue(&self, job: Job, workers: &Workers, tasks: &Tasks) {
        match self {
            Self::Call(handler) => workers.submit(Arc::clone(handler), job),
            Self::Task(task) => tasks.start(Arc::clone(task), job),
            Self::Snapshot(_) => {}
        }
    }
}

/// A type-erased handler.
pub(super) trait Call: Send + Sync {
    /// Answers a request; `answer` is initially empty.
    fn call(&self, caller: &Caller, request: Request<'_>, answer: &mut Answer) -> Status;

    /// The same, for a request that may be sampled: notes when it is decoded, if it is one request. A check in
    /// [`Call::call`] would cost each request 13 instructions.
    fn call_traced(&self, caller: &Caller, request: Request<'_>, answer: &mut Answer) -> Status {
        self.call(caller, request, answer)
    }

    /// Answers a batch with a batch within `room`; `answer` is initially empty.
    fn call_batch(&self, caller: &Caller, batch: &[u8], room: Room, answer: &mut Answer) -> Status;
}

/// A request's bytes, which a handler may keep.
pub(super) enum Request<'a> {
    /// A buffer, and the length of the request at its start.
    Buffer(&'a mut Vec<u8>, usize),
    Mapped(Payload),
}

impl Request<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Buffer(buffer, len) => buffer.get(..*len).unwrap_or_default(),
            Self::Mapped(payload) => payload,
        }
    }

    /// Decodes the request. On error, returns the status to answer with; the answer holds the reason.
    #[inline]
    pub(super) fn decode<M: Message>(self, answer: &mut Answer) -> Result<M, Status> {
        let decoded = match self {
            Self::Buffer(buffer, len) => M::take(buffer, len),
            Self::Mapped(payload) => M::from_payload(payload),
        };
        // Not `map_err`, which moves a small request once more, in pieces other than those it was written in.
        match decoded {
            Ok(request) => Ok(request),
            Err(malformed) => Err(malformed_status(&malformed, answer)),
        }
    }
}

/// The answer of a handler.
#[derive(Default)]
pub(super) struct Answer {
    bytes: Vec<u8>,
    /// Replaces the bytes.
    payload: Option<Payload>,
    /// Whether the buffer was taken.
    is_taken: bool,
    /// Assembles answers to batches.
    batch: Option<Box<BatchBuilder>>,
}

impl Answer {
    #[inline]
    pub(super) fn clear(&mut self) {
        self.payload = None;
        if std::mem::take(&mut self.is_taken) {
            payload::refill(&mut self.bytes);
        }
        self.bytes.clear();
    }

    /// Returns the builder for the answer to a batch.
    pub(super) fn batch(&mut self) -> &mut BatchBuilder {
        self.batch.get_or_insert_with(|| Box::new(BatchBuilder::new(0)))
    }

    /// Completes the batch and makes it the answer.
    pub(super) fn finish_batch(&mut self) {
        if let Some(batch) = &mut self.batch {
            batch.finish_into(&mut self.bytes);
        }
    }

    /// Completes the batch and makes its only item the answer.
    pub(super) fn finish_item(&mut self) -> Status {
        self.finish_batch();
        let item = BatchView::parse(&self.bytes).ok().and_then(|batch| batch.iter().next());
        let Some((status, len)) = item.map(|item| (item.status, item.bytes.len())) else {
            return Status::Failed;
        };
        self.bytes.drain(..BATCH_HEAD);
        self.bytes.truncate(len);
        status
    }

    /// Makes what a handler returned the answer, and returns its status.
    #[inline]
    pub(super) fn respond<R: Message>(&mut self, returned: Result<R, HandlerError>) -> Status {
        match returned {
            Ok(response) => {
                match response.as_payload() {
                    Some(payload) => self.payload = Some(payload.clone()),
                    None => response.encode(&mut self.bytes),
                }
                Status::Ok
            }
            Err(error) => self.fail(&error),
        }
    }

    /// Makes a handler's error the answer, and returns its status.
    #[cold]
    fn fail(&mut self, error: &HandlerError) -> Status {
        self.bytes.clear();
        reason::write(error.code(), error.reason(), &mut self.bytes);
        Status::Failed
    }

    /// Makes a sentence the answer.
    pub(super) fn explain(&mut self, reason: &str) {
        self.bytes.clear();
        reason::write(None, reason, &mut self.bytes);
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.payload.as_deref().unwrap_or(&self.bytes)
    }

    /// Returns the answer unless it is a payload.
    #[inline]
    pub(super) fn plain(&self) -> Option<&[u8]> {
        if self.payload.is_none() { Some(&self.bytes) } else { None }
    }

    /// Returns the answer's length in bytes.
    pub(super) fn len(&self) -> usize {
        self.payload.as_ref().map_or(self.bytes.len(), Payload::len)
    }

    /// Takes the bytes, to be kept until they are sent, without a copy.
    pub(super) fn keep(&mut self) -> Payload {
        self.payload.take().unwrap_or_else(|| {
            self.is_taken = true;
            std::mem::take(&mut self.bytes).into()
        })
    }

    /// Returns the payload, if it is in a memfd that can be passed.
    #[inline]
    pub(super) fn sealed(&self) -> Option<&Payload> {
        self.payload.as_ref().filter(|payload| payload.sealed().is_some())
    }
}

/// A handler with its types.
pub(super) struct Typed<S, F> {
    function: F,
    service: PhantomData<fn(&S)>,
}

impl<S, F> Typed<S, F>
where
    S: Service,
    F: Fn(&Caller, S::Request) -> Result<S::Response, HandlerError> + Send + Sync,
{
    pub(super) fn new(function: F) -> Self {
        Self { function, service: PhantomData }
    }

    #[inline]
    fn respond(
        &self,
        caller: &Caller,
        request: Request<'_>,
        answer: &mut Answer,
        decoded: impl FnOnce(),
    ) -> Status {
        let request = match request.decode(answer) {
            Ok(request) => request,
            Err(status) => return status,
        };
        decoded();
        answer.respond((self.function)(caller, request))
    }
}

impl<S, F> Call for Typed<S, F>
where
    S: Service,
    F: Fn(&Caller, S::Request) -> Result<S::Response, HandlerError> + Send + Sync,
{
    fn call(&self, caller: &Caller, request: Request<'_>, answer: &mut Answer) -> Status {
        guarded(answer, |answer| self.respond(caller, request, answer, || ()))
    }

    #[cold]
    fn call_traced(&self, caller: &Caller, request: Request<'_>, answer: &mut Answer) -> Status {
        guarded(answer, |answer| self.respond(caller, request, answer, handling::decoded))
    }

    fn call_batch(&self, caller: &Caller, batch: &[u8], room: Room, answer: &mut Answer) -> Status {
        batch::item_by_item::<S>(caller, batch, room, answer, |request| {
            (self.function)(caller, request)
        })
    }
}

/// A handler of bytes, which decodes nothing and allocates nothing.
pub(super) struct Untyped<F>(pub(super) F);

impl<F> Call for Untyped<F>
where
    F: Fn(&Caller, &[u8], &mut Vec<u8>) -> Result<(), HandlerError> + Send + Sync,
{
    fn call(&self, caller: &Caller, request: Request<'_>, answer: &mut Answer) -> Status {
        guarded(answer, |answer| match (self.0)(caller, request.bytes(), &mut answer.bytes) {
            Ok(()) => Status::Ok,
            Err(error) => answer.fail(&error),
        })
    }

    #[cold]
    fn call_traced(&self, caller: &Caller, request: Request<'_>, answer: &mut Answer) -> Status {
        handling::decoded();
        self.call(caller, request, answer)
    }

    fn call_batch(&self, caller: &Caller, batch: &[u8], room: Room, answer: &mut Answer) -> Status {
        batch::item_by_item::<Dynamic>(caller, batch, room, answer, |request: Payload| {
            let mut bytes = Vec::new();
            (self.0)(caller, &request, &mut bytes).map(|()| Payload::from(bytes))
        })
    }
}

/// Runs the code that answers a call. If a handler, or a message's encoding or decoding, panics, only that call
/// fails. As with a panicking thread, keeping shared state consistent is the handler's responsibility.
#[inline]
pub(super) fn guarded(answer: &mut Answer, run: impl FnOnce(&mut Answer) -> Status) -> Status {
    let ended = catch_unwind(AssertUnwindSafe(|| run(answer)));
    ended.unwrap_or_else(|payload| {
        discard(payload);
        answer.clear();
        Status::Panicked
    })
}

/// Drops the payload of a handler's panic. If that panics too, leaks the second payload, because dropping it may
/// panic again.
#[cold]
pub(super) fn discard(payload: Box<dyn Any + Send>) {
    if let Err(nested) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(nested);
    }
}

#[cold]
fn malformed_status(malformed: &Malformed, answer: &mut Answer) -> Status {
    answer.explain(&malformed.to_string());
    Status::Malformed
}
