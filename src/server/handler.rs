use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bellwire_core::batch::{BATCH_HEAD, BatchBuilder, BatchView};
use bellwire_core::wire::Status;

use super::batch;
use super::watch::Watch;
use crate::publisher::Shelf;
use crate::transport::peer::User;
use crate::{HandlerError, Malformed, Message, Payload, Service, payload};

/// The longest reason of a failure that is sent, in bytes.
const MAX_REASON: usize = 1024;

/// Who calls, as the system noted when the session was opened, and whether anybody still waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The process; `None` when it lives in a pid namespace that this one cannot see.
    pub pid: Option<u32>,
    /// The user.
    pub user: User,
    /// The session's number, unique within this server.
    pub session: u64,
    pub(super) watch: Watch,
}

impl Caller {
    /// Whether nobody will get the answer any more, so that a handler that takes long had better return, with anything: one
    /// load, to be asked as often as is convenient.
    ///
    /// In a worker ([`ServerConfig::workers`](crate::ServerConfig::workers)) it becomes true when the client's session has
    /// ended, when the client has cancelled the request, and when [`ServerConfig::drain_timeout`](crate::ServerConfig::drain_timeout)
    /// has passed since the server was told to stop. On the reactor thread only the last can be told: nobody looks after the
    /// client while the handler runs.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.watch.is_abandoned()
    }

    /// The same caller, of whom no call is watched.
    pub(super) fn unwatched(&self) -> Self {
        Self { watch: Watch::Nothing, ..*self }
    }
}

/// How many items may be in a batch, and how many bytes in its answer.
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
    /// Passes the newest snapshot.
    Snapshot(Arc<Shelf>),
}

/// A handler whose types were forgotten.
pub(super) trait Call: Send + Sync {
    /// Answers a request; `answer` comes empty.
    fn call(&self, caller: &Caller, request: Request<'_>, answer: &mut Answer) -> Status;

    /// Answers a batch by a batch within `room`; `answer` comes empty.
    fn call_batch(&self, caller: &Caller, batch: &[u8], room: Room, answer: &mut Answer) -> Status;
}

/// A request's bytes, which a handler may keep.
pub(super) enum Request<'a> {
    /// The first bytes of a buffer, as many as the number says.
    Buffer(&'a mut Vec<u8>, usize),
    Mapped(Payload),
}

impl Request<'_> {
    /// What is asked; else the status to answer with, and the reason as the answer.
    #[inline]
    pub(super) fn decode<M: Message>(self, answer: &mut Answer) -> Result<M, Status> {
        let decoded = match self {
            Self::Buffer(buffer, len) => M::take(buffer, len),
            Self::Mapped(payload) => M::from_payload(payload),
        };
        decoded.map_err(|malformed| malformed_status(&malformed, answer))
    }
}

/// What a handler answers.
#[derive(Default)]
pub(super) struct Answer {
    bytes: Vec<u8>,
    /// In place of the bytes.
    payload: Option<Payload>,
    /// The buffer was taken away.
    is_taken: bool,
    /// What answers to batches are put together in.
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

    /// Where the answer to a batch of `count` items is put together; `None` when `limit` bytes do not hold it.
    pub(super) fn batch(&mut self, count: usize, limit: usize) -> Option<&mut BatchBuilder> {
        let batch = self.batch.get_or_insert_with(|| Box::new(BatchBuilder::new(0)));
        batch.begin(count, limit).then_some(batch)
    }

    /// The batch is complete: it is the answer.
    pub(super) fn finish_batch(&mut self) {
        if let Some(batch) = &mut self.batch {
            batch.finish_into(&mut self.bytes);
        }
    }

    /// The batch is complete: the only item of it is the answer.
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

    /// A sentence is the answer.
    pub(super) fn explain(&mut self, reason: &str) {
        self.bytes.clear();
        explain(reason, &mut self.bytes);
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.payload.as_deref().unwrap_or(&self.bytes)
    }

    /// How many bytes it has.
    pub(super) fn len(&self) -> usize {
        self.payload.as_ref().map_or(self.bytes.len(), Payload::len)
    }

    /// The bytes, to be kept until they are sent. Nothing is copied.
    pub(super) fn keep(&mut self) -> Payload {
        self.payload.take().unwrap_or_else(|| {
            self.is_taken = true;
            std::mem::take(&mut self.bytes).into()
        })
    }

    /// The payload, if it lies in a memfd of its own that can be passed.
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
    fn respond(&self, caller: &Caller, request: Request<'_>, answer: &mut Answer) -> Status {
        let request = match request.decode(answer) {
            Ok(request) => request,
            Err(status) => return status,
        };
        match (self.function)(caller, request) {
            Ok(response) => {
                match response.as_payload() {
                    Some(payload) => answer.payload = Some(payload.clone()),
                    None => response.encode(&mut answer.bytes),
                }
                Status::Ok
            }
            Err(error) => {
                answer.explain(error.reason());
                Status::Failed
            }
        }
    }
}

impl<S, F> Call for Typed<S, F>
where
    S: Service,
    F: Fn(&Caller, S::Request) -> Result<S::Response, HandlerError> + Send + Sync,
{
    fn call(&self, caller: &Caller, request: Request<'_>, answer: &mut Answer) -> Status {
        guarded(answer, |answer| self.respond(caller, request, answer))
    }

    fn call_batch(&self, caller: &Caller, batch: &[u8], room: Room, answer: &mut Answer) -> Status {
        let handle = |request| (self.function)(caller, request);
        guarded(answer, |answer| batch::item_by_item::<S>(caller, batch, room, answer, handle))
    }
}

/// Runs what answers a call. A handler that panics, or a message that does in becoming bytes or out of them, fails its
/// call alone; what it shares with others is its own to keep whole, as with a thread that panics.
#[inline]
pub(super) fn guarded(answer: &mut Answer, run: impl FnOnce(&mut Answer) -> Status) -> Status {
    let ended = catch_unwind(AssertUnwindSafe(|| run(answer)));
    ended.unwrap_or_else(|payload| {
        discard(payload);
        answer.clear();
        Status::Panicked
    })
}

/// Drops what a handler panicked with. That may panic as well; what it panics with then is leaked, because nothing says
/// that it can be dropped.
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

pub(super) fn explain(reason: &str, answer: &mut Vec<u8>) {
    let cut = reason.floor_char_boundary(MAX_REASON);
    answer.extend_from_slice(reason.get(..cut).unwrap_or("").as_bytes());
}
