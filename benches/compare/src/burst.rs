//! Events that are published one after the other, and taken by every reader.

use crate::Outcome;
use crate::handler::Handler;

/// How many: fewer than any contender keeps for a reader.
pub(crate) const EVENTS: u64 = 200;

/// The events of a burst, each with its number first and last.
pub(crate) struct Burst {
    message: Vec<u8>,
    next: u64,
    handler: Handler,
}

impl Burst {
    /// Of events of `size` bytes, at least 16.
    pub(crate) fn new(size: usize, handler: Handler) -> Self {
        Self { message: vec![0xa5; size], next: 0, handler }
    }

    /// The next event, until all are there.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
        if self.next == EVENTS {
            return None;
        }
        let number = self.next ^ self.handler.falsified_bits();
        let words = self.message.as_chunks_mut().0;
        for word in [0, words.len() - 1] {
            *words.get_mut(word)? = number.to_le_bytes();
        }
        self.next += 1;
        Some(&self.message)
    }
}

/// Checks that an event is the one with this number.
#[inline]
pub(crate) fn check(event: &[u8], number: u64) -> Outcome<()> {
    let words = event.as_chunks::<8>().0;
    let ends = [words.first(), words.last()];
    if ends.iter().all(|word| word.map(|word| u64::from_le_bytes(*word)) == Some(number)) {
        return Ok(());
    }
    Err(format!("event {number} was lost, doubled or falsified: do not use these figures").into())
}
