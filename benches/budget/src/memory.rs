//! Both sides' memory of a session, for lanes that both ends of one thread work on: nothing but core's own code is counted.

use std::cell::{Cell, RefCell};

use bellwire_core::sync::Ordering;
use bellwire_core::{OwnMemory, PeerMemory, Word};

/// One side: its words and its lane.
pub struct Side {
    words: [Cell<u64>; 0x80],
    lane: RefCell<Vec<u8>>,
}

impl Side {
    pub fn new(lane: usize) -> Side {
        Side { words: [const { Cell::new(0) }; 0x80], lane: RefCell::new(vec![0; lane]) }
    }
}

impl OwnMemory for Side {
    #[inline]
    fn store(&self, word: Word, value: u64, _: Ordering) {
        self.words[word.offset() / 8].set(value);
    }

    #[inline]
    fn write(&self, offset: usize, bytes: &[u8]) {
        self.lane.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

impl PeerMemory for Side {
    #[inline]
    fn load(&self, word: Word, _: Ordering) -> u64 {
        self.words[word.offset() / 8].get()
    }

    #[inline]
    fn read(&self, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.lane.borrow()[offset..offset + into.len()]);
    }
}
