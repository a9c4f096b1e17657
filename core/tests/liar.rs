//! Memory whose loads a test chooses, and that checks every access.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use bellwire_core::lane::Epoch;
use bellwire_core::resize::{FollowError, Resource, Shortage};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{Header, MORE};
use bellwire_core::{Bell, Instant, OwnMemory, Park, PeerMemory, Port, Woken, Word};
use zerocopy::IntoBytes;

/// A peer's memory as a script has it. Every read is noted, and one outside the lane panics.
pub(crate) struct Liar {
    pub(crate) tail: Cell<u64>,
    pub(crate) head: Cell<u64>,
    pub(crate) want_data: Cell<u64>,
    pub(crate) want_space: Cell<u64>,
    pub(crate) lane: RefCell<Vec<u8>>,
    pub(crate) reads: RefCell<Vec<Range<usize>>>,
}

impl Liar {
    pub(crate) fn new(lane: u64) -> Self {
        Self {
            tail: Cell::new(0),
            head: Cell::new(0),
            want_data: Cell::new(u64::MAX),
            want_space: Cell::new(u64::MAX),
            lane: RefCell::new(vec![0; lane as usize]),
            reads: RefCell::new(Vec::new()),
        }
    }

    /// Puts a header at `at`, and moves the tail to `tail`.
    pub(crate) fn publish(&self, at: usize, header: Header, tail: u64) {
        self.put(at, header.as_bytes());
        self.tail.set(tail);
    }

    pub(crate) fn put(&self, at: usize, bytes: &[u8]) {
        self.lane.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Whether some byte was read more than once; forgets the reads.
    pub(crate) fn read_twice(&self) -> bool {
        let mut reads = self.reads.take();
        reads.sort_by_key(|range| range.start);
        reads.windows(2).any(|pair| pair[0].end > pair[1].start)
    }
}

impl PeerMemory for Liar {
    fn load(&self, word: Word, _: Ordering) -> u64 {
        match word {
            Word::Tail => self.tail.get(),
            Word::Head => self.head.get(),
            Word::WantData => self.want_data.get(),
            Word::WantSpace => self.want_space.get(),
            _ => 0,
        }
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        let range = offset..offset + into.len();
        into.copy_from_slice(&self.lane.borrow()[range.clone()]);
        self.reads.borrow_mut().push(range);
    }
}

/// One load of a [`Chaos`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said {
    /// Plausible values: a word that advanced a little, a header that could be valid. Sessions get far that way.
    pub(crate) plausible: bool,
    pub(crate) value: u64,
}

/// A peer's memory where every load and every byte is arbitrary, a new one each time.
pub(crate) struct Chaos {
    lane: Cell<usize>,
    says: RefCell<Box<dyn Iterator<Item = Said>>>,
    tail: Cell<u64>,
    head: Cell<u64>,
    epoch: Cell<u32>,
}

impl Chaos {
    /// Repeats these values.
    pub(crate) fn new(lane: u64, says: Vec<Said>) -> Self {
        assert!(!says.is_empty());
        Self {
            lane: Cell::new(lane as usize),
            says: RefCell::new(Box::new(says.into_iter().cycle())),
            tail: Cell::new(0),
            head: Cell::new(0),
            epoch: Cell::new(1),
        }
    }

    fn next(&self) -> Said {
        self.says.borrow_mut().next().unwrap()
    }
}

impl PeerMemory for Chaos {
    fn load(&self, word: Word, _: Ordering) -> u64 {
        let Said { plausible, value } = self.next();
        match word {
            Word::Tail | Word::Head if plausible => {
                let word = if word == Word::Tail { &self.tail } else { &self.head };
                word.set(word.get() + value % 12 * 16);
                word.get()
            }
            _ => value,
        }
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset + into.len() <= self.lane.get(), "a read outside the lane");
        let Said { plausible, value } = self.next();
        let [len, kind, status, id, ..] = value.to_le_bytes();
        if plausible && into.len() == 16 {
            let kind = 1 + kind % 8;
            let mut bytes =
                [len % 80, 0, 0, 0, kind, 0, status % 11, 0, id % 16, 0, 0, 0, 0, 0, 0, 0];
            if kind >= 4 && id % 8 != 0 {
                bytes[0] = 0;
            }
            if kind <= 2 && status % 4 == 0 {
                bytes[5] = MORE;
            }
            if kind == 4 && id % 8 != 0 {
                // A switch to the next epoch, or near it.
                let number = self.epoch.get() + u32::from(id % 8 != 1);
                let size = 1_u64 << (12 + len % 5);
                bytes[8..].copy_from_slice(&(u64::from(number) | size << 32).to_le_bytes());
            }
            into.copy_from_slice(&bytes);
            return;
        }
        for part in into.chunks_mut(8) {
            part.copy_from_slice(&self.next().value.to_le_bytes()[..part.len()]);
        }
    }
}

/// Own memory that checks that writes lie in the lane.
pub(crate) struct Notes {
    lane: Cell<usize>,
}

impl Notes {
    pub(crate) fn new(lane: u64) -> Self {
        Self { lane: Cell::new(lane as usize) }
    }
}

impl OwnMemory for Notes {
    fn store(&self, _: Word, _: u64, _: Ordering) {}

    fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.lane.get(), "a write outside the lane");
    }
}

/// A session's end whose peer is chaos. Every third allocation fails.
pub(crate) struct Harness {
    pub(crate) own: Notes,
    pub(crate) peer: Chaos,
    tries: u32,
}

impl Harness {
    pub(crate) fn new(own: Notes, peer: Chaos) -> Self {
        Self { own, peer, tries: 0 }
    }

    fn try_for(&mut self, epoch: Epoch) -> Result<(), Shortage> {
        self.tries += 1;
        let shortage = Shortage { resource: Resource::Memory, bytes: epoch.size.size(), code: 12 };
        if self.tries % 3 == 0 { Err(shortage) } else { Ok(()) }
    }
}

impl Port for Harness {
    type Own = Notes;
    type Peer = Chaos;

    fn own(&self) -> &Notes {
        &self.own
    }

    fn peer(&self) -> &Chaos {
        &self.peer
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::from(self.tries))
    }

    fn ring(&self, _: Bell) {}

    fn park(&mut self, _: Park) -> Woken {
        Woken::Rung
    }

    fn offer(&mut self, epoch: Epoch) -> Result<(), Shortage> {
        self.try_for(epoch)
    }

    fn adopt(&mut self, epoch: Epoch) {
        self.own.lane.set(epoch.size.size() as usize);
    }

    fn follow(&mut self, epoch: Epoch) -> Result<(), FollowError> {
        self.try_for(epoch)?;
        self.peer.lane.set(epoch.size.size() as usize);
        self.peer.epoch.set(epoch.number);
        Ok(())
    }
}
