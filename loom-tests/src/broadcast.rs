use std::rc::Rc;

use bellwire_core::Geometry;
use bellwire_core::broadcast::{ReceiveMemory, TransmitMemory};
use bellwire_core::sync::{AtomicU64, Ordering};
use bellwire_core::wire::{BroadcastRing, BroadcastWord};

/// A broadcast ring of 128 bytes: four records of 32. Readers copy while the writer writes, so that its bytes are words
/// that both access as atomics, Relaxed.
#[derive(Clone)]
pub struct Broadcast(Rc<(Vec<AtomicU64>, Vec<AtomicU64>)>);

impl Broadcast {
    /// What such a ring is.
    pub const RING: BroadcastRing = BroadcastRing { number: 1, size: Geometry::tiny(128) };

    fn word(&self, word: BroadcastWord) -> &AtomicU64 {
        &self.0.0[(word.offset() - BroadcastWord::Oldest.offset()) / 8]
    }
}

impl TransmitMemory for Broadcast {
    fn store(&self, word: BroadcastWord, value: u64, order: Ordering) {
        self.word(word).store(value, order);
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        for (word, bytes) in self.0.1[offset / 8..].iter().zip(bytes.chunks(8)) {
            word.store(u64::from_le_bytes(bytes.try_into().unwrap()), Ordering::Relaxed);
        }
    }

    fn written(&self, offset: usize) -> u64 {
        self.0.1[offset / 8].load(Ordering::Relaxed)
    }
}

impl ReceiveMemory for Broadcast {
    fn load(&self, word: BroadcastWord, order: Ordering) -> u64 {
        self.word(word).load(order)
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        for (word, bytes) in self.0.1[offset / 8..].iter().zip(into.chunks_mut(8)) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
    }
}

/// An empty one.
impl Default for Broadcast {
    fn default() -> Self {
        let words = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self(Rc::new((words(4), words(128 / 8))))
    }
}
