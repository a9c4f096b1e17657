#![allow(
    unsafe_code,
    reason = "loom's cells are read and written through the pointers that they lend"
)]

use bellwire_core::sync::{AtomicU64, Ordering};
use bellwire_core::{Geometry, OwnMemory, PeerMemory, Word};
use loom::cell::UnsafeCell;

const BLOCK: usize = 16;

type Block = [u8; BLOCK];

/// The memory that one end writes and both see: the words that the protocol depends on, and a lane.
pub struct Side {
    tail: AtomicU64,
    head: AtomicU64,
    want_data: AtomicU64,
    want_space: AtomicU64,
    state: AtomicU64,
    lane: Vec<UnsafeCell<Block>>,
}

/// A side, as its owner sees it.
pub struct Own<'a>(pub &'a Side);

/// A side, as its owner's peer sees it.
pub struct Peer<'a>(pub &'a Side);

impl Side {
    /// A side whose lane has this size, all zeroes.
    pub fn new(lane: Geometry) -> Self {
        let blocks = usize::try_from(lane.size()).unwrap_or(0) / BLOCK;
        Self {
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            want_data: AtomicU64::new(0),
            want_space: AtomicU64::new(0),
            state: AtomicU64::new(0),
            lane: (0..blocks).map(|_| UnsafeCell::new([0; BLOCK])).collect(),
        }
    }

    /// The atomic behind a word; none for the words that nobody waits for or looks for.
    pub(crate) fn word(&self, word: Word) -> Option<&AtomicU64> {
        match word {
            Word::Tail => Some(&self.tail),
            Word::Head => Some(&self.head),
            Word::WantData => Some(&self.want_data),
            Word::WantSpace => Some(&self.want_space),
            Word::State => Some(&self.state),
            _ => None,
        }
    }
}

impl OwnMemory for Own<'_> {
    fn store(&self, word: Word, value: u64, order: Ordering) {
        if let Some(word) = self.0.word(word) {
            word.store(value, order);
        }
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset.is_multiple_of(BLOCK), "records and payloads start at blocks");
        for (at, part) in bytes.chunks(BLOCK).enumerate() {
            self.0.lane[offset / BLOCK + at].with_mut(|block| {
                // SAFETY: the cell outlives the closure, and loom panics before calling it when another
                // thread may read or write the cell at the same time.
                let block: &mut Block = unsafe { &mut *block };
                block[..part.len()].copy_from_slice(part);
            });
        }
    }
}

impl PeerMemory for Peer<'_> {
    fn load(&self, word: Word, order: Ordering) -> u64 {
        self.0.word(word).map_or(0, |word| word.load(order))
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset.is_multiple_of(BLOCK), "records and payloads start at blocks");
        for (at, part) in into.chunks_mut(BLOCK).enumerate() {
            self.0.lane[offset / BLOCK + at].with(|block| {
                // SAFETY: the cell outlives the closure, and loom panics before calling it when another
                // thread may write the cell at the same time.
                let block: &Block = unsafe { &*block };
                part.copy_from_slice(&block[..part.len()]);
            });
        }
    }
}
