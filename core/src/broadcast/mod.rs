//! A broadcast ring: one writer, and any number of readers of whom it knows nothing.
//!
//! ```text
//!            oldest           latest  tail      intent
//!               │                │      │          │        positions, growing for ever
//!  ─────────────┼─────┬─────┬────┼──────┼──────────┼─────▶
//!   overwritten │  records, whole       │ being    │
//!               │                       │ written  │
//! ```
//!
//! [`Transmitter::send`] announces in Intent how far it is going to write, writes the record over the oldest ones, and
//! moves Tail. A [`Receiver`] copies a record out and then loads Intent: if the writer may have come round to the
//! record meanwhile, the copy is worth nothing, and the reader goes on at Oldest. So a writer never waits and does no
//! work for a reader, and what a reader parses is its own copy, which no longer changes.
//!
//! Readers trust nothing that they load: a hostile writer costs them one bounded copy for each call, and an error.

mod receiver;
mod transmitter;

pub use receiver::{Received, Receiver};
pub use transmitter::{TooLong, Transmitter};

use crate::sync::Ordering;
use crate::wire::BroadcastWord;

/// A ring's memory, as its only writer has it.
///
/// # Contract
/// `store` writes the word in one piece with at least the ordering given. `write` may be seen by readers at any time
/// and in any order between the fences and stores around it. Offsets count from the first record.
pub trait TransmitMemory {
    /// Stores a word.
    fn store(&self, word: BroadcastWord, value: u64, order: Ordering);

    /// Copies `bytes` into the records at `offset`, a multiple of 16. The caller has checked that they fit.
    fn write(&self, offset: usize, bytes: &[u8]);

    /// Returns the first 8 bytes of a record that this side wrote at `offset`, little-endian.
    fn written(&self, offset: usize) -> u64;
}

/// A ring's memory, as a reader has it. Every load goes through this trait, so that a test or a fuzzer can supply each
/// value. No value is trusted.
///
/// # Contract
/// `load` reads the word in one piece with at least the ordering given. `read` copies `into.len()` bytes at `offset`,
/// reading each byte once, while the writer may change them. Offsets count from the first record.
pub trait ReceiveMemory {
    /// Loads a word.
    fn load(&self, word: BroadcastWord, order: Ordering) -> u64;

    /// Copies bytes of the records at `offset`. The caller has checked that they are inside.
    fn read(&self, offset: usize, into: &mut [u8]);
}
