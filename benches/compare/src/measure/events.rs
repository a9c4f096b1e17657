//! Events that every reader takes.

use super::Operations;
use crate::Outcome;
use crate::burst::{self, EVENTS};
use crate::contender::{Client, Counters};

/// A reader, which takes a burst at each step.
pub(super) struct Events<C> {
    client: C,
    event: Vec<u8>,
}

impl<C: Client> Events<C> {
    pub(super) fn new(client: C, size: usize) -> Self {
        Self { client, event: vec![0; size] }
    }
}

impl<C: Client> Operations for Events<C> {
    #[inline]
    fn steps(&mut self, steps: u64) -> Outcome<u64> {
        for _ in 0..steps {
            // All are taken before a wrong one is reported: the publisher may wait for room.
            let mut checked = Ok(());
            for number in 0..EVENTS {
                let len = self.client.event(&mut self.event)?;
                let event = self.event.get(..len).unwrap_or_default();
                checked = checked.and_then(|()| burst::check(event, number));
            }
            checked?;
        }
        Ok(steps * EVENTS)
    }

    fn counters(&mut self) -> Counters {
        self.client.counters()
    }
}
