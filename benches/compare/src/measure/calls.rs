//! Calls: one after the other, or some in flight.

use super::Operations;
use super::Payload;
use crate::Outcome;
use crate::contender::{Client, Counters};

/// One in flight.
pub(super) struct Alone<C> {
    client: C,
    payload: Payload,
}

impl<C: Client> Alone<C> {
    pub(super) fn new(client: C, size: usize) -> Self {
        Self { client, payload: Payload::new(size) }
    }
}

impl<C: Client> Operations for Alone<C> {
    #[inline]
    fn steps(&mut self, steps: u64) -> Outcome<u64> {
        self.client.calls(&mut self.payload, steps)?;
        Ok(steps)
    }

    fn counters(&mut self) -> Counters {
        self.client.counters()
    }
}

/// So many in flight: for each answer taken, the next request is sent. The answers to the last are taken at the end.
pub(super) struct Pipeline<C> {
    client: C,
    payload: Payload,
    depth: usize,
    in_flight: usize,
}

impl<C: Client> Pipeline<C> {
    pub(super) fn new(client: C, size: usize, depth: usize) -> Self {
        Self { client, payload: Payload::new(size), depth, in_flight: 0 }
    }

    #[inline]
    fn take(&mut self) -> Outcome<()> {
        let len = self.client.reply(&mut self.payload.answer)?;
        self.in_flight -= 1;
        self.payload.check(len)
    }
}

impl<C: Client> Operations for Pipeline<C> {
    #[inline]
    fn steps(&mut self, steps: u64) -> Outcome<u64> {
        if let Some(done) = self.client.concurrent_calls(&self.payload, self.depth, steps) {
            return done.map(|()| steps);
        }
        for _ in 0..steps {
            if self.in_flight == self.depth {
                self.take()?;
            }
            self.payload.next();
            self.client.submit(&self.payload.request)?;
            self.in_flight += 1;
        }
        Ok(steps)
    }

    fn finish(&mut self) -> Outcome<()> {
        while self.in_flight > 0 {
            self.take()?;
        }
        Ok(())
    }

    fn counters(&mut self) -> Counters {
        self.client.counters()
    }
}
