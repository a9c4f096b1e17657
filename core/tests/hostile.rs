//! A peer that writes what no correct peer writes, as far as only core can drive it: `tests/linux/misbehaving` has each
//! violation by its name, and the fuzz target `consumer` arbitrary values.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use bellwire_core::call::{self, CallMachine};
use bellwire_core::lane::{LaneTerms, Lanes};
use bellwire_core::serve::{Incoming, ServeMachine};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{Header, Kind, Status};
use bellwire_core::{Geometry, Limits, OwnMemory, PeerFault, PeerMemory, Word};
use bellwire_sim::Step;
use zerocopy::IntoBytes;

use crate::drive::by_hand;
use crate::pair::{growing, size};
use crate::resize::driver_in;

const SIZE: u64 = 4096;

/// A peer's memory as a script has it. Every read is noted, and one outside the lane panics.
struct ScriptedPeer {
    tail: Cell<u64>,
    head: Cell<u64>,
    want_data: Cell<u64>,
    want_space: Cell<u64>,
    lane: RefCell<Vec<u8>>,
    reads: RefCell<Vec<Range<usize>>>,
}

impl ScriptedPeer {
    fn new(lane: u64) -> Self {
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
    fn publish(&self, at: usize, header: Header, tail: u64) {
        self.put(at, header.as_bytes());
        self.tail.set(tail);
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        self.lane.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Whether some byte was read more than once; forgets the reads.
    fn read_twice(&self) -> bool {
        let mut reads = self.reads.take();
        reads.sort_by_key(|range| range.start);
        reads.windows(2).any(|pair| pair[0].end > pair[1].start)
    }
}

impl PeerMemory for ScriptedPeer {
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

/// Own memory that nobody reads.
struct Ignored;

impl OwnMemory for Ignored {
    fn store(&self, _: Word, _: u64, _: Ordering) {}

    fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= SIZE as usize, "a write outside the lane");
    }
}

fn lanes() -> (Lanes, Ignored, ScriptedPeer) {
    let size = Geometry::new(SIZE).unwrap();
    (Lanes::new(size, size), Ignored, ScriptedPeer::new(SIZE))
}

fn header(kind: Kind, len: u32) -> Header {
    Header::new(kind, Status::Ok, 1, len)
}

fn take(lanes: &mut Lanes, peer: &ScriptedPeer) {
    let record = lanes.peek(peer).unwrap().unwrap();
    lanes.take(&record);
}

#[test]
fn arming_notices_a_violation_too() {
    let (mut lanes, own, peer) = lanes();
    peer.tail.set(7);
    assert_eq!(lanes.arm(&own, &peer, false), Err(PeerFault::Misaligned { at: 7 }));
    peer.tail.set(0);
    peer.head.set(16);
    assert!(lanes.arm(&own, &peer, false).is_ok(), "nobody polls at a head that nobody needs");
    let violation = PeerFault::HeadTooFar { head: 16, published: 0 };
    assert_eq!(lanes.arm(&own, &peer, true), Err(violation));
}

#[test]
fn a_head_beyond_the_published_tail() {
    let (mut lanes, own, peer) = lanes();
    lanes.push(&own, &peer, header(Kind::Request, 0), &[]).unwrap();
    peer.head.set(16);
    let violation = PeerFault::HeadTooFar { head: 16, published: 0 };
    assert_eq!(lanes.taken(&peer), Err(violation), "written is not published");
    let _ = lanes.commit(&own, &peer);
    assert_eq!(lanes.taken(&peer), Ok(16));
    peer.head.set(u64::MAX);
    assert_eq!(lanes.has_room(&peer), Err(PeerFault::HeadTooFar { head: u64::MAX, published: 16 }));
}

/// A lane of records and pads, and a tail as far ahead as possible: each pad follows a record that counts.
#[test]
fn a_pad_of_half_the_lane_or_more() {
    let violation = |at| Err(PeerFault::Unexpected { at, kind: Kind::Pad as u8 });
    for before in [0, 16, SIZE / 2 - 16, SIZE / 2] {
        let (mut lanes, _, peer) = lanes();
        peer.publish(0, header(Kind::Cancel, 0), SIZE);
        for at in (16..before as usize).step_by(16) {
            peer.put(at, &header(Kind::Cancel, 0).to_bytes());
        }
        peer.put(before as usize, &header(Kind::Pad, (SIZE - before) as u32 - 16).to_bytes());
        for _ in 0..before / 16 {
            take(&mut lanes, &peer);
        }
        assert_eq!(lanes.peek(&peer), violation(before));
    }
}

/// A peer that sends parts, or answers to no request, and never the awaited answer.
#[test]
fn answers_without_a_result_are_taken_a_few_at_a_time() {
    let (mut lanes, own, peer) = lanes();
    let mut calls = CallMachine::default();
    calls.submit(&mut lanes, &own, &peer, &[]).unwrap();
    for at in (0..SIZE as usize).step_by(32) {
        peer.put(at, &header(Kind::Response, 0).part(1, true).to_bytes());
    }
    peer.tail.set(SIZE);
    let mut buffer = Vec::new();
    for polls in 1..=2 {
        assert_eq!(calls.next_reply(&mut lanes, &own, &peer, &mut buffer), Ok(None));
        assert_eq!((buffer.len(), lanes.has_unread()), (polls * 64, polls == 1));
    }
}

/// Each byte is read once from the peer's lane, through either machine.
#[test]
fn no_byte_is_read_twice() {
    let (mut lanes, own, peer) = lanes();
    let mut machine = ServeMachine::new(8);
    peer.put(0, &Header::new(Kind::Request, Status::Ok, 1, 40).to_bytes());
    peer.put(64, &Header::new(Kind::Cancel, Status::Ok, 1, 0).to_bytes());
    peer.put(80, &Header::new(Kind::Request, Status::Ok, 2, 1).to_bytes());
    peer.tail.set(112);
    let mut buffer = Vec::new();
    for expected in [
        Some(Incoming::Request { id: 1, len: 40, batch: false }),
        Some(Incoming::Cancel { id: 1 }),
        Some(Incoming::Request { id: 2, len: 1, batch: false }),
        None,
    ] {
        // As the server polls: for a plain request first.
        let plain = machine.try_next(&mut lanes, &own, &peer, &mut buffer);
        let plain = plain.map(|(id, len)| Incoming::Request { id, len, batch: false });
        let next = plain.map_or_else(
            || machine.next(&mut lanes, &own, &peer, &mut buffer),
            |request| Ok(Some(request)),
        );
        assert_eq!(next, Ok(expected));
    }
    assert_eq!(peer.reads.borrow().len(), 5);
    assert!(!peer.read_twice());

    let (mut lanes, own, peer) = self::lanes();
    let mut calls = CallMachine::default();
    for _ in 0..2 {
        calls.submit(&mut lanes, &own, &peer, &[]).unwrap();
    }
    peer.put(0, &Header::new(Kind::Response, Status::Ok, 2, 40).to_bytes());
    peer.put(64, &Header::new(Kind::Response, Status::Ok, 1, 3).to_bytes());
    peer.tail.set(96);
    for (id, len) in [(2, 40), (1, 3)] {
        let incoming = calls.next_reply(&mut lanes, &own, &peer, &mut buffer);
        let Ok(Some(call::Incoming::Reply(reply))) = incoming else { panic!("{incoming:?}") };
        assert_eq!((reply.ticket.id(), reply.len), (id, len));
    }
    assert_eq!(peer.reads.borrow().len(), 4);
    assert!(!peer.read_twice());
}

#[test]
fn event_indexes_are_only_ever_compared() {
    for event_index in [0, 1, 15, 16, 4095, u64::MAX - 1, u64::MAX, 1 << 63] {
        let (mut lanes, own, peer) = lanes();
        peer.want_data.set(event_index);
        peer.want_space.set(event_index);
        lanes.push(&own, &peer, header(Kind::Request, 0), &[]).unwrap();
        let wake = lanes.commit(&own, &peer);
        assert_eq!((wake.data, wake.space), (event_index < 16, false), "event_index {event_index}");
    }
}

/// The lane would carry it.
#[test]
fn a_message_above_the_limit_that_was_declared() {
    let limits = Limits { max_message: 3000, ..Limits::default() };
    let terms = LaneTerms::agreed(size(8192), size(8192), &limits, &Limits::default());
    for kind in [Kind::Request, Kind::Response] {
        let mut lanes = Lanes::with_terms(terms, terms);
        let peer = ScriptedPeer::new(8192);
        peer.publish(0, Header::new(kind, Status::Ok, 1, 3000), 3024);
        let record = lanes.peek(&peer).unwrap().unwrap();
        lanes.take(&record);
        peer.publish(3024, Header::new(kind, Status::Ok, 1, 3001), 6048);
        let fault = PeerFault::MessageTooLong { at: 3024, len: 3001, limit: 3000 };
        assert_eq!(lanes.peek(&peer), Err(fault));
    }
}

/// A server that trims without being asked does no harm.
#[test]
fn an_unrequested_trim() {
    let peer = by_hand(|end, lanes| {
        lanes.push(end.own(), end.peer(), Header::new(Kind::Trim, Status::Ok, 0, 0), &[]).unwrap();
        end.wake(lanes.commit(end.own(), end.peer()));
        Step::Parked(None)
    });
    let mut driver = driver_in(growing(), peer);
    driver.port().run_peer();
    assert_eq!(driver.try_reply(&mut Vec::new()), Ok(None));
    assert_eq!(driver.ended(), None);
}
