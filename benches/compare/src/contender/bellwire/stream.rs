//! One way: requests that nobody answers, as fast as the lane takes them.

use bellwire::{Client, Service};

use super::calls::Bytes;
use super::{ANSWERS_WITHIN, counters_of, session_of};
use crate::Outcome;
use crate::contender::{self, Counters};

/// A connected client.
pub(super) struct Sender<S: Service> {
    client: Client<S>,
}

impl<S: Service<Response = ()>> Sender<S> {
    pub(super) fn new(client: Client<S>) -> Outcome<Self> {
        Ok(Self { client })
    }
}

impl<S: Service<Response = ()>> contender::Client for Sender<S>
where
    S::Request: Bytes,
{
    #[inline]
    fn post(&mut self, message: &[u8]) -> Outcome<()> {
        S::Request::post(session_of(&mut self.client)?, message)
    }

    fn settle(&mut self) -> Outcome<()> {
        Ok(session_of(&mut self.client)?.flush(ANSWERS_WITHIN)?)
    }

    fn counters(&mut self) -> Counters {
        counters_of(&mut self.client)
    }
}
