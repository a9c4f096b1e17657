//! Record headers in a lane of 4 KiB: the maximum length of a message, then tails, then the bytes of the lane.

use std::cell::Cell;

use bellwire_core::lane::{LaneTerms, Lanes};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::Kind;
use bellwire_core::{Geometry, Limit, PeerFault, PeerMemory, Word};

use crate::rules::{self, Place};
use crate::script::Script;

const SIZE: u64 = 4096;

/// Reads the records of a lane, and compares each record, or the detected violation, with a second implementation of the
/// rules.
pub fn run(input: &[u8]) {
    let script = Script::new(input);
    let limit = u64::from(script.u16()) % 4080;
    let tails: Vec<u64> = (0..script.byte()).map(|_| u64::from(script.u16())).collect();
    let mut lane = [0; SIZE as usize];
    let bytes = script.bytes(SIZE as usize);
    lane[..bytes.len()].copy_from_slice(bytes);
    let peer = StaticPeer { tail: Cell::new(0), lane };

    let size = Geometry::SMALLEST;
    let terms = LaneTerms { message: Limit::smaller(limit, limit), ..LaneTerms::fixed(size) };
    let mut lanes = Lanes::with_terms(LaneTerms::fixed(size), terms);
    let mut model = Model { head: 0, tail: 0, limit };
    for tail in tails {
        // A small lane needs only the low bytes of a tail; the highest bit of the input selects a tail with high bits.
        peer.tail.set(if tail & 0x8000 == 0 { model.tail + tail % (2 * SIZE) } else { tail << 49 });
        loop {
            let expected = model.next(&peer);
            let found = lanes.peek(&peer);
            let record = match (found, expected) {
                (Ok(Some(record)), Ok(Some(expected))) => {
                    assert_eq!(record.at(), model.head);
                    let valid = rules::Valid {
                        kind: record.kind,
                        more: record.more,
                        batch: record.batch,
                        status: record.status,
                        id: record.id,
                        len: record.len,
                    };
                    assert_eq!(valid, expected);
                    record
                }
                (Ok(None), Ok(None)) => break,
                (Err(found), Err(expected)) => return assert_eq!(found, expected),
                (found, expected) => panic!("{found:?} instead of {expected:?}"),
            };
            let from = (model.head % SIZE) as usize + 16;
            let mut payload = vec![0; record.len as usize + 8];
            lanes.copy(&peer, &record, &mut payload);
            assert_eq!(payload[..record.len as usize], lane[from..][..record.len as usize]);
            assert_eq!(payload[record.len as usize..], [0; 8], "no more than the record is copied");
            lanes.take(&record);
            model.head += 16 + u64::from(record.len).next_multiple_of(16);
        }
    }
}

/// A model of the reader.
struct Model {
    head: u64,
    tail: u64,
    limit: u64,
}

impl Model {
    /// The next record that is not a pad.
    fn next(&mut self, peer: &StaticPeer) -> Result<Option<rules::Valid>, PeerFault> {
        loop {
            if self.head == self.tail {
                let now = peer.tail.get();
                if now == self.tail {
                    return Ok(None);
                }
                self.tail = rules::tail(now, self.tail, self.head, SIZE)?;
            }
            let offset = self.head % SIZE;
            let bytes = peer.lane[offset as usize..].first_chunk().expect("a header always fits");
            let place = Place {
                at: self.head,
                published: self.tail - self.head,
                to_end: SIZE - offset,
                size: SIZE,
                limit: self.limit,
            };
            let valid = rules::header(bytes, place)?;
            if valid.kind != Kind::Pad {
                return Ok(Some(valid));
            }
            self.head += valid.size();
        }
    }
}

/// A peer whose lane does not change.
struct StaticPeer {
    tail: Cell<u64>,
    lane: [u8; SIZE as usize],
}

impl PeerMemory for StaticPeer {
    fn load(&self, word: Word, _: Ordering) -> u64 {
        if word == Word::Tail { self.tail.get() } else { 0 }
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.lane[offset..offset + into.len()]);
    }
}
