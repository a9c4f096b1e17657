//! A server's end of one client's session, without I/O: datagrams in, datagrams out. One request is handled at a time; the
//! next ones stay in the socket. And what all clients of a service share: [`Translation`].

use std::sync::Arc;
use std::time::Duration;

use bellwire_core::batch::{BatchBuilder, BatchView};
use bellwire_core::wire::Status as Outcome;
use bellwire_core::{Instant, StallStatus};

use crate::bytes::{Reader, TableWriter};
use crate::handshake::Agreed;
use crate::method::{Answer, CallMethod, Exchange, Method, SnapshotMethod};
use crate::wire::{Arriving, Header, Leaving, REQUEST, RESPONSE};
use crate::{Malformed, Status, Violation};

/// How the clients of one service are served, and its newest snapshot, which is translated once for all of them.
#[derive(Debug)]
pub struct Translation {
    method: Method,
    /// The generation that was translated last, and its payload.
    newest: Option<(u64, Arc<[u8]>)>,
}

impl Translation {
    /// Creates the translation of a service.
    pub fn new(method: Method) -> Self {
        Self { method, newest: None }
    }

    /// Returns the method that clients may ask for.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Returns the translation of the newest snapshot, whose generation is `generation`. Calls `read` for it and its bytes
    /// unless it was translated before. `None` if there is none, if `read` fails, or if the service takes calls.
    pub fn newest(
        &mut self,
        generation: u64,
        read: impl FnOnce() -> Option<(u64, Vec<u8>)>,
    ) -> Option<Arc<[u8]>> {
        let Method::Snapshot(method) = &self.method else { return None };
        if self.newest.as_ref().is_none_or(|(translated, _)| *translated != generation) {
            let (generation, bytes) = read()?;
            let payload = (method.translate)(&bytes, generation)?;
            self.newest = Some((generation, payload.into()));
        }
        self.newest.as_ref().map(|(_, payload)| Arc::clone(payload))
    }
}

/// The session of a client whose HELLO was accepted.
#[derive(Debug)]
pub struct SessionMachine {
    agreed: Agreed,
    arriving: Option<Arriving>,
    /// The header of the request that is handled.
    asked: Option<Header>,
    leaving: Option<Leaving<Arc<[u8]>>>,
    /// Since when the client has taken nothing of the answer that leaves.
    blocked: Option<Instant>,
    /// The request for which the service's answers are awaited.
    begun: Option<(CallMethod, Request)>,
    /// Whether the session ends with the answer that leaves.
    is_last: bool,
}

/// A whole request.
#[derive(Debug)]
pub struct Request {
    /// The code of the method.
    pub code: u16,
    /// Its payload, or its payloads in a batch.
    payload: Vec<u8>,
    /// How many; `None` if it is no batch.
    items: Option<u32>,
}

impl Request {
    /// Returns the payloads: one, or those of a batch.
    ///
    /// # Errors
    /// [`Malformed`]: a batch whose directory is wrong.
    pub fn payloads(&self) -> Result<Vec<&[u8]>, Malformed> {
        match self.items {
            None => Ok(vec![&self.payload]),
            Some(count) => Reader(&self.payload).table(0, count),
        }
    }

    /// Returns whether it is a batch.
    pub fn is_batch(&self) -> bool {
        self.items.is_some()
    }

    /// Returns the length of all of it in bytes.
    pub fn len(&self) -> usize {
        self.payload.len()
    }

    /// Returns whether it has no payload.
    pub fn is_empty(&self) -> bool {
        self.payload.is_empty()
    }

    fn check_snapshot(&self, method: &SnapshotMethod) -> Result<(), Status> {
        if self.is_batch() || (method.check)(&self.payload).is_err() {
            return Err(Status::BadEnvelope);
        }
        Ok(())
    }

    fn to_batch(&self, method: &CallMethod, most: usize) -> Result<Vec<u8>, Status> {
        let bad = |_: Malformed| Status::BadEnvelope;
        if self.is_batch() && !method.takes_batches {
            return Err(Status::BadEnvelope);
        }
        let mut batch = BatchBuilder::new(usize::MAX);
        let mut is_whole = true;
        for payload in self.payloads().map_err(bad)? {
            let mut each = |bytes: &[u8]| {
                is_whole &=
                    batch.len() < most && batch.push(|into| into.extend_from_slice(bytes)).is_ok();
            };
            (method.requests)(payload, &mut each).map_err(bad)?;
        }
        if !is_whole {
            return Err(Status::LimitExceeded);
        }
        let mut bytes = Vec::new();
        batch.finish_into(&mut bytes);
        Ok(bytes)
    }

    fn translate_answers(
        &self,
        method: &CallMethod,
        answers: BatchView<'_>,
        room: usize,
        generation: u64,
    ) -> Result<Vec<Vec<u8>>, Status> {
        let answers: Vec<_> =
            answers.iter().map(|item| Answer::of(item.status, item.bytes)).collect();
        let requests = self.payloads().map_err(|_| Status::BadEnvelope)?;
        // Each item of a batch is one request of the service; otherwise all of them are one message's.
        let each = if self.is_batch() { 1 } else { answers.len().max(1) };
        let mut answers = answers.chunks(each);
        let answer = |request| {
            let (answers, mut payload) = (answers.next().unwrap_or_default(), Vec::new());
            (method.respond)(&Exchange { request, answers, room, generation }, &mut payload)?;
            Ok(payload)
        };
        requests.into_iter().map(answer).collect()
    }
}

/// What a request wants of the service.
#[derive(Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The newest snapshot: pass it to [`SessionMachine::answer`].
    Snapshot,
    /// The answers to this batch of the service's requests: pass them to [`SessionMachine::translate`].
    Calls(Vec<u8>),
}

impl SessionMachine {
    /// Begins after the handshake.
    pub fn new(agreed: Agreed) -> Self {
        Self {
            agreed,
            arriving: None,
            asked: None,
            leaving: None,
            blocked: None,
            begun: None,
            is_last: false,
        }
    }

    /// Returns what was agreed on.
    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// Takes a datagram, and returns the request that it completes. Not to be called before the answer to that was sent.
    ///
    /// # Errors
    /// [`Violation`]: the session is to be closed.
    pub fn receive(&mut self, datagram: &[u8]) -> Result<Option<Request>, Violation> {
        if !self.takes_requests() {
            return Err(Violation::Busy);
        }
        let arriving = match self.arriving.take() {
            Some(mut arriving) => {
                arriving.chunk(datagram)?;
                arriving
            }
            None => {
                let (header, payload) = Header::parse(datagram)?;
                self.check(&header)?;
                Arriving::begin(header, payload, self.agreed.packet)?
            }
        };
        if !arriving.is_whole() {
            self.arriving = Some(arriving);
            return Ok(None);
        }
        let header = arriving.header;
        self.asked = Some(header);
        let items = header.is_batch().then_some(header.items.get());
        let payload = arriving.into_payload();
        Ok(Some(Request { code: header.code.get(), payload, items }))
    }

    fn check(&self, header: &Header) -> Result<(), Violation> {
        header.expect("kind of a request", header.kind, REQUEST)?;
        header.expect("status of a request", header.status, 0)?;
        let (len, limit) = (header.payload_len.get(), self.agreed.max_request);
        if len > limit {
            return Err(Violation::TooLong { len, limit });
        }
        let count = header.items.get();
        let limit = if header.is_batch() { self.agreed.max_items } else { 1 };
        if count > limit {
            return Err(Violation::TooMany { count, limit });
        }
        if count == 0 {
            return Err(Violation::Field { field: "count of items", value: 0 });
        }
        Ok(())
    }

    /// Begins to handle a request: returns what it wants, of the service's requests at most `most`.
    ///
    /// # Errors
    /// The status with which the request is to be [refused](Self::refuse).
    pub fn begin(
        &mut self,
        request: Request,
        method: &Method,
        most: usize,
    ) -> Result<Wanted, Status> {
        if request.code != method.code() {
            return Err(Status::Unsupported);
        }
        match method {
            Method::Snapshot(method) => request.check_snapshot(method).map(|()| Wanted::Snapshot),
            Method::Calls(method) => {
                let batch = request.to_batch(method, most)?;
                self.begun = Some((*method, request));
                Ok(Wanted::Calls(batch))
            }
        }
    }

    /// Returns whether the service's answers are awaited.
    pub fn is_handling(&self) -> bool {
        self.begun.is_some()
    }

    /// Translates the service's answers to the batch that was begun, and its status: returns the payloads,
    /// [joined](Self::joined) for the answer. `generation` tells one run of the provider from the next.
    ///
    /// # Errors
    /// The status with which the request is to be [refused](Self::refuse).
    pub fn translate(
        &mut self,
        outcome: Outcome,
        answers: &[u8],
        generation: u64,
    ) -> Result<Vec<Vec<u8>>, Status> {
        let room = self.agreed.max_response as usize;
        match (self.begun.take(), outcome, BatchView::parse(answers)) {
            (Some((method, request)), Outcome::Ok, Ok(batch)) => {
                request.translate_answers(&method, batch, room, generation)
            }
            _ => Err(Status::Internal),
        }
    }

    /// Returns the bytes held of a request that has not come as a whole, or is handled.
    pub fn held(&self) -> usize {
        let begun = self.begun.as_ref().map_or(0, |(_, request)| request.len());
        self.arriving.as_ref().map_or(begun, Arriving::held)
    }

    /// Returns whether the next datagram may be taken: nothing is handled, and everything has left.
    pub fn takes_requests(&self) -> bool {
        self.asked.is_none() && self.leaving.is_none()
    }

    /// Answers the request with a payload. One longer than was agreed becomes [`Status::LimitExceeded`].
    pub fn answer(&mut self, payload: Arc<[u8]>) {
        if payload.len() > self.agreed.max_response as usize {
            return self.refuse(Status::LimitExceeded);
        }
        let Some(asked) = self.asked.take() else { return };
        let items = if asked.is_batch() { asked.items.get() } else { 1 };
        let header = Header::new(RESPONSE, asked.code.get(), payload.len(), items, asked.id.get());
        let header = header.with_batch(asked.is_batch());
        self.leaving = Some(Leaving::new(header, payload, self.agreed.packet));
    }

    /// Returns the payload to [answer](Self::answer) with: the table of a batch's payloads, one for each of its items, or the only
    /// one of a single request.
    pub fn joined(&self, payloads: &[Vec<u8>]) -> Arc<[u8]> {
        let is_batch = self.asked.is_some_and(|asked| asked.is_batch());
        let single = payloads.first().filter(|_| !is_batch);
        single.map_or_else(|| batch(payloads), |payload| payload.as_slice().into())
    }

    /// Answers the request with a status. Only after [`Status::Unsupported`] the session goes on.
    pub fn refuse(&mut self, status: Status) {
        let Some(asked) = self.asked.take() else { return };
        let header = Header::new(RESPONSE, asked.code.get(), 0, 1, asked.id.get());
        self.is_last = status != Status::Unsupported;
        let header = header.with_status(status);
        self.leaving = Some(Leaving::new(header, Arc::default(), self.agreed.packet));
    }

    /// Writes the next datagram to send to `into`; returns false if there is none.
    pub fn datagram(&self, into: &mut Vec<u8>) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| {
            leaving.datagram(into);
            true
        })
    }

    /// Notes that the datagram was sent.
    pub fn sent(&mut self) {
        self.blocked = None;
        if let Some(leaving) = &mut self.leaving {
            leaving.advance();
            if leaving.is_gone() {
                self.leaving = None;
            }
        }
    }

    /// Notes that the datagram was not sent at `now`, for lack of room.
    pub fn not_sent(&mut self, now: Instant) {
        self.blocked.get_or_insert(now);
    }

    /// Returns whether the client has taken nothing for `limit` of an answer.
    pub fn check_stalled(&self, now: Instant, limit: Duration) -> StallStatus {
        match self.blocked.map(|since| since.after(limit)) {
            None => StallStatus::CaughtUp,
            Some(due) if due <= now => StallStatus::Stalled,
            Some(due) => StallStatus::CheckAt(due),
        }
    }

    /// Returns whether the last answer has left, and the session is to be closed.
    pub fn is_over(&self) -> bool {
        self.is_last && self.leaving.is_none()
    }
}

fn batch(payloads: &[Vec<u8>]) -> Arc<[u8]> {
    let mut bytes = Vec::new();
    let mut table = TableWriter::begin(&mut bytes, payloads.len());
    for payload in payloads {
        table.item(|into| into.extend_from_slice(payload));
    }
    bytes.into()
}
