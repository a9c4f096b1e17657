use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwire::{HandlerError, Payload, ServeError, ServerBuilder};

use super::arrivals::{Arrivals, Sequences};
use super::message::{DemoBurst, Message, Stream};

/// The provider's end of the burst: answers each request with a message of the requested length, and counts.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Handler(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    arrivals: Arrivals,
    sessions: BTreeMap<u64, Session>,
}

#[derive(Debug, Default)]
struct Session {
    runs: u64,
    sequences: Sequences,
}

impl Handler {
    /// Adds it to a server.
    pub(in super::super) fn join(&self, builder: &mut ServerBuilder) -> Result<(), ServeError> {
        let handler = self.clone();
        builder.serve::<DemoBurst>(move |caller, request| handler.run(caller.session, &request))?;
        Ok(())
    }

    /// Returns the requests that it ran for.
    pub(in super::super) fn arrivals(&self) -> Arrivals {
        self.lock().arrivals
    }

    fn run(&self, session: u64, request: &Payload) -> Result<Payload, HandlerError> {
        let message = Message::parse(request);
        let run = self.lock().note(session, request.len(), message.as_ref());
        let message = message.ok_or_else(|| HandlerError::new("the request is damaged"))?;
        let attach_from = match message.stream {
            Stream::Own => usize::MAX,
            Stream::Attached => 0,
        };
        Ok(Message { run, ..message }.build(attach_from, message.answer)?)
    }

    /// Nothing that holds this lock can panic.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Counts a message and returns how often the handler has run for the session.
    fn note(&mut self, session: u64, bytes: usize, message: Option<&Message>) -> u64 {
        let session = self.sessions.entry(session).or_default();
        session.runs += 1;
        self.arrivals.count(&mut session.sequences, bytes, message);
        session.runs
    }
}
