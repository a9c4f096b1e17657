//! Calls.

use bellwire::{Client, Message, Payload, Service};

use super::{ANSWERS_WITHIN, counters_of, session_of};
use crate::Outcome;
use crate::contender::{self, Counters};

/// A connected client.
pub(super) struct Caller<S: Service> {
    client: Client<S>,
}

impl<S: Service> Caller<S> {
    pub(super) fn new(client: Client<S>) -> Outcome<Self> {
        Ok(Self { client })
    }
}

/// Bytes that become a message and that a message becomes.
pub(super) trait Bytes: Message {
    fn of(bytes: &[u8]) -> Outcome<Self>;
    fn bytes(&self) -> &[u8];
}

impl<const N: usize> Bytes for [u8; N] {
    #[inline]
    fn of(bytes: &[u8]) -> Outcome<Self> {
        Ok(bytes.try_into()?)
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl Bytes for Payload {
    fn of(bytes: &[u8]) -> Outcome<Self> {
        Ok(Self::build(bytes.len(), |into| into.copy_from_slice(bytes))?)
    }

    fn bytes(&self) -> &[u8] {
        self
    }
}

impl<S: Service> contender::Client for Caller<S>
where
    S::Request: Bytes,
    S::Response: Bytes,
{
    #[inline]
    fn call(&mut self, request: &[u8], answer: &mut [u8]) -> Outcome<usize> {
        let response = session_of(&mut self.client)?.call(&S::Request::of(request)?)?;
        put(&response, answer)
    }

    #[inline]
    fn submit(&mut self, request: &[u8]) -> Outcome<()> {
        let request = S::Request::of(request)?;
        let session = session_of(&mut self.client)?;
        session.submit(&request)?;
        Ok(())
    }

    #[inline]
    fn reply(&mut self, answer: &mut [u8]) -> Outcome<usize> {
        let session = session_of(&mut self.client)?;
        let response = match session.try_reply()? {
            Some((_, response)) => response?,
            None => session.wait_reply(ANSWERS_WITHIN)?.1?,
        };
        put(&response, answer)
    }

    fn trim(&mut self) -> Outcome<()> {
        Ok(session_of(&mut self.client)?.trim()?)
    }

    fn counters(&mut self) -> Counters {
        counters_of(&mut self.client)
    }
}

#[inline]
fn put(response: &impl Bytes, answer: &mut [u8]) -> Outcome<usize> {
    let bytes = response.bytes();
    let into = answer.get_mut(..bytes.len()).ok_or("an answer that is too long")?;
    into.copy_from_slice(bytes);
    Ok(bytes.len())
}
