//! A peer that writes what no correct peer writes: each protocol violation by its name, and then arbitrary values.

use bellwire_core::call::{Arrival, CallMachine, Outgoing, SubmitError};
use bellwire_core::lane::{LaneTerms, Lanes, PushError};
use bellwire_core::resize::{self, FollowError, ResizeError};
use bellwire_core::serve::{Incoming, RespondError, ServeMachine};
use bellwire_core::wire::{CloseReason, Header, Kind, Status};
use bellwire_core::{Geometry, Instant, Limits, PeerFault, Port};
use bellwire_sim::Step;
use proptest::prelude::*;

use crate::drive::by_hand;
use crate::liar::{Chaos, Harness, Liar, Notes, Said};
use crate::pair::{growing, size};
use crate::resize::drive_in;

const SIZE: u64 = 4096;
/// The size that lanes grow to under chaos.
const MOST: u64 = 32_768;

fn lanes() -> (Lanes, Notes, Liar) {
    let size = Geometry::new(SIZE).unwrap();
    (Lanes::new(size, size), Notes::new(SIZE), Liar::new(SIZE))
}

fn header(kind: Kind, len: u32) -> Header {
    Header::new(kind, Status::Ok, 1, len)
}

fn take(lanes: &mut Lanes, liar: &Liar) {
    let record = lanes.peek(liar).unwrap().unwrap();
    lanes.take(&record);
}

#[test]
fn a_lie_is_seen_by_whoever_arms_too() {
    let (mut lanes, own, liar) = lanes();
    liar.tail.set(7);
    assert_eq!(lanes.arm(&own, &liar, false), Err(PeerFault::Misaligned { at: 7 }));
    liar.tail.set(0);
    liar.head.set(16);
    assert!(lanes.arm(&own, &liar, false).is_ok(), "nobody looks at a head that nobody needs");
    let lie = PeerFault::HeadTooFar { head: 16, published: 0 };
    assert_eq!(lanes.arm(&own, &liar, true), Err(lie));
}

#[test]
fn a_head_past_what_was_published() {
    let (mut lanes, own, liar) = lanes();
    lanes.push(&own, &liar, header(Kind::Request, 0), &[]).unwrap();
    liar.head.set(16);
    let lie = PeerFault::HeadTooFar { head: 16, published: 0 };
    assert_eq!(lanes.taken(&liar), Err(lie), "written is not published");
    let _ = lanes.commit(&own, &liar);
    assert_eq!(lanes.taken(&liar), Ok(16));
    liar.head.set(u64::MAX);
    assert_eq!(lanes.has_room(&liar), Err(PeerFault::HeadTooFar { head: u64::MAX, published: 16 }));
}

/// A lane of records and pads, and a tail as far ahead as possible: each pad follows a record that counts.
#[test]
fn a_pad_of_half_the_lane_or_more() {
    let lie = |at| Err(PeerFault::Unexpected { at, kind: Kind::Pad as u8 });
    for before in [0, 16, SIZE / 2 - 16, SIZE / 2] {
        let (mut lanes, _, liar) = lanes();
        liar.publish(0, header(Kind::Cancel, 0), SIZE);
        for at in (16..before as usize).step_by(16) {
            liar.put(at, &header(Kind::Cancel, 0).to_bytes());
        }
        liar.put(before as usize, &header(Kind::Pad, (SIZE - before) as u32 - 16).to_bytes());
        for _ in 0..before / 16 {
            take(&mut lanes, &liar);
        }
        assert_eq!(lanes.peek(&liar), lie(before));
    }
}

/// A peer that sends parts, or answers to no request, and never the awaited answer.
#[test]
fn answers_of_which_there_is_nothing_to_tell_are_taken_a_few_at_a_time() {
    let (mut lanes, own, liar) = lanes();
    let mut calls = CallMachine::new();
    calls.submit(&mut lanes, &own, &liar, &[]).unwrap();
    for at in (0..SIZE as usize).step_by(32) {
        liar.put(at, &header(Kind::Response, 0).part(1, true).to_bytes());
    }
    liar.tail.set(SIZE);
    let mut buffer = Vec::new();
    for looks in 1..=2 {
        assert_eq!(calls.next_reply(&mut lanes, &own, &liar, &mut buffer), Ok(None));
        assert_eq!((buffer.len(), lanes.has_untaken()), (looks * 64, looks == 1));
    }
}

/// Each byte is read once from the peer's lane, through either machine.
#[test]
fn no_byte_is_read_twice() {
    let (mut lanes, own, liar) = lanes();
    let mut machine = ServeMachine::new(8);
    liar.put(0, &Header::new(Kind::Request, Status::Ok, 1, 40).to_bytes());
    liar.put(64, &Header::new(Kind::Cancel, Status::Ok, 1, 0).to_bytes());
    liar.put(80, &Header::new(Kind::Request, Status::Ok, 2, 1).to_bytes());
    liar.tail.set(112);
    let mut buffer = Vec::new();
    for expected in [
        Some(Incoming::Request { id: 1, len: 40, batch: false }),
        Some(Incoming::Cancel { id: 1 }),
        Some(Incoming::Request { id: 2, len: 1, batch: false }),
        None,
    ] {
        // As the server looks: for a plain request first.
        let plain = machine.try_next(&mut lanes, &own, &liar, &mut buffer);
        let plain = plain.map(|(id, len)| Incoming::Request { id, len, batch: false });
        let next = plain.map_or_else(
            || machine.next(&mut lanes, &own, &liar, &mut buffer),
            |request| Ok(Some(request)),
        );
        assert_eq!(next, Ok(expected));
    }
    assert_eq!(liar.reads.borrow().len(), 5);
    assert!(!liar.read_twice());

    let (mut lanes, own, liar) = self::lanes();
    let mut calls = CallMachine::new();
    for _ in 0..2 {
        calls.submit(&mut lanes, &own, &liar, &[]).unwrap();
    }
    liar.put(0, &Header::new(Kind::Response, Status::Ok, 2, 40).to_bytes());
    liar.put(64, &Header::new(Kind::Response, Status::Ok, 1, 3).to_bytes());
    liar.tail.set(96);
    for (id, len) in [(2, 40), (1, 3)] {
        let arrival = calls.next_reply(&mut lanes, &own, &liar, &mut buffer);
        let Ok(Some(Arrival::Reply(reply))) = arrival else { panic!("{arrival:?}") };
        assert_eq!((reply.ticket.id(), reply.len), (id, len));
    }
    assert_eq!(liar.reads.borrow().len(), 4);
    assert!(!liar.read_twice());
}

#[test]
fn event_indexes_are_only_ever_compared() {
    for event_index in [0, 1, 15, 16, 4095, u64::MAX - 1, u64::MAX, 1 << 63] {
        let (mut lanes, own, liar) = lanes();
        liar.want_data.set(event_index);
        liar.want_space.set(event_index);
        lanes.push(&own, &liar, header(Kind::Request, 0), &[]).unwrap();
        let wake = lanes.commit(&own, &liar);
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
        let liar = Liar::new(8192);
        liar.publish(0, Header::new(kind, Status::Ok, 1, 3000), 3024);
        let record = lanes.peek(&liar).unwrap().unwrap();
        lanes.take(&record);
        liar.publish(3024, Header::new(kind, Status::Ok, 1, 3001), 6048);
        let fault = PeerFault::MessageTooLong { at: 3024, len: 3001, limit: 3000 };
        assert_eq!(lanes.peek(&liar), Err(fault));
    }
}

/// A server that trims without being asked does no harm.
#[test]
fn a_trim_that_nobody_asked_for() {
    let peer = by_hand(|end, lanes| {
        lanes.push(end.own(), end.peer(), Header::new(Kind::Trim, Status::Ok, 0, 0), &[]).unwrap();
        end.wake(lanes.commit(end.own(), end.peer()));
        Step::Parked(None)
    });
    let mut drive = drive_in(growing(), peer);
    drive.port().run_peer();
    assert_eq!(drive.try_reply(&mut Vec::new()), Ok(None));
    assert_eq!(drive.ended(), None);
}

/// Small, near what was seen, near the largest, and anything: half of them on the grid.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0_u64..600).prop_map(|blocks| blocks * 16),
        2 => 0_u64..9000,
        1 => (0_u64..64).prop_map(|below| u64::MAX - below),
        1 => any::<u64>(),
        // Headers: a length, a kind, no flags.
        4 => (0_u64..200, 0_u64..9).prop_map(|(len, kind)| len | kind << 32),
        1 => (any::<u32>(), 0_u64..9).prop_map(|(len, kind)| u64::from(len) | kind << 32),
        3 => 0_u64..8,
    ]
}

fn said() -> impl Strategy<Value = Said> {
    let plausible = proptest::bool::weighted(0.85);
    let said =
        |(plausible, lie, value)| Said { plausible, value: if plausible { value } else { lie } };
    (plausible, value(), any::<u64>()).prop_map(said)
}

#[derive(Clone, Debug)]
enum Op {
    Peek(usize),
    Push(usize),
    Commit,
    Arm(bool),
    Look,
    Reply,
    Submit,
    Post,
    Abandon(u8),
    Next,
    Respond(u8),
    Flush,
    Close,
    Grow(u32),
    Shrink,
    Maintain,
    Attach(u64),
    SubmitPart(usize),
    BreakOff,
    Parts(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (0_usize..5000).prop_map(Op::Peek),
        (0_usize..2500).prop_map(Op::Push),
        Just(Op::Commit),
        any::<bool>().prop_map(Op::Arm),
        Just(Op::Look),
        Just(Op::Reply),
        Just(Op::Submit),
        Just(Op::Post),
        any::<u8>().prop_map(Op::Abandon),
        Just(Op::Next),
        any::<u8>().prop_map(Op::Respond),
        Just(Op::Flush),
        Just(Op::Close),
        (12_u32..18).prop_map(Op::Grow),
        Just(Op::Shrink),
        Just(Op::Maintain),
        (0_u64..70_000).prop_map(Op::Attach),
        (0_usize..20_000).prop_map(Op::SubmitPart),
        Just(Op::BreakOff),
        any::<u8>().prop_map(Op::Parts),
    ]
}

struct Victim {
    lanes: Lanes,
    calls: CallMachine,
    serve: ServeMachine,
    tickets: Vec<bellwire_core::call::Ticket>,
    requests: Vec<u64>,
    buffer: Vec<u8>,
    /// A request that is being sent in parts: nothing else is sent meanwhile.
    sending: Option<Vec<u8>>,
}

impl Victim {
    fn new() -> Self {
        let size = Geometry::new(SIZE).unwrap();
        let limits = Limits {
            max_message: 40_000,
            max_lane: Geometry::new(MOST).unwrap(),
            max_shared_bytes_per_session: 200_000,
        };
        let terms = LaneTerms::agreed(size, size, &limits, &limits);
        Self {
            lanes: Lanes::with_terms(terms, terms),
            calls: CallMachine::new(),
            serve: ServeMachine::new(4),
            tickets: Vec::new(),
            requests: Vec::new(),
            buffer: Vec::new(),
            sending: None,
        }
    }

    /// Performs one action; an error is a detected violation, and ends the session.
    fn run(&mut self, op: &Op, harness: &mut Harness) -> Result<(), PeerFault> {
        let Self { lanes, calls, serve, tickets, requests, buffer, sending } = self;
        let (own, peer) = (&harness.own, &harness.peer);
        match *op {
            Op::Peek(len) => {
                if let Some(record) = lanes.peek(peer)? {
                    assert!(u64::from(record.len) <= MOST - 16);
                    lanes.copy(peer, &record, &mut vec![0; len]);
                    if record.kind == Kind::Switch {
                        follow(harness, lanes, &record)?;
                    } else {
                        lanes.take(&record);
                    }
                }
            }
            Op::Push(len) => {
                let request = header(Kind::Request, len as u32);
                if let Err(PushError::Peer(fault)) = lanes.push(own, peer, request, &vec![0; len]) {
                    return Err(fault);
                }
            }
            Op::Commit => drop(lanes.commit(own, peer)),
            Op::Arm(space) => drop(lanes.arm(own, peer, space)?),
            Op::Look => {
                lanes.moved(peer);
                lanes.has_room(peer)?;
                assert!(lanes.taken(peer)? <= lanes.position());
            }
            Op::Reply => match calls.next_reply(lanes, own, peer, buffer)? {
                Some(Arrival::Reply(reply)) => assert!(reply.len <= MOST as usize),
                Some(Arrival::Switch(switch)) => follow(harness, lanes, &switch)?,
                Some(Arrival::Trimmed) | None => {}
            },
            Op::Submit | Op::Post | Op::Attach(_) if sending.is_some() => {}
            Op::SubmitPart(len) => {
                let payload = sending.take().unwrap_or_else(|| vec![3; len]);
                match calls.submit_part(lanes, own, peer, &payload) {
                    Ok(Some(ticket)) => tickets.push(ticket),
                    Ok(None) => *sending = Some(payload),
                    Err(SubmitError::Push(PushError::Peer(fault))) => return Err(fault),
                    Err(_) => calls.break_off(),
                }
            }
            Op::BreakOff => {
                *sending = None;
                calls.break_off();
            }
            Op::Parts(len) => {
                if let Some(id) = requests.pop() {
                    let payload = vec![0; usize::from(len) * 160];
                    serve.respond_in_parts(id, Status::Ok, Box::new(payload));
                }
            }
            Op::Post => {
                let post = Outgoing::from(&[1; 33]).one_way();
                if calls.submit(lanes, own, peer, post).is_ok() {
                    let _ = lanes.commit(own, peer);
                }
                let untaken = calls.untaken(lanes, peer)?;
                assert_eq!(calls.last_post().is_some(), untaken > 0);
                assert_eq!(calls.untaken_after(lanes.seen_taken()), untaken);
                assert_eq!(calls.untaken_after(u64::MAX), 0);
            }
            Op::Submit => tickets.extend(calls.submit(lanes, own, peer, &[1; 33]).ok()),
            Op::Abandon(which) => {
                if let Some(ticket) = tickets.get(usize::from(which) % tickets.len().max(1)) {
                    calls.abandon(lanes, own, peer, *ticket);
                    let _ = calls.executed(lanes, peer, *ticket);
                }
            }
            Op::Next => match serve.next(lanes, own, peer, buffer)? {
                Some(Incoming::Request { id, len, .. }) => {
                    assert!(len <= buffer.len());
                    requests.push(id);
                }
                Some(Incoming::Attached { id } | Incoming::GivenUp { id }) => requests.push(id),
                Some(Incoming::Switch(switch)) => follow(harness, lanes, &switch)?,
                Some(Incoming::Trim) => serve.trimmed(lanes, own, peer)?,
                Some(Incoming::Cancel { .. } | Incoming::Part) | None => {}
            },
            Op::Respond(len) => {
                if let Some(id) = requests.pop() {
                    let payload = vec![0; usize::from(len) * 160];
                    match serve.respond(lanes, own, peer, id, Status::Ok, &payload) {
                        Ok(()) => {}
                        Err(RespondError::Peer(fault)) => return Err(fault),
                        Err(_) => requests.push(id),
                    }
                }
            }
            Op::Flush => drop(serve.flush(lanes, own, peer, |_| Ok(()))?),
            Op::Close => lanes.push_close(own, CloseReason::Normal),
            Op::Grow(bits) => {
                resized(resize::grow(harness, lanes, Geometry::new(1 << bits).unwrap()))?;
            }
            Op::Shrink => resized(resize::shrink(harness, lanes))?,
            Op::Maintain => {
                lanes.take_maintenance();
                resize::maintain(harness, lanes, std::time::Duration::ZERO);
                assert!(!resize::shrink_idle(
                    harness,
                    lanes,
                    Instant::default(),
                    std::time::Duration::MAX
                ));
            }
            Op::Attach(bytes) => {
                match calls.submit_attached(lanes, own, peer, bytes, false, |_| Ok(())) {
                    Err(SubmitError::Push(PushError::Peer(fault))) => return Err(fault),
                    sent => tickets.extend(sent.ok()),
                }
            }
        }
        assert_eq!(serve.counts().in_flight(), requests.len() as u64);
        Ok(())
    }
}

fn follow(
    harness: &mut Harness,
    lanes: &mut Lanes,
    switch: &bellwire_core::lane::Record,
) -> Result<(), PeerFault> {
    match resize::follow(harness, lanes, switch) {
        Err(FollowError::Peer(fault)) => Err(fault),
        Ok(()) | Err(FollowError::Short(_)) => Ok(()),
    }
}

fn resized(resized: Result<(), ResizeError>) -> Result<(), PeerFault> {
    match resized {
        Err(ResizeError::Push(PushError::Peer(fault))) => Err(fault),
        _ => Ok(()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    /// Every load is arbitrary, repeated ones included: the session ends in a fault or continues; nothing panics,
    /// overflows or touches a byte outside the lane (the memory asserts).
    #[test]
    fn nothing_that_a_peer_writes_does_harm(
        says in proptest::collection::vec(said(), 1..80),
        ops in proptest::collection::vec(op(), 1..80),
    ) {
        let mut harness = Harness::new(Notes::new(SIZE), Chaos::new(SIZE, says));
        let mut victim = Victim::new();
        for op in ops {
            if victim.run(&op, &mut harness).is_err() {
                break;
            }
        }
    }
}
