//! Calls.

use bellwire::{CallError, Client, Message, Payload, Service, Session, Ticket};

use super::{ANSWERS_WITHIN, connected, counters_of, session_of};
use crate::Outcome;
use crate::contender::{self, Counters, put};
use crate::load::Case;

/// A connected client, of calls or of requests that nobody answers.
pub(super) struct Caller<S: Service> {
    client: Client<S>,
}

impl<S: Service> Caller<S> {
    pub(super) fn connect(case: &Case) -> Outcome<Self> {
        Ok(Self { client: connected(case)? })
    }
}

/// Answers that are bytes, or nothing.
pub(super) trait Bytes: Message {
    fn bytes(&self) -> &[u8];
}

impl<const N: usize> Bytes for [u8; N] {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl Bytes for Payload {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl Bytes for () {
    fn bytes(&self) -> &[u8] {
        &[]
    }
}

/// Requests that are bytes, and how those are sent.
pub(super) trait Request: Message {
    fn call<S: Service<Request = Self, Response: Bytes>>(
        session: &mut Session<S>,
        request: &[u8],
        answer: &mut [u8],
    ) -> Outcome<usize>;

    fn submit<S: Service<Request = Self>>(
        session: &mut Session<S>,
        request: &[u8],
    ) -> Outcome<Result<Ticket, CallError>>;

    fn post<S: Service<Request = Self>>(session: &mut Session<S>, request: &[u8]) -> Outcome<()>;
}

impl<const N: usize> Request for [u8; N] {
    #[inline]
    fn call<S: Service<Request = Self, Response: Bytes>>(
        session: &mut Session<S>,
        request: &[u8],
        answer: &mut [u8],
    ) -> Outcome<usize> {
        put(session.call(request.try_into()?)?.bytes(), answer)
    }

    #[inline]
    fn submit<S: Service<Request = Self>>(
        session: &mut Session<S>,
        request: &[u8],
    ) -> Outcome<Result<Ticket, CallError>> {
        Ok(session.submit(request.try_into()?))
    }

    #[inline]
    fn post<S: Service<Request = Self>>(session: &mut Session<S>, request: &[u8]) -> Outcome<()> {
        Ok(session.post(request.try_into()?)?)
    }
}

/// They go as they are: a payload of them would be a copy.
impl Request for Payload {
    fn call<S: Service<Request = Self, Response: Bytes>>(
        session: &mut Session<S>,
        request: &[u8],
        answer: &mut [u8],
    ) -> Outcome<usize> {
        put(session.raw().call(request)?, answer)
    }

    fn submit<S: Service<Request = Self>>(
        session: &mut Session<S>,
        request: &[u8],
    ) -> Outcome<Result<Ticket, CallError>> {
        Ok(session.raw().submit(request))
    }

    fn post<S: Service<Request = Self>>(session: &mut Session<S>, request: &[u8]) -> Outcome<()> {
        Ok(session.raw().post(request)?)
    }
}

impl<S: Service> contender::Client for Caller<S>
where
    S::Request: Request,
    S::Response: Bytes,
{
    #[inline]
    fn call(&mut self, request: &[u8], answer: &mut [u8]) -> Outcome<usize> {
        S::Request::call(session_of(&mut self.client)?, request, answer)
    }

    #[inline]
    fn submit(&mut self, request: &[u8]) -> Outcome<()> {
        S::Request::submit(session_of(&mut self.client)?, request)??;
        Ok(())
    }

    #[inline]
    fn reply(&mut self, answer: &mut [u8]) -> Outcome<usize> {
        let session = session_of(&mut self.client)?;
        let response = match session.try_reply()? {
            Some((_, response)) => response?,
            None => session.wait_reply(ANSWERS_WITHIN)?.1?,
        };
        put(response.bytes(), answer)
    }

    #[inline]
    fn post(&mut self, message: &[u8]) -> Outcome<()> {
        S::Request::post(session_of(&mut self.client)?, message)
    }

    fn settle(&mut self) -> Outcome<()> {
        Ok(session_of(&mut self.client)?.flush(ANSWERS_WITHIN)?)
    }

    fn trim(&mut self) -> Outcome<()> {
        Ok(session_of(&mut self.client)?.trim()?)
    }

    fn counters(&mut self) -> Counters {
        counters_of(&mut self.client)
    }
}
