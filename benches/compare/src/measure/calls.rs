//! Calls: one after the other, some in flight, or the first of a connection.

use super::Operations;
use super::Payload;
use crate::Outcome;
use crate::contender::Client;

/// One in flight.
pub(super) struct Alone(Payload);

impl Alone {
    pub(super) fn new(size: usize) -> Self {
        Self(Payload::new(size))
    }
}

impl<C: Client> Operations<C> for Alone {
    #[inline]
    fn steps(&mut self, client: &mut C, steps: u64) -> Outcome<u64> {
        client.calls(&mut self.0, steps)?;
        Ok(steps)
    }
}

/// So many in flight: for each answer taken, the next request is sent. The answers to the last are taken at the end.
pub(super) struct Pipeline {
    payload: Payload,
    depth: usize,
    in_flight: usize,
}

impl Pipeline {
    pub(super) fn new(size: usize, depth: usize) -> Self {
        Self { payload: Payload::new(size), depth, in_flight: 0 }
    }

    #[inline]
    fn take(&mut self, client: &mut impl Client) -> Outcome<()> {
        let len = client.reply(&mut self.payload.answer)?;
        self.in_flight -= 1;
        self.payload.check(len)
    }
}

impl<C: Client> Operations<C> for Pipeline {
    #[inline]
    fn steps(&mut self, client: &mut C, steps: u64) -> Outcome<u64> {
        if let Some(done) = client.concurrent_calls(&self.payload, self.depth, steps) {
            return done.map(|()| steps);
        }
        for _ in 0..steps {
            if self.in_flight == self.depth {
                self.take(client)?;
            }
            self.payload.next();
            client.submit(&self.payload.request)?;
            self.in_flight += 1;
        }
        Ok(steps)
    }

    fn finish(&mut self, client: &mut C) -> Outcome<()> {
        while self.in_flight > 0 {
            self.take(client)?;
        }
        Ok(())
    }
}

/// The first call of a connection, or its first large one after a small one.
pub(super) struct First {
    before: Option<Payload>,
    first: Payload,
}

impl First {
    pub(super) fn new(before: Option<usize>, size: usize) -> Self {
        Self { before: before.map(Payload::new), first: Payload::new(size) }
    }
}

impl<C: Client> Operations<C> for First {
    const IS_PREPARED: bool = true;

    fn prepare(&mut self, client: &mut C) -> Outcome<()> {
        client.trim()?;
        self.before.as_mut().map_or(Ok(()), |before| client.calls(before, 1))
    }

    fn steps(&mut self, client: &mut C, steps: u64) -> Outcome<u64> {
        client.calls(&mut self.first, steps)?;
        Ok(steps)
    }
}
