#![allow(
    unsafe_code,
    reason = "loom's cells are read and written through the pointers that they lend"
)]

use std::rc::Rc;

use bellwire_core::sync::{AtomicU64, Ordering};
use bellwire_core::{Geometry, OwnMemory, PeerMemory, Word};
use loom::cell::UnsafeCell;

use crate::Session;

const BLOCK: usize = 16;

type Block = [u8; BLOCK];

/// The words that one end writes and both see: those that the protocol depends on.
#[derive(Default)]
pub struct Side {
    tail: AtomicU64,
    head: AtomicU64,
    want_data: AtomicU64,
    want_space: AtomicU64,
    state: AtomicU64,
}

/// The memory of one epoch of a lane.
pub struct Lane(Vec<UnsafeCell<Block>>);

/// A side and a lane that it writes, as their owner or its peer sees them.
pub struct View {
    session: Rc<Session>,
    owner: usize,
    lane: Rc<Lane>,
}

impl Side {
    /// The atomic behind a word; none for the words that no end waits on or loads.
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

impl Lane {
    /// A lane of this size, all zeroes.
    pub fn new(size: Geometry) -> Rc<Self> {
        let blocks = usize::try_from(size.size()).unwrap_or(0) / BLOCK;
        Rc::new(Self((0..blocks).map(|_| UnsafeCell::new([0; BLOCK])).collect()))
    }
}

impl View {
    pub(crate) fn new(session: &Rc<Session>, owner: usize, lane: &Rc<Lane>) -> Self {
        Self { session: Rc::clone(session), owner, lane: Rc::clone(lane) }
    }

    /// Writes or reads this lane from now on.
    pub(crate) fn switch(&mut self, lane: Rc<Lane>) {
        self.lane = lane;
    }
}

impl OwnMemory for View {
    fn store(&self, word: Word, value: u64, order: Ordering) {
        if let Some(word) = self.session.side(self.owner).word(word) {
            word.store(value, order);
        }
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset.is_multiple_of(BLOCK), "records and payloads start at blocks");
        for (at, part) in bytes.chunks(BLOCK).enumerate() {
            self.lane.0[offset / BLOCK + at].with_mut(|block| {
                // SAFETY: the cell outlives the closure, and loom panics before calling it when another
                // thread may read or write the cell at the same time.
                let block: &mut Block = unsafe { &mut *block };
                block[..part.len()].copy_from_slice(part);
            });
        }
    }
}

impl PeerMemory for View {
    fn load(&self, word: Word, order: Ordering) -> u64 {
        self.session.side(self.owner).word(word).map_or(0, |word| word.load(order))
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset.is_multiple_of(BLOCK), "records and payloads start at blocks");
        for (at, part) in into.chunks_mut(BLOCK).enumerate() {
            self.lane.0[offset / BLOCK + at].with(|block| {
                // SAFETY: the cell outlives the closure, and loom panics before calling it when another
                // thread may write the cell at the same time.
                let block: &Block = unsafe { &*block };
                part.copy_from_slice(&block[..part.len()]);
            });
        }
    }
}
