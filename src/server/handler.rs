use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bellwire_core::wire::Status;

use crate::publisher::Shelf;
use crate::{HandlerError, Message, Service};

/// The longest reason of a failure that is sent, in bytes.
const MAX_REASON: usize = 1024;

/// Who calls, as the kernel noted when the session was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The process; `None` when it lives in a pid namespace that this one cannot see.
    pub pid: Option<u32>,
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The session's number, unique within this server.
    pub session: u64,
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
    /// Answers the bytes of a request; `answer` comes empty.
    fn call(&self, caller: &Caller, request: &[u8], answer: &mut Vec<u8>) -> Status;
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
}

impl<S, F> Call for Typed<S, F>
where
    S: Service,
    F: Fn(&Caller, S::Request) -> Result<S::Response, HandlerError> + Send + Sync,
{
    fn call(&self, caller: &Caller, request: &[u8], answer: &mut Vec<u8>) -> Status {
        let request = match S::Request::decode(request) {
            Ok(request) => request,
            Err(malformed) => {
                explain(&malformed.to_string(), answer);
                return Status::Malformed;
            }
        };
        // A handler that panics fails its call; what it shares with others is its own to keep whole, as
        // with a thread that panics.
        match catch_unwind(AssertUnwindSafe(|| (self.function)(caller, request))) {
            Ok(Ok(response)) => {
                response.encode(answer);
                Status::Ok
            }
            Ok(Err(error)) => {
                explain(error.reason(), answer);
                Status::Failed
            }
            Err(_) => Status::Panicked,
        }
    }
}

fn explain(reason: &str, answer: &mut Vec<u8>) {
    let cut = reason.floor_char_boundary(MAX_REASON);
    answer.extend_from_slice(reason.get(..cut).unwrap_or("").as_bytes());
}
