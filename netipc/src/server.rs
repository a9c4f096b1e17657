//! A server's end of one client's session, without I/O: datagrams in, datagrams out. One request is handled at a time; the
//! next ones stay in the socket.

use std::sync::Arc;

use crate::bytes::{Reader, TableWriter};
use crate::wire::{Agreed, Arriving, Header, Leaving, REQUEST, RESPONSE};
use crate::{Malformed, Status, Violation};

/// The session of a client whose HELLO was accepted.
#[derive(Debug)]
pub struct ServerSession {
    agreed: Agreed,
    arriving: Option<Arriving>,
    /// The header of the request that is handled.
    asked: Option<Header>,
    leaving: Option<Leaving<Arc<[u8]>>>,
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
}

impl ServerSession {
    /// Begins after the handshake.
    pub fn new(agreed: Agreed) -> Self {
        Self { agreed, arriving: None, asked: None, leaving: None, is_last: false }
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

    /// Returns the bytes held of a request that has not come as a whole.
    pub fn held(&self) -> usize {
        self.arriving.as_ref().map_or(0, Arriving::held)
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

    /// Answers a batch with one payload for each of its items, or a single request with the only one.
    pub fn answer_all(&mut self, payloads: &[Vec<u8>]) {
        let is_batch = self.asked.is_some_and(|asked| asked.is_batch());
        let single = payloads.first().filter(|_| !is_batch);
        let payload = single.map_or_else(|| batch(payloads), |payload| payload.as_slice().into());
        self.answer(payload);
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
        if let Some(leaving) = &mut self.leaving {
            leaving.advance();
            if leaving.is_gone() {
                self.leaving = None;
            }
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
