use std::ops::Deref;

use bellwire_core::sync::Ordering;
use bellwire_core::{Instant, OwnMemory, PeerMemory, Word};

use crate::range::{OwnRange, PeerRange};

/// The memory that this end of a session writes, in regions of a transport.
#[derive(Debug)]
pub struct OwnEnd<R> {
    /// Its control words.
    pub page: R,
    /// Its records.
    pub lane: R,
}

/// The memory that the peer writes, in regions of a transport.
#[derive(Debug)]
pub struct PeerEnd<R> {
    /// Its control words.
    pub page: R,
    /// Its records.
    pub lane: R,
}

impl<R: Deref<Target = OwnRange>> OwnEnd<R> {
    /// Adds one to a word of the own page, which nobody else writes.
    pub fn count(&self, word: Word) {
        let before = self.page.load_u64(word.offset(), Ordering::Relaxed);
        self.store(word, before.wrapping_add(1), Ordering::Relaxed);
    }

    /// Notes in the own page that this end rings `now`.
    pub fn rings(&self, now: Instant) {
        self.store(Word::RungAt, now.as_nanos(), Ordering::Relaxed);
        self.count(Word::Rings);
    }
}

impl<R: Deref<Target = OwnRange>> OwnMemory for OwnEnd<R> {
    #[inline]
    fn store(&self, word: Word, value: u64, order: Ordering) {
        self.page.store_u64(word.offset(), value, order);
    }

    #[inline]
    fn write(&self, offset: usize, bytes: &[u8]) {
        self.lane.write(offset, bytes);
    }

    #[inline]
    fn will_write(&self, offset: usize) {
        self.lane.will_write(offset);
    }
}

impl<R: Deref<Target = PeerRange>> PeerMemory for PeerEnd<R> {
    #[inline]
    fn load(&self, word: Word, order: Ordering) -> u64 {
        self.page.load_u64(word.offset(), order)
    }

    #[inline]
    fn read(&self, offset: usize, into: &mut [u8]) {
        self.lane.read(offset, into);
    }

    #[inline]
    fn will_read(&self, offset: usize) {
        self.lane.will_read(offset);
    }
}
