//! Broadcast rings: a writer that never waits, and readers at any place behind it.

use std::cell::{Cell, RefCell};

use bellwire_core::broadcast::{ReceiveMemory, Received, Receiver, TransmitMemory, Transmitter};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{
    BROADCAST_HEADER, BroadcastHeader, BroadcastKind, BroadcastRecord, BroadcastRing,
    BroadcastWord, PageError,
};
use bellwire_core::{Geometry, PeerFault, ServiceName};
use proptest::prelude::*;
use zerocopy::IntoBytes;

const RING: BroadcastRing = BroadcastRing { number: 1, size: Geometry::SMALLEST };

/// A ring in one thread. Before a chosen access of a reader, a writer may go on.
struct Ring {
    words: [Cell<u64>; 4],
    bytes: RefCell<Vec<u8>>,
    writer: RefCell<Option<Transmitter>>,
    sent: Cell<u64>,
    accesses: Cell<u64>,
    /// How many records are written before each of which accesses.
    bursts: RefCell<Vec<(u64, u64)>>,
    longest: usize,
    /// Whether each record is a delta.
    deltas: bool,
}

/// The payload of a record: of a length and with bytes that its number decides.
fn payload(sequence: u64, longest: usize) -> Vec<u8> {
    let len = usize::try_from(sequence.wrapping_mul(0x9e37_79b9) >> 3).unwrap() % (longest + 1);
    (0..len).map(|at| (sequence as usize * 31 + at) as u8).collect()
}

impl Ring {
    fn new(longest: usize) -> Self {
        let ring = Self {
            words: Default::default(),
            bytes: RefCell::new(vec![0; RING.size.size() as usize]),
            writer: RefCell::default(),
            sent: Cell::new(0),
            accesses: Cell::new(0),
            bursts: RefCell::default(),
            longest,
            deltas: false,
        };
        let writer = Transmitter::new(RING, &ring);
        *ring.writer.borrow_mut() = Some(writer);
        ring
    }

    fn word(&self, word: BroadcastWord) -> &Cell<u64> {
        &self.words[(word.offset() - 0x80) / 8]
    }

    fn send(&self) {
        let sequence = self.sent.get() + 1;
        self.sent.set(sequence);
        let mut writer = self.writer.borrow_mut().take().unwrap();
        let payload = payload(sequence, self.longest);
        if self.deltas {
            writer.send_delta(self, sequence, &payload).unwrap();
        } else {
            writer.send(self, sequence, &payload).unwrap();
        }
        *self.writer.borrow_mut() = Some(writer);
    }

    fn send_many(&self, records: u64) {
        (0..records).for_each(|_| self.send());
    }

    fn overwrite(&self, at: u64, bytes: &[u8]) {
        let at = at as usize;
        self.bytes.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn interfere(&self) {
        let access = self.accesses.get();
        self.accesses.set(access + 1);
        let burst = self.bursts.borrow().iter().find(|(at, _)| *at == access).copied();
        if let Some((_, records)) = burst {
            self.send_many(records);
        }
    }

    #[track_caller]
    fn is_right(&self, sequence: u64, copy: &[u8]) {
        assert_eq!(copy, payload(sequence, self.longest), "record {sequence}");
    }
}

impl TransmitMemory for Ring {
    fn store(&self, word: BroadcastWord, value: u64, _: Ordering) {
        self.word(word).set(value);
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.overwrite(offset as u64, bytes);
    }

    fn written(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.bytes.borrow()[offset..offset + 8].try_into().unwrap())
    }
}

impl ReceiveMemory for Ring {
    fn load(&self, word: BroadcastWord, _: Ordering) -> u64 {
        self.interfere();
        self.word(word).get()
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        // Half of a copy is made before the writer goes on, half after.
        let (one, other) = into.split_at_mut(into.len() / 2);
        let middle = offset + one.len();
        one.copy_from_slice(&self.bytes.borrow()[offset..middle]);
        self.interfere();
        other.copy_from_slice(&self.bytes.borrow()[middle..middle + other.len()]);
    }
}

#[test]
fn a_reader_that_falls_behind_resumes_at_the_oldest_record_and_counts_the_missed_ones() {
    for longest in [0, 40, 1008] {
        let ring = Ring::new(longest);
        let mut reader = Receiver::new(RING, 1);
        let (mut got, mut missed) = (0, 0);
        let mut copy = Vec::new();
        for burst in [3, 400, 1, 1_000, 7, 90] {
            ring.send_many(burst);
            let before = got;
            while let Received::Record { sequence, len, missed: gone } =
                reader.try_next(&ring, &mut copy).unwrap()
            {
                ring.is_right(sequence, &copy[..len]);
                got += 1;
                missed += gone;
                assert_eq!(got + missed, sequence);
            }
            assert_eq!(got + missed, ring.sent.get(), "none is forgotten");
            let kept = got - before;
            // A ring of 4 KiB less what a record and a pad may give up early.
            let space = BroadcastRecord::space(longest as u32);
            assert!(kept >= burst.min((4096 - 1024 - space) / space), "{kept} of {burst}");
        }
    }
}

#[test]
fn the_newest_is_found_at_once_and_only_once() {
    let ring = Ring::new(700);
    let mut reader = Receiver::new(RING, 1);
    let mut copy = Vec::new();
    assert_eq!(reader.newest(&ring, &mut copy), Ok(Received::Nothing));
    for burst in [1, 5, 200] {
        ring.send_many(burst);
        let sequence = ring.sent.get();
        let len = payload(sequence, 700).len();
        let record = Received::Record { sequence, len, missed: burst - 1 };
        assert_eq!(reader.newest(&ring, &mut copy), Ok(record));
        ring.is_right(sequence, &copy[..len]);
        assert_eq!(reader.newest(&ring, &mut copy), Ok(Received::Nothing));
    }
}

#[test]
fn a_writer_that_dies_in_the_middle_of_a_record_leaves_the_others_readable() {
    let ring = Ring::new(100);
    ring.send_many(200);
    let mut copy = Vec::new();
    // It announced a record over the oldest ones, wrote some of it, and died.
    let tail = ring.word(BroadcastWord::Tail).get();
    ring.word(BroadcastWord::Intent).set(tail + 512);
    ring.overwrite(tail % 4096, &[0xee; 100]);
    let mut reader = Receiver::from_oldest(RING);
    let mut got = 0;
    loop {
        match reader.try_next(&ring, &mut copy).unwrap() {
            Received::Record { sequence, len, .. } => {
                ring.is_right(sequence, &copy[..len]);
                got += 1;
            }
            Received::Nothing => break,
            Received::Overrun => {}
            Received::Next { .. } => panic!("there is no other ring"),
        }
    }
    assert!(got > 0, "at least the newest");
}

/// What a reader says of a ring in which `corrupt` changed something.
#[track_caller]
fn fault(corrupt: impl FnOnce(&Ring)) -> PeerFault {
    let ring = Ring::new(0);
    ring.send_many(2);
    corrupt(&ring);
    let mut reader = Receiver::new(RING, 1);
    let mut copy = Vec::new();
    for _ in 0..3 {
        if let Err(fault) = reader.try_next(&ring, &mut copy) {
            return fault;
        }
    }
    panic!("nothing was wrong")
}

fn header(kind: u32, sequence: u64, len: u32) -> Vec<u8> {
    let mut header = BroadcastRecord::new(BroadcastKind::Data, sequence, len);
    header.kind = kind.into();
    header.as_bytes().to_vec()
}

/// Snapshots of 100 bytes and, ahead of each of those in `has_delta`, its delta: its number.
fn snapshots(count: u64, has_delta: impl Fn(u64) -> bool, whole: impl Fn(u64) -> bool) -> Ring {
    let ring = Ring::new(0);
    let mut writer = ring.writer.borrow_mut().take().unwrap();
    for sequence in 1..=count {
        if has_delta(sequence) {
            writer.send_delta(&ring, sequence, &sequence.to_le_bytes()).unwrap();
        }
        if whole(sequence) {
            writer.send(&ring, sequence, &[sequence as u8; 100]).unwrap();
        }
    }
    *ring.writer.borrow_mut() = Some(writer);
    ring
}

#[test]
fn a_reader_of_snapshots_follows_their_deltas() {
    for in_ring in [true, false] {
        let ring = snapshots(20, |sequence| sequence != 11, |_| in_ring);
        let (mut reader, mut copy) = (Receiver::new(RING, 1), Vec::new());
        let mut delta = |sequence| {
            let found = reader.delta(&ring, sequence, &mut copy).unwrap();
            let Received::Record { sequence: taken, len, .. } = found else { return found };
            assert_eq!((taken, &copy[..len]), (sequence, &sequence.to_le_bytes()[..]));
            found
        };
        for sequence in [4, 5, 6, 10] {
            assert!(matches!(delta(sequence), Received::Record { .. }), "{sequence}");
        }
        for sequence in [6, 11, 11] {
            assert_eq!(delta(sequence), Received::Nothing, "{sequence} has no delta, or is older");
        }
        assert!(matches!(delta(12), Received::Record { .. }));
        assert!(matches!(delta(20), Received::Record { .. }));
        let newest = reader.newest(&ring, &mut copy).unwrap();
        assert_eq!(matches!(newest, Received::Record { sequence: 20, .. }), in_ring, "{newest:?}");
        assert_eq!(reader.delta(&ring, 21, &mut copy), Ok(Received::Nothing));
    }
}

#[test]
fn a_reader_that_is_overrun_finds_the_deltas_that_are_kept() {
    let ring = snapshots(1_000, |_| true, |_| true);
    let (mut reader, mut copy) = (Receiver::new(RING, 1), Vec::new());
    assert_eq!(reader.delta(&ring, 2, &mut copy), Ok(Received::Nothing), "overwritten");
    let record = |found| matches!(found, Ok(Received::Record { .. }));
    assert!(record(reader.delta(&ring, 999, &mut copy)));
    assert!(record(reader.delta(&ring, 1_000, &mut copy)));
    // One that took the newest goes on behind it.
    let mut late = Receiver::new(RING, 1);
    assert!(record(late.newest(&ring, &mut copy)));
    assert_eq!(late.delta(&ring, 1_001, &mut copy), Ok(Received::Nothing));
}

#[test]
fn one_call_skips_a_bounded_number_of_records_and_the_next_continues_there() {
    let ring = BroadcastRing { size: Geometry::new(1 << 18).unwrap(), ..RING };
    let memory = Ring { bytes: RefCell::new(vec![0; 1 << 18]), ..Ring::new(0) };
    let mut writer = Transmitter::new(ring, &memory);
    (1..=10_000).for_each(|sequence| writer.send_delta(&memory, sequence, &[]).unwrap());
    let (mut reader, mut copy) = (Receiver::new(ring, 1), Vec::new());
    for _ in 0..2 {
        assert_eq!(reader.delta(&memory, 10_000, &mut copy), Ok(Received::Overrun));
    }
    assert!(matches!(reader.delta(&memory, 10_000, &mut copy), Ok(Received::Record { .. })));
}

#[test]
fn deltas_that_break_a_rule_are_faults() {
    let fault = |corrupt: &dyn Fn(&Ring)| {
        let ring = snapshots(2, |_| true, |_| false);
        corrupt(&ring);
        Receiver::new(RING, 1).delta(&ring, 2, &mut Vec::new()).unwrap_err()
    };
    let first = |bytes: Vec<u8>| move |ring: &Ring| ring.overwrite(0, &bytes);
    assert!(matches!(fault(&first(header(9, 1, 0))), PeerFault::UnknownKind { kind: 9, .. }));
    assert!(matches!(fault(&first(header(4, 1, 4_000))), PeerFault::RecordTooLong { .. }));
    assert!(matches!(fault(&first(header(4, 0, 8))), PeerFault::ReusedId { id: 0, last: 1 }));
    let tail = |ring: &Ring| ring.word(BroadcastWord::Tail).set(24);
    assert_eq!(fault(&tail), PeerFault::Misaligned { at: 24 });
    // Whoever takes every record takes events.
    let ring = snapshots(1, |_| true, |_| false);
    let unexpected = Err(PeerFault::Unexpected { at: 0, kind: 4 });
    assert_eq!(Receiver::new(RING, 1).try_next(&ring, &mut Vec::new()), unexpected);
    ring.word(BroadcastWord::Latest).set(0);
    assert_eq!(Receiver::new(RING, 1).newest(&ring, &mut Vec::new()), unexpected);
}

#[test]
fn a_number_that_came_before_is_refused_by_a_reader_that_skips_too() {
    let ring = Ring::new(0);
    ring.send_many(3);
    let mut reader = Receiver::new(RING, 1);
    assert_eq!(reader.skip_to_now(&ring), Ok(true));
    ring.send_many(1);
    ring.overwrite(48, &header(1, 3, 0));
    assert_eq!(reader.skip_to_now(&ring), Err(PeerFault::ReusedId { id: 3, last: 4 }));
}

#[test]
fn each_rule_that_a_publisher_breaks_has_its_fault() {
    let tail = |to: u64| move |ring: &Ring| ring.word(BroadcastWord::Tail).set(to);
    let first = |bytes: Vec<u8>| move |ring: &Ring| ring.overwrite(0, &bytes);
    assert_eq!(fault(tail(40)), PeerFault::Misaligned { at: 40 });
    assert!(matches!(fault(first(header(9, 1, 0))), PeerFault::UnknownKind { kind: 9, .. }));
    assert!(matches!(fault(first(header(1, 1, 17))), PeerFault::RecordTooLong { len: 17, .. }));
    assert!(matches!(fault(first(header(1, 1, u32::MAX))), PeerFault::RecordTooLong { .. }));
    assert!(matches!(fault(first(header(2, 0, 0))), PeerFault::RecordTooLong { .. }));
    assert!(matches!(fault(first(header(3, 2, 16))), PeerFault::RecordTooLong { .. }));
    assert!(matches!(fault(first(header(3, 1 << 40, 0))), PeerFault::Switch { at: 0, .. }));
    assert_eq!(fault(first(header(1, 0, 0))), PeerFault::ReusedId { id: 0, last: 1 });
    let again = fault(|ring| ring.overwrite(16, &header(1, 1, 0)));
    assert_eq!(again, PeerFault::ReusedId { id: 1, last: 2 });
    assert!(matches!(
        fault(first(header(1, u64::MAX, 0))),
        PeerFault::ReusedId { id: u64::MAX, .. }
    ));
    let ring = Ring::new(0);
    ring.send_many(2);
    let mut reader = Receiver::new(RING, 1);
    reader.try_next(&ring, &mut Vec::new()).unwrap();
    ring.word(BroadcastWord::Tail).set(16);
    let went_back = PeerFault::TailWentBack { seen: 32, now: 16 };
    assert_eq!(reader.try_next(&ring, &mut Vec::new()), Err(went_back));
}

#[test]
fn a_newest_record_beyond_the_tail_is_a_fault() {
    let ring = Ring::new(0);
    ring.send();
    ring.word(BroadcastWord::Latest).set(64);
    let went_back = PeerFault::TailWentBack { seen: 64, now: 16 };
    assert_eq!(Receiver::new(RING, 1).newest(&ring, &mut Vec::new()), Err(went_back));
}

#[test]
fn a_ring_header_is_checked_against_its_announcement() {
    let name = ServiceName::constant("news");
    let header = BroadcastHeader::new(RING, 9, name);
    assert_eq!(header.check(RING, name), Ok(9));
    let other = BroadcastRing { number: 2, ..RING };
    let mismatch = |field| Err(PageError::Mismatch { field });
    assert_eq!(header.check(other, name), mismatch("ring number"));
    let other = BroadcastRing { size: Geometry::DEFAULT, ..RING };
    assert_eq!(header.check(other, name), mismatch("ring size"));
    assert_eq!(header.check(RING, ServiceName::constant("olds")), mismatch("service name"));
    for ring in [RING, BroadcastRing { number: u32::MAX, size: Geometry::LARGEST }] {
        assert_eq!(BroadcastRing::from_wire(ring.to_wire()), Some(ring));
    }
    for word in [0, 4096 << 32, 1, 1 | 4095 << 32] {
        assert_eq!(BroadcastRing::from_wire(word), None);
    }
    assert_eq!(BROADCAST_HEADER, 16);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever the writer does between any two accesses, a delta that a reader takes is the one that it asked for, whole.
    #[test]
    fn a_delta_that_is_overwritten_while_it_is_copied_is_not_taken(
        longest in 0_usize..1_008, before in 1_u64..30, asked in 1_u64..40, at in 0_u64..40, burst in 0_u64..60,
    ) {
        let ring = Ring { deltas: true, ..Ring::new(longest) };
        let mut reader = Receiver::new(RING, 1);
        let mut copy = Vec::new();
        ring.send_many(before);
        ring.accesses.set(0);
        *ring.bursts.borrow_mut() = vec![(at, burst)];
        if let Received::Record { sequence, len, .. } = reader.delta(&ring, asked, &mut copy).unwrap() {
            prop_assert_eq!(sequence, asked);
            ring.is_right(sequence, &copy[..len]);
        }
    }

    /// Whatever the writer does between any two accesses of a reader, a record that the reader takes is one that was
    /// written, whole, and none is unaccounted for.
    #[test]
    fn a_writer_in_between_is_noticed(
        longest in 0_usize..1_008,
        rounds in prop::collection::vec((0_u64..60, 0_u64..12, 0_u64..300, any::<bool>()), 1..8),
    ) {
        let ring = Ring::new(longest);
        let mut reader = Receiver::new(RING, 1);
        let mut copy = Vec::new();
        let mut expected = 1;
        for (before, at, burst, newest) in rounds {
            ring.send_many(before);
            ring.accesses.set(0);
            *ring.bursts.borrow_mut() = vec![(at, burst), (at + 3, burst / 2)];
            let found = if newest {
                reader.newest(&ring, &mut copy)
            } else {
                reader.try_next(&ring, &mut copy)
            };
            ring.bursts.borrow_mut().clear();
            match found.unwrap() {
                Received::Record { sequence, len, missed } => {
                    ring.is_right(sequence, &copy[..len]);
                    prop_assert_eq!(sequence, expected + missed);
                    expected = sequence + 1;
                }
                Received::Nothing | Received::Overrun => {}
                Received::Next { .. } => prop_assert!(false, "the ring did not end"),
            }
        }
        while let Received::Record { sequence, len, missed } =
            reader.try_next(&ring, &mut copy).unwrap()
        {
            ring.is_right(sequence, &copy[..len]);
            prop_assert_eq!(sequence, expected + missed);
            expected = sequence + 1;
        }
        prop_assert_eq!(expected, ring.sent.get() + 1);
    }
}
