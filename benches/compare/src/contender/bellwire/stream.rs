//! One way: requests as fast as the lane takes them, the empty answers taken in passing.

use bellwire::{CallError, Client, Service};

use super::calls::Bytes;
use super::{ANSWERS_WITHIN, counters_of, session_of};
use crate::Outcome;
use crate::contender::{self, Counters};

/// A connected client.
pub(super) struct Sender<S: Service> {
    client: Client<S>,
    in_flight: u64,
}

impl<S: Service<Response = ()>> Sender<S> {
    pub(super) fn new(client: Client<S>) -> Outcome<Self> {
        Ok(Self { client, in_flight: 0 })
    }

    /// Waits for one answer, and takes what else is there.
    #[inline]
    fn take(&mut self) -> Outcome<()> {
        let session = session_of(&mut self.client)?;
        session.wait_reply(ANSWERS_WITHIN)?.1?;
        let mut taken = 1;
        while let Some((_, answer)) = session.try_reply()? {
            answer?;
            taken += 1;
        }
        self.in_flight -= taken;
        Ok(())
    }
}

impl<S: Service<Response = ()>> contender::Client for Sender<S>
where
    S::Request: Bytes,
{
    #[inline]
    fn post(&mut self, message: &[u8]) -> Outcome<()> {
        loop {
            match S::Request::submit(session_of(&mut self.client)?, message)? {
                Ok(_) => break,
                Err(CallError::WouldBlock) => self.take()?,
                Err(error) => return Err(error.into()),
            }
        }
        self.in_flight += 1;
        Ok(())
    }

    fn settle(&mut self) -> Outcome<()> {
        while self.in_flight > 0 {
            self.take()?;
        }
        Ok(())
    }

    fn counters(&mut self) -> Counters {
        counters_of(&mut self.client)
    }
}
