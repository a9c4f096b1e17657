//! Handlers that are futures, as tasks of a tokio runtime.

use std::marker::PhantomData;
use std::sync::Arc;

use bellwire_core::wire::Status;
use tokio::runtime::Handle;

use super::batch::{begin, push, push_failure, push_reason};
use super::handler::{Answer, Caller, Request, Room};
use super::tasks::{Abort, Running, Task};
use super::workers::JobPayload;
use crate::{HandlerError, Message, Service};

/// A handler with its types and its runtime.
pub(super) struct AsyncHandler<S, F> {
    function: F,
    runtime: Handle,
    service: PhantomData<fn(&S)>,
}

impl<S, F, Fut> AsyncHandler<S, F>
where
    S: Service,
    F: Fn(Caller, S::Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<S::Response, HandlerError>> + Send + 'static,
{
    pub(super) fn new(function: F, runtime: Handle) -> Self {
        Self { function, runtime, service: PhantomData }
    }

    async fn each(&self, caller: Caller, bytes: &[u8], room: Room, answer: &mut Answer) -> Status {
        let (view, batch) = match begin(bytes, room, answer) {
            Ok(begun) => begun,
            Err(status) => return status,
        };
        for item in view {
            let future = match S::Request::decode(item.bytes) {
                Ok(request) => (self.function)(caller.clone(), request),
                Err(malformed) => {
                    push_reason(batch, Status::Malformed, &malformed.to_string());
                    continue;
                }
            };
            match future.await {
                Ok(response) => push(batch, &response),
                Err(error) => push_failure(batch, &error),
            }
        }
        answer.finish_batch();
        Status::Ok
    }

    async fn handle(&self, caller: Caller, request: JobPayload, answer: &mut Answer) -> Status {
        let started = match request {
            JobPayload::Batch(bytes, room) => return self.each(caller, &bytes, room, answer).await,
            JobPayload::Bytes(mut bytes) => {
                let len = bytes.len();
                self.start(caller, Request::Buffer(&mut bytes, len), answer)
            }
            JobPayload::Mapped(payload) => self.start(caller, Request::Mapped(payload), answer),
        };
        match started {
            Ok(future) => answer.respond(future.await),
            Err(status) => status,
        }
    }

    /// Decodes a request, which need not be `Send`, and makes the future.
    fn start(
        &self,
        caller: Caller,
        request: Request<'_>,
        answer: &mut Answer,
    ) -> Result<Fut, Status> {
        request.decode(answer).map(|request| (self.function)(caller, request))
    }
}

impl<S, F, Fut> Task for AsyncHandler<S, F>
where
    S: Service,
    F: Fn(Caller, S::Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<S::Response, HandlerError>> + Send + 'static,
{
    fn spawn(self: Arc<Self>, caller: Caller, request: JobPayload, running: Running) -> Abort {
        let runtime = self.runtime.clone();
        let task = runtime.spawn(async move {
            if running.begin() {
                let mut answer = Answer::default();
                let status = self.handle(caller, request, &mut answer).await;
                running.finish(status, answer);
            }
        });
        let task = task.abort_handle();
        Box::new(move || task.abort())
    }
}
