//! One-way messages, whose time the receiver reports (`crate::sink`), and events, which every reader takes.

use super::Operations;
use super::payload::Payload;
use crate::Outcome;
use crate::burst::{self, EVENTS};
use crate::clock;
use crate::contender::Client;
use crate::sink::LAST;

/// Messages that are numbered from 0 in each series, the last one marked.
pub(super) struct Stream {
    message: Vec<u8>,
    timed: bool,
    next: u64,
}

impl Stream {
    pub(super) fn new(size: usize, timed: bool) -> Self {
        let message = Payload::new(size.max(16)).request;
        Self { message, timed, next: 0 }
    }

    #[inline]
    fn post(&mut self, client: &mut impl Client, last: u64) -> Outcome<()> {
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
        client.post(&self.message)
    }
}

impl<C: Client> Operations<C> for Stream {
    #[inline]
    fn steps(&mut self, client: &mut C, steps: u64) -> Outcome<u64> {
        for _ in 0..steps {
            self.post(client, 0)?;
        }
        Ok(steps)
    }

    fn finish(&mut self, client: &mut C) -> Outcome<()> {
        self.post(client, LAST)?;
        self.next = 0;
        client.finish_posts()
    }
}

/// A reader, which takes a burst of events at each step.
pub(super) struct Events(Vec<u8>);

impl Events {
    pub(super) fn new(size: usize) -> Self {
        Self(vec![0; size])
    }
}

impl<C: Client> Operations<C> for Events {
    #[inline]
    fn steps(&mut self, client: &mut C, steps: u64) -> Outcome<u64> {
        for _ in 0..steps {
            // All are taken before a wrong one is reported: the publisher may wait for room.
            let mut checked = Ok(());
            for number in 0..EVENTS {
                let len = client.event(&mut self.0)?;
                let event = self.0.get(..len).unwrap_or_default();
                checked = checked.and_then(|()| burst::check(event, number));
            }
            checked?;
        }
        Ok(steps * EVENTS)
    }
}
