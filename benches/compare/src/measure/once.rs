//! What a connection does once: it opens, and carries its first large message.

use super::Operations;
use super::payload::Payload;
use crate::Outcome;
use crate::contender::{Client, Counters};
use crate::load::SMALL;

/// Opening a connection, up to its first answer. It is closed outside the clock.
pub(super) struct Connect<C, F> {
    connect: F,
    payload: Payload,
    open: Option<C>,
}

impl<C: Client, F: FnMut() -> Outcome<C>> Connect<C, F> {
    pub(super) fn new(connect: F) -> Self {
        Self { connect, payload: Payload::new(SMALL), open: None }
    }
}

impl<C: Client, F: FnMut() -> Outcome<C>> Operations for Connect<C, F> {
    const IS_PREPARED: bool = true;

    fn prepare(&mut self) -> Outcome<()> {
        self.open = None;
        Ok(())
    }

    fn steps(&mut self, steps: u64) -> Outcome<u64> {
        for _ in 0..steps {
            self.payload.next();
            let client = self.open.insert((self.connect)()?);
            let len = client.call(&self.payload.request, &mut self.payload.answer)?;
            self.payload.check(len)?;
        }
        Ok(steps)
    }

    fn counters(&mut self) -> Counters {
        Counters::default()
    }
}

/// The first large call of a connection that has carried small ones.
pub(super) struct Grow<C> {
    client: C,
    small: Payload,
    large: Payload,
}

impl<C: Client> Grow<C> {
    pub(super) fn new(client: C, size: usize) -> Self {
        Self { client, small: Payload::new(SMALL), large: Payload::new(size) }
    }
}

impl<C: Client> Operations for Grow<C> {
    const IS_PREPARED: bool = true;

    fn prepare(&mut self) -> Outcome<()> {
        self.client.trim()?;
        call(&mut self.client, &mut self.small)
    }

    fn steps(&mut self, steps: u64) -> Outcome<u64> {
        for _ in 0..steps {
            call(&mut self.client, &mut self.large)?;
        }
        Ok(steps)
    }

    fn counters(&mut self) -> Counters {
        self.client.counters()
    }
}

fn call(client: &mut impl Client, payload: &mut Payload) -> Outcome<()> {
    payload.next();
    let len = client.call(&payload.request, &mut payload.answer)?;
    payload.check(len)
}
