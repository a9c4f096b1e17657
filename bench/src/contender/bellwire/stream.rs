//! One way: requests as fast as the lane takes them, the empty answers taken in passing.

use bellwire::{CallError, Client, Service, Session};

use super::calls::Bytes;
use super::{ANSWERS_WITHIN, counters_of};
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

    #[inline]
    fn session(&mut self) -> Outcome<&mut Session<S>> {
        self.client.session().ok_or_else(|| "the session is gone".into())
    }

    /// Waits for one answer, and takes what else is there.
    #[inline]
    fn take(&mut self) -> Outcome<()> {
        let session = self.session()?;
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
        let request = S::Request::of(message)?;
        loop {
            match self.session()?.submit(&request) {
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
        self.client
            .session()
            .map_or_else(Counters::default, |session| counters_of(&session.stats()))
    }
}
