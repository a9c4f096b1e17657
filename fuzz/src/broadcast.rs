//! A reader of a broadcast ring whose publisher may write anything at any time: each load takes its value from the input.

use std::cell::{Cell, RefCell};

use bellwire_core::broadcast::{ReceiveMemory, Received, Receiver};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{BroadcastKind, BroadcastRecord, BroadcastRing, BroadcastWord};
use bellwire_core::{Geometry, PeerFault};
use zerocopy::FromBytes;

use crate::script::Script;

/// The most records that one call copies, and the most headers: of a pad and of what follows it.
const MOST: usize = 3;

/// The most headers and payloads that a call copies which looks for a delta.
const PASSED: usize = 4097;

/// Calls a reader while its memory changes. What it takes is what it copied last, of the length and number in the header
/// that it copied, and it was not overwritten as far as the publisher said; it reads nothing outside the ring, and no more
/// than a few records a call.
pub fn run(input: &[u8]) {
    let script = Script::new(input);
    let size = Geometry::new(4096 << (script.byte() % 3)).expect("a power of two");
    let ring = BroadcastRing { number: 1, size };
    let first = script.byte().into();
    let mut reader = match script.byte() % 3 {
        0 => Receiver::new(ring, first),
        1 => Receiver::from_oldest(ring),
        _ => Receiver::new(ring, first).expecting(script.u64()),
    };
    let (copies, intent, follows) = (RefCell::default(), Cell::new(0), Cell::new(false));
    let memory = Memory { script: &script, size, copies, intent, follows };
    let mut buffer = Vec::new();
    let mut last = None;
    while !script.is_over() {
        memory.copies.borrow_mut().clear();
        memory.follows.set(false);
        let expected = reader.next_sequence();
        let found = match script.byte() % 5 {
            4 => {
                memory.follows.set(true);
                let wanted = script.u16().into();
                match reader.delta(&memory, wanted, &mut buffer) {
                    Ok(Received::Record { sequence, len, .. }) => {
                        memory.has_given(sequence, &buffer[..len], BroadcastKind::Delta);
                        assert_eq!((sequence, reader.next_sequence()), (wanted, Some(wanted)));
                        last = None;
                        Ok(Received::Nothing)
                    }
                    found => found,
                }
            }
            0 => reader.newest(&memory, &mut buffer),
            1 => reader.skip_to_now(&memory).map(|_| Received::Nothing),
            _ => reader.try_next(&memory, &mut buffer),
        };
        match found {
            Err(fault) => return assert!(is_of_a_ring(&fault), "{fault:?}"),
            Ok(Received::Record { sequence, len, missed }) => {
                memory.has_given(sequence, &buffer[..len], BroadcastKind::Data);
                if let Some(expected) = expected {
                    assert_eq!(sequence, expected + missed);
                }
                assert!(last.is_none_or(|last| sequence > last) || expected.is_none());
                assert_eq!(reader.next_sequence(), Some(sequence + 1));
                last = Some(sequence);
            }
            Ok(Received::Next { number }) => {
                memory.has_given(number.into(), &[], BroadcastKind::Next);
            }
            Ok(Received::Nothing | Received::Overrun) => {}
        }
        let most = if memory.follows.get() { PASSED } else { 3 * MOST };
        assert!(memory.copies.borrow().len() <= most, "{:?}", memory.copies.borrow().len());
    }
}

fn is_of_a_ring(fault: &PeerFault) -> bool {
    matches!(
        fault,
        PeerFault::TailWentBack { .. }
            | PeerFault::Misaligned { .. }
            | PeerFault::RecordTooLong { .. }
            | PeerFault::UnknownKind { .. }
            | PeerFault::Unexpected { .. }
            | PeerFault::Switch { .. }
            | PeerFault::ReusedId { .. }
    )
}

/// A ring without memory: whatever is loaded comes from the input.
struct Memory<'a> {
    script: &'a Script<'a>,
    size: Geometry,
    /// What was copied during this call: where, and what.
    copies: RefCell<Vec<(usize, Vec<u8>)>>,
    intent: Cell<u64>,
    /// Whether this call looks for a delta.
    follows: Cell<bool>,
}

impl Memory<'_> {
    /// The last two copies are the header and the payload of this record, and Intent was loaded after both.
    fn has_given(&self, sequence: u64, payload: &[u8], kind: BroadcastKind) {
        let copies = self.copies.borrow();
        let [.., (at, header), (from, copied)] = &copies[..] else { panic!("nothing was copied") };
        let header = BroadcastRecord::read_from_bytes(header).expect("a header");
        assert_eq!((header.sequence.get(), header.kind.get()), (sequence, kind as u32));
        assert_eq!(header.len.get() as usize, payload.len());
        assert_eq!((*from, &copied[..]), (at + 16, payload));
        assert_ne!(self.intent.get(), u64::MAX, "it did not look whether it was overwritten");
    }
}

impl ReceiveMemory for Memory<'_> {
    fn load(&self, word: BroadcastWord, _: Ordering) -> u64 {
        // Mostly possible positions: few others get further than the first check.
        let value = match self.script.byte() % 8 {
            0 => self.script.u64(),
            1 => u64::MAX,
            _ => u64::from(self.script.u16()) * 16,
        };
        if word == BroadcastWord::Intent {
            self.intent.set(value.min(u64::MAX - 1));
        }
        value
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset.is_multiple_of(16));
        assert!(offset + into.len() <= self.size.size() as usize, "outside the ring");
        if into.len() == 16 && self.script.byte() & 3 != 0 {
            // A header that may be right.
            let kind = [1, 1, 1, 2, 3, 4, 4][usize::from(self.script.byte() % 7)];
            let room = (self.size.size() as usize - offset - 16) as u32;
            let len = if kind == 2 { room } else { u32::from(self.script.u16() % 64) };
            into[..4].copy_from_slice(&len.to_le_bytes());
            into[4..8].copy_from_slice(&u32::to_le_bytes(kind));
            into[8..].copy_from_slice(&u64::from(self.script.u16()).to_le_bytes());
        } else {
            let given = self.script.bytes(into.len());
            into.fill(0);
            into[..given.len()].copy_from_slice(given);
        }
        self.intent.set(u64::MAX);
        self.copies.borrow_mut().push((offset, into.to_vec()));
    }
}
