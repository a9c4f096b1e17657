use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use std::sync::Mutex;

use crate::sync::{AtomicU64, Ordering};
use crate::wire::PAGE_SIZE;
use crate::{Geometry, OwnMemory, PeerMemory, Word};

/// What one end writes: a page of words, and a lane.
#[derive(Debug)]
struct Side {
    words: Box<[AtomicU64]>,
    lane: Mutex<Box<[u8]>>,
}

/// A side's memory, as its owner has it.
#[derive(Clone, Debug)]
pub struct SimOwn(Arc<Side>);

/// A side's memory, as its owner's peer has it: to read.
#[derive(Clone, Debug)]
pub struct SimPeer(Arc<Side>);

impl SimOwn {
    pub(super) fn new(lane: Geometry) -> Self {
        let size = usize::try_from(lane.size()).expect("at most 1 GiB");
        let words = (0..PAGE_SIZE / 8).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Side { words, lane: Mutex::new(vec![0; size].into()) }))
    }

    /// The same memory, to read.
    pub fn shared(&self) -> SimPeer {
        SimPeer(Arc::clone(&self.0))
    }
}

impl Side {
    fn word(&self, word: Word) -> &AtomicU64 {
        self.words.get(word.offset() / 8).expect("every word lies in the page")
    }
}

impl OwnMemory for SimOwn {
    fn store(&self, word: Word, value: u64, order: Ordering) {
        self.0.word(word).store(value, order);
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        let mut lane = self.0.lane.lock().expect("no panic while it is locked");
        let room = lane.get_mut(offset..).and_then(|lane| lane.get_mut(..bytes.len()));
        room.expect("a record lies in its lane").copy_from_slice(bytes);
    }
}

impl PeerMemory for SimPeer {
    fn load(&self, word: Word, order: Ordering) -> u64 {
        self.0.word(word).load(order)
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        let lane = self.0.lane.lock().expect("no panic while it is locked");
        let bytes = lane.get(offset..).and_then(|lane| lane.get(..into.len()));
        into.copy_from_slice(bytes.expect("a record lies in its lane"));
    }
}
