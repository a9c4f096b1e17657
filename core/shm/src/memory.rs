use std::ops::Deref;

use bellwire_core::sync::Ordering;
use bellwire_core::wire::{HEADER, PageHeader, sample_offset};
use bellwire_core::{Instant, OwnMemory, PeerMemory, Word};

use crate::range::{OwnRange, PeerRange};

/// The memory that this end of a session writes.
#[derive(Debug)]
pub struct OwnEnd<R> {
    /// Control words.
    pub page: R,
    /// Records.
    pub lane: R,
}

/// The memory that the peer writes.
#[derive(Debug)]
pub struct PeerEnd<R> {
    /// Control words.
    pub page: R,
    /// Records.
    pub lane: R,
}

impl<R: Deref<Target = OwnRange>> OwnEnd<R> {
    /// Adds one to a word of the own page, which only this end writes.
    pub fn count(&self, word: Word) {
        let before = self.page.load_u64(word.offset(), Ordering::Relaxed);
        self.store(word, before.wrapping_add(1), Ordering::Relaxed);
    }

    /// Returns the creation time that the page holds, in nanoseconds since 1970.
    pub fn created(&self) -> u64 {
        self.page.load_u64(PageHeader::CREATED, Ordering::Relaxed)
    }

    /// Records in the own page that this end rings at `now`.
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
    fn write_record(&self, offset: usize, header: [u8; HEADER], payload: &[u8]) {
        self.lane.write_record(offset, header, payload);
    }

    fn stamp(&self, slot: usize, entry: [u64; 4]) {
        for (at, word) in (sample_offset(slot)..).step_by(8).zip(entry) {
            self.page.store_u64(at, word, Ordering::Relaxed);
        }
    }

    #[inline]
    fn export_counter(&self, offset: usize, value: u64) {
        if cfg!(not(bellwire_uncounted)) {
            self.page.store_u64(offset, value, Ordering::Relaxed);
        }
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
    fn read_header(&self, offset: usize) -> [u64; 2] {
        self.lane.load_pair(offset).map(u64::from_le)
    }

    fn stamped(&self, slot: usize) -> [u64; 4] {
        let at = sample_offset(slot);
        [0, 8, 16, 24].map(|word| self.page.load_u64(at + word, Ordering::Relaxed))
    }

    #[inline]
    fn stamped_end(&self, slot: usize) -> u64 {
        self.page.load_u64(sample_offset(slot), Ordering::Relaxed)
    }

    #[inline]
    fn will_read(&self, offset: usize) {
        self.lane.will_read(offset);
    }
}
