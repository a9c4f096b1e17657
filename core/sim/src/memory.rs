use std::fmt;
use std::sync::{Arc, Mutex};

use bellwire_core::sync::{AtomicU64, Ordering};
use bellwire_core::wire::{PAGE_SIZE, sample_offset};
use bellwire_core::{Geometry, OwnMemory, PeerMemory, Word};

/// The memory of a lane or an attachment: what a descriptor refers to between processes.
#[derive(Clone)]
pub struct SimMemory(Arc<Mutex<Box<[u8]>>>);

/// The memory that one end writes: a page of words, and a replaceable lane. Its peer reads the previous lane until it
/// follows.
#[derive(Debug)]
struct Side {
    words: Box<[AtomicU64]>,
    written: Mutex<SimMemory>,
    read: Mutex<SimMemory>,
}

/// A side's memory as its owner sees it.
#[derive(Clone, Debug)]
pub struct SimOwn(Arc<Side>);

/// A side's memory as its peer sees it, read-only.
#[derive(Clone, Debug)]
pub struct SimPeer(Arc<Side>);

impl SimMemory {
    /// Creates `len` zero bytes.
    pub fn new(len: u64) -> Self {
        let len = usize::try_from(len).expect("it fits the address space");
        Self(Arc::new(Mutex::new(vec![0; len].into())))
    }

    /// Creates whole pages that start with `bytes`.
    pub fn holding(bytes: &[u8]) -> Self {
        let memory = Self::new(bytes.len().next_multiple_of(PAGE_SIZE) as u64);
        memory.write(0, bytes);
        memory
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.0.lock().expect("no panic while it is locked").len() as u64
    }

    /// Returns its first `len` bytes.
    pub fn start(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.read(0, &mut bytes);
        bytes
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        let mut memory = self.0.lock().expect("no panic while it is locked");
        let room = memory.get_mut(offset..).and_then(|room| room.get_mut(..bytes.len()));
        room.expect("it lies in the memory").copy_from_slice(bytes);
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        let memory = self.0.lock().expect("no panic while it is locked");
        let bytes = memory.get(offset..).and_then(|bytes| bytes.get(..into.len()));
        into.copy_from_slice(bytes.expect("it lies in the memory"));
    }
}

impl SimOwn {
    pub(super) fn new(lane: Geometry) -> Self {
        let words = (0..PAGE_SIZE / 8).map(|_| AtomicU64::new(0)).collect();
        let lane = SimMemory::new(lane.size());
        let (written, read) = (Mutex::new(lane.clone()), Mutex::new(lane));
        Self(Arc::new(Side { words, written, read }))
    }

    /// Returns the same memory, read-only.
    pub fn shared(&self) -> SimPeer {
        SimPeer(Arc::clone(&self.0))
    }

    /// Returns the lane that is written now.
    pub fn lane(&self) -> SimMemory {
        self.0.written.lock().expect("no panic while it is locked").clone()
    }

    /// Writes this lane from now on.
    pub(super) fn adopt(&self, lane: SimMemory) {
        *self.0.written.lock().expect("no panic while it is locked") = lane;
    }
}

impl SimPeer {
    /// Returns a copy of the page, as an observer makes one.
    pub fn page(&self) -> [u8; PAGE_SIZE] {
        let mut page = [0; PAGE_SIZE];
        for (into, word) in page.chunks_exact_mut(8).zip(&*self.0.words) {
            into.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        page
    }

    /// Reads this lane from now on.
    pub(super) fn follow(&self, lane: SimMemory) {
        *self.0.read.lock().expect("no panic while it is locked") = lane;
    }
}

impl Side {
    fn word(&self, word: Word) -> &AtomicU64 {
        self.words.get(word.offset() / 8).expect("every word lies in the page")
    }

    fn sample(&self, slot: usize) -> &[AtomicU64] {
        let at = sample_offset(slot) / 8;
        self.words.get(at..at + 4).expect("the table lies in the page")
    }
}

impl OwnMemory for SimOwn {
    fn store(&self, word: Word, value: u64, order: Ordering) {
        self.0.word(word).store(value, order);
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.0.written.lock().expect("no panic while it is locked").write(offset, bytes);
    }

    fn stamp(&self, slot: usize, entry: [u64; 4]) {
        for (word, value) in self.0.sample(slot).iter().zip(entry) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn export_counter(&self, offset: usize, value: u64) {
        let word = self.0.words.get(offset / 8).expect("every counter lies in the page");
        word.store(value, Ordering::Relaxed);
    }
}

impl PeerMemory for SimPeer {
    fn load(&self, word: Word, order: Ordering) -> u64 {
        self.0.word(word).load(order)
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        self.0.read.lock().expect("no panic while it is locked").read(offset, into);
    }

    fn stamped(&self, slot: usize) -> [u64; 4] {
        let mut words = self.0.sample(slot).iter();
        [(); 4].map(|()| words.next().map_or(0, |word| word.load(Ordering::Relaxed)))
    }
}

impl fmt::Debug for SimMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimMemory({} bytes)", self.size())
    }
}
