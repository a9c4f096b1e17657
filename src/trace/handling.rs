//! What a sampled request does between its arrival and its answer: it waits for a worker, is decoded and handled.
//!
//! A thread has at most one sampled request at a time. Its times are kept by the thread, so that the code that decodes and
//! handles requests passes nothing on. Each time is read after the probe before it, whose cost is in no stage then.

use std::cell::Cell;

use bellwire_core::Instant;
use bellwire_probes::{self as probes, Session};

use crate::transport::{Os, prelude::*};

/// The sampled request that this thread handles.
#[derive(Clone, Copy)]
struct Current {
    id: u64,
    begun: Instant,
    decoded: Option<Instant>,
}

/// A sampled request that waits for a worker.
#[derive(Debug)]
pub(crate) struct Queued {
    session: Session,
    id: u64,
    queued: Instant,
}

thread_local! {
    #[allow(clippy::missing_const_for_thread_local, reason = "it is const, which the lint misses on Windows")]
    static CURRENT: Cell<Option<Current>> = const { Cell::new(None) };
}

/// The handler of the current request is about to be called.
pub(crate) fn decoded() {
    if let Some(current) = CURRENT.get().filter(|current| current.decoded.is_none()) {
        CURRENT.set(Some(Current { decoded: Some(Os::now()), ..current }));
    }
}

/// This thread has taken the sampled request `id`, and continues with it now.
pub(super) fn begin(id: u64) {
    CURRENT.set(Some(Current { id, begun: Os::now(), decoded: None }));
}

/// The sampled request `id` goes to a worker; `None` if it is not this thread's.
pub(super) fn queue(session: &Session, id: u64) -> Option<Box<Queued>> {
    let current = CURRENT.take().filter(|current| current.id == id)?;
    Some(Box::new(Queued { session: session.clone(), id, queued: current.begun }))
}

/// The answer to the request `id` is encoded. Traces it if it is this thread's.
pub(super) fn end(session: &Session, id: u64) {
    if let Some(current) = CURRENT.get().filter(|current| current.id == id) {
        CURRENT.set(None);
        let ended = Os::now();
        let decoded = current.decoded.unwrap_or(current.begun);
        probes::handled(
            session,
            id,
            current.begun.as_nanos(),
            decoded.as_nanos(),
            ended.as_nanos(),
        );
    }
}

impl Queued {
    /// This thread, a worker, runs the handler and encodes the answer.
    pub(crate) fn handle<T>(this: Option<Box<Self>>, run: impl FnOnce() -> T) -> T {
        let Some(queued) = this else { return run() };
        let picked = Os::now();
        probes::handling(&queued.session, queued.id, queued.queued.as_nanos(), picked.as_nanos());
        begin(queued.id);
        let done = run();
        end(&queued.session, queued.id);
        done
    }
}
