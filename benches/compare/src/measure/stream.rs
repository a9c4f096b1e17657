//! One-way messages. The receiver reports their time: `crate::sink`.

use super::Operations;
use super::payload::Payload;
use crate::Outcome;
use crate::clock;
use crate::contender::{Client, Counters};
use crate::sink::LAST;

/// Messages that are numbered from 0 in each series, the last one marked.
pub(super) struct Stream<C> {
    client: C,
    message: Vec<u8>,
    timed: bool,
    next: u64,
}

impl<C: Client> Stream<C> {
    pub(super) fn new(client: C, size: usize, timed: bool) -> Self {
        let message = Payload::new(size.max(16)).request;
        Self { client, message, timed, next: 0 }
    }

    #[inline]
    fn post(&mut self, last: u64) -> Outcome<()> {
        let (len, (words, _)) = (self.message.len(), self.message.as_chunks_mut());
        // The end first: of a short message these may be the same words.
        if len > 16
            && let Some(word) = words.last_mut()
        {
            *word = self.next.to_le_bytes();
        }
        if let [number, sent, ..] = words {
            *number = (self.next | last).to_le_bytes();
            if self.timed {
                *sent = clock::now().to_le_bytes();
            }
        }
        self.next += 1;
        self.client.post(&self.message)
    }
}

impl<C: Client> Operations for Stream<C> {
    #[inline]
    fn steps(&mut self, steps: u64) -> Outcome<u64> {
        for _ in 0..steps {
            self.post(0)?;
        }
        Ok(steps)
    }

    fn finish(&mut self) -> Outcome<()> {
        self.post(LAST)?;
        self.next = 0;
        self.client.settle()
    }

    fn counters(&mut self) -> Counters {
        self.client.counters()
    }
}
