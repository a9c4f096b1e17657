//! The serving machine, against a peer that is written by hand.

use std::collections::BTreeSet;

use bellwire_core::PeerFault;
use bellwire_core::call::{CallMachine, Outgoing};
use bellwire_core::lane::Lanes;
use bellwire_core::resize::{Resource, Shortage};
use bellwire_core::serve::{Flushed, Incoming, Passed, RespondError, ServeMachine};
use bellwire_core::wire::{CloseReason, Header, Kind, MORE, ONE_WAY, Status};
use bellwire_sim::{Sim, SimEnd};
use proptest::prelude::*;

struct Pair {
    ends: [SimEnd; 2],
    lanes: Lanes,
    serve: ServeMachine,
    other: Lanes,
    buffer: Vec<u8>,
}

impl Pair {
    fn new(limit: u64) -> Self {
        let ends = Sim::default().ends();
        let (lanes, other) = (ends[0].lanes(), ends[1].lanes());
        Self { ends, lanes, serve: ServeMachine::new(limit), other, buffer: Vec::new() }
    }

    fn next(&mut self) -> Result<Option<Incoming>, PeerFault> {
        let end = &self.ends[0];
        self.serve.next(&mut self.lanes, end.own(), end.peer(), &mut self.buffer)
    }

    fn respond(&mut self, id: u64, status: Status, payload: &[u8]) {
        let end = &self.ends[0];
        let (own, peer) = (end.own(), end.peer());
        match self.serve.respond(&mut self.lanes, own, peer, id, status, payload) {
            Err(RespondError::Full { .. }) => self.serve.respond_later(id, status, payload),
            Err(RespondError::TooLarge) => self.respond(id, Status::TooLarge, &[]),
            responded => responded.unwrap(),
        }
    }

    fn flush(&mut self) -> bool {
        let end = &self.ends[0];
        let flushed =
            self.serve.flush(&mut self.lanes, end.own(), end.peer(), |_| Ok(()), |_, _| {});
        flushed.unwrap() == Flushed::Done
    }

    fn commit(&mut self) {
        let _ = self.lanes.commit(self.ends[0].own(), self.ends[0].peer());
    }

    /// The other end sends; false when its lane is full.
    fn send(&mut self, kind: Kind, id: u64, payload: &[u8]) -> bool {
        let end = &self.ends[1];
        let header = Header::new(kind, Status::Ok, id, payload.len() as u32);
        let sent = self.other.push(end.own(), end.peer(), header, payload).is_ok();
        let _ = self.other.commit(end.own(), end.peer());
        sent
    }

    /// Takes and answers these requests, the first three of them at great length: the lane has no room for all.
    fn blocked(requests: u64) -> (Self, Vec<u8>) {
        let mut pair = Self::new(100);
        for id in 1..=requests {
            pair.send(Kind::Request, id, &[]);
            pair.next().unwrap().unwrap();
        }
        let large = vec![7; pair.lanes.max_payload()];
        (1..=3).for_each(|id| pair.respond(id, Status::Ok, &large));
        (pair, large)
    }

    /// The other end takes so many answers, which are flushed one by one: their ids, statuses and lengths.
    fn take_flushed(&mut self, answers: usize) -> Vec<(u64, Status, u32)> {
        let mut taken = Vec::new();
        while taken.len() < answers {
            self.flush();
            self.commit();
            taken.extend(self.take());
            let _ = self.other.commit(self.ends[1].own(), self.ends[1].peer());
        }
        taken
    }

    /// The other end takes an answer: its id, status and length.
    fn take(&mut self) -> Option<(u64, Status, u32)> {
        let end = &self.ends[1];
        let record = self.other.peek(end.peer()).unwrap()?;
        assert!(matches!(record.kind, Kind::Response | Kind::Attach));
        self.other.take_before_acting(end.own(), &record);
        Some((record.id, Status::parse(record.status).unwrap(), record.len))
    }
}

#[test]
fn no_more_requests_are_taken_than_the_limit() {
    for limit in [0, 1, 3] {
        let mut pair = Pair::new(limit);
        for id in 1..=5 {
            pair.send(Kind::Request, id, &[]);
        }
        let limit = limit.max(1);
        for id in 1..=limit {
            assert!(!pair.serve.is_at_limit());
            assert_eq!(pair.next(), Ok(Some(Incoming::Request { id, len: 0, batch: false })));
        }
        assert!(pair.serve.is_at_limit());
        assert_eq!(pair.next(), Ok(None));
        pair.respond(1, Status::Ok, &[]);
        assert_eq!(
            pair.next(),
            Ok(Some(Incoming::Request { id: limit + 1, len: 0, batch: false }))
        );
    }
}

#[test]
fn an_answer_that_meets_a_full_lane_is_owed_and_no_request_is_taken_until_it_is_out() {
    let (mut pair, large) = Pair::blocked(3);
    pair.send(Kind::Request, 4, &[]);
    assert!(pair.serve.is_blocked());
    assert_eq!(pair.serve.counts().answered, 3);
    assert_eq!(pair.next(), Ok(None), "a peer that does not read is not read");
    assert!(!pair.flush());
    assert_eq!(pair.take_flushed(3), [1, 2, 3].map(|id| (id, Status::Ok, large.len() as u32)));
    assert!(pair.flush());
    assert!(!pair.serve.is_blocked());
    assert_eq!(pair.next(), Ok(Some(Incoming::Request { id: 4, len: 0, batch: false })));
}

#[test]
fn a_small_answer_does_not_overtake_an_owed_one() {
    let (mut pair, _) = Pair::blocked(4);
    pair.respond(4, Status::Ok, &[]);
    assert_eq!(pair.take_flushed(4).iter().map(|taken| taken.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

/// There is room for its record before there is for the pending answer. Its memory is passed in its turn, and if
/// that fails, it says so.
#[test]
fn an_attached_answer_waits_behind_an_owed_one() {
    for fails in [false, true] {
        let (mut pair, _) = Pair::blocked(5);
        let end = &pair.ends[0];
        let attached =
            pair.serve.respond_attached(&mut pair.lanes, end.own(), end.peer(), 4, 5000, |_| {
                panic!("it is not its turn")
            });
        assert_eq!(attached, Ok(Passed::Later));
        pair.respond(5, Status::Ok, &[]);
        assert_eq!(pair.serve.counts().answered, 5);
        let (mut taken, mut passed) = (Vec::new(), Vec::new());
        while taken.len() < 5 {
            let end = &pair.ends[0];
            let pass = |id| {
                passed.push(id);
                let resource = Resource::Descriptors;
                if fails { Err(Shortage { resource, bytes: 5000, code: 24 }) } else { Ok(()) }
            };
            pair.serve.flush(&mut pair.lanes, end.own(), end.peer(), pass, |_, _| {}).unwrap();
            pair.commit();
            taken.extend(pair.take().map(|(id, status, _)| (id, status)));
            let _ = pair.other.commit(pair.ends[1].own(), pair.ends[1].peer());
        }
        let fourth = if fails { Status::Short } else { Status::Ok };
        let expected =
            [(1, Status::Ok), (2, Status::Ok), (3, Status::Ok), (4, fourth), (5, Status::Ok)];
        assert_eq!(taken, expected);
        assert_eq!(passed, [4], "once");
        assert_eq!(pair.lanes.sent().attaches, u64::from(!fails));
    }
}

#[test]
fn a_one_way_request_is_taken_counted_and_never_answered() {
    let mut pair = Pair::new(4);
    let one_way = |len| Ok(Some(Incoming::Request { id: ONE_WAY, len, batch: false }));
    for (id, len) in [(ONE_WAY, 3), (7, 1), (ONE_WAY, 0), (ONE_WAY, 2)] {
        pair.send(Kind::Request, id, &vec![9; len]);
    }
    assert_eq!(pair.next(), one_way(3));
    assert_eq!(pair.next(), Ok(Some(Incoming::Request { id: 7, len: 1, batch: false })));
    assert_eq!(pair.next(), one_way(0));
    assert_eq!(pair.next(), one_way(2));
    assert!(pair.serve.is_at_limit(), "each is in flight until it is handled");
    pair.respond(ONE_WAY, Status::Ok, &[1; 100]);
    pair.respond(ONE_WAY, Status::Failed, b"why");
    pair.serve.respond_in_parts(ONE_WAY, Status::Panicked, Box::new([0; 100]));
    pair.respond(7, Status::Ok, &[]);
    pair.commit();
    assert_eq!(pair.take(), Some((7, Status::Ok, 0)));
    assert_eq!(pair.take(), None);
    assert!(!pair.serve.is_blocked());
    let counts = pair.serve.counts();
    assert_eq!((counts.accepted, counts.answered, counts.refused), (4, 1, 0));
    assert_eq!((counts.posted, counts.post_errors, counts.panics), (3, 2, 1));
    assert_eq!((counts.errors, counts.in_flight()), (0, 0));
}

#[test]
fn an_attached_one_way_request_is_neither_answered_nor_given_memory() {
    let mut pair = Pair::new(4);
    pair.send(Kind::Attach, ONE_WAY, &[]);
    assert_eq!(pair.next(), Ok(Some(Incoming::Attached { id: ONE_WAY })));
    let end = &pair.ends[0];
    let pass = |_| panic!("nobody takes it");
    let passed =
        pair.serve.respond_attached(&mut pair.lanes, end.own(), end.peer(), ONE_WAY, 5, pass);
    assert_eq!(passed, Ok(Passed::Never));
    pair.serve.respond_later(ONE_WAY, Status::Ok, &[]);
    assert_eq!(pair.serve.counts().posted, 2);
    assert!(!pair.serve.is_blocked());
}

/// Its id says nothing about which one is meant.
#[test]
fn a_cancel_of_a_one_way_request_is_a_violation_except_in_its_middle() {
    let mut pair = Pair::new(4);
    let mut part = Header::new(Kind::Request, Status::Ok, ONE_WAY, 16);
    part.flags = MORE;
    let end = &pair.ends[1];
    pair.other.push(end.own(), end.peer(), part, &[1; 16]).unwrap();
    pair.send(Kind::Cancel, ONE_WAY, &[]);
    pair.send(Kind::Request, ONE_WAY, &[]);
    pair.send(Kind::Cancel, ONE_WAY, &[]);
    assert_eq!(pair.next(), Ok(Some(Incoming::Part)));
    assert_eq!(pair.next(), Ok(Some(Incoming::Part)), "the rest will not come");
    assert!(matches!(pair.next(), Ok(Some(Incoming::Request { id: ONE_WAY, len: 0, .. }))));
    assert_eq!(pair.next(), Err(PeerFault::UnknownId { id: ONE_WAY }));
}

#[test]
fn a_cancel_of_an_unknown_request_is_a_violation_and_of_a_known_one_is_passed_on() {
    let mut pair = Pair::new(8);
    pair.send(Kind::Request, 3, &[]);
    pair.send(Kind::Cancel, 3, &[]);
    pair.send(Kind::Cancel, 2, &[]);
    pair.send(Kind::Cancel, 4, &[]);
    pair.next().unwrap().unwrap();
    assert_eq!(pair.next(), Ok(Some(Incoming::Cancel { id: 3 })));
    assert_eq!(pair.next(), Ok(Some(Incoming::Cancel { id: 2 })));
    assert_eq!(pair.next(), Err(PeerFault::UnknownId { id: 4 }));
    assert_eq!(pair.serve.counts().in_flight(), 1, "an answer is still due");
}

/// A switch stays where it is until it is followed; the rest is taken.
#[test]
fn switches_trims_and_attachments_are_handed_out() {
    let mut pair = Pair::new(8);
    pair.send(Kind::Trim, 0, &[]);
    pair.send(Kind::Attach, 1, &[]);
    pair.send(Kind::Switch, 1, &[]);
    assert_eq!(pair.next(), Ok(Some(Incoming::Trim)));
    assert_eq!(pair.next(), Ok(Some(Incoming::Attached { id: 1 })));
    assert_eq!(pair.serve.counts().in_flight(), 1);
    for _ in 0..2 {
        let Ok(Some(Incoming::Switch(switch))) = pair.next() else { panic!("a switch") };
        assert_eq!((switch.at(), switch.kind, switch.id), (32, Kind::Switch, 1));
    }
}

#[test]
fn requests_in_flight_are_still_answered_after_a_close() {
    let mut pair = Pair::new(8);
    pair.send(Kind::Request, 1, &[]);
    pair.other.push_close(pair.ends[1].own(), CloseReason::Normal);
    let _ = pair.other.commit(pair.ends[1].own(), pair.ends[1].peer());
    pair.next().unwrap().unwrap();
    assert_eq!(pair.next(), Ok(Some(Incoming::Closed(CloseReason::Normal))));
    pair.respond(1, Status::Stopping, &[]);
    pair.commit();
    assert_eq!(pair.take(), Some((1, Status::Stopping, 0)));
}

#[derive(Clone, Debug)]
enum Op {
    Send(usize),
    Cancel(u64),
    Next,
    Respond(usize, u16, usize),
    Flush,
    Take,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0_usize..600).prop_map(Op::Send),
        1 => (1_u64..30).prop_map(Op::Cancel),
        4 => Just(Op::Next),
        4 => (any::<usize>(), 0_u16..10, 0_usize..9000).prop_map(|(at, status, len)| Op::Respond(at, status, len)),
        2 => Just(Op::Flush),
        3 => Just(Op::Take),
    ]
}

proptest! {
    /// `accepted = answered + refused + in flight` at each step, at most the limit is in flight, and every
    /// request taken is answered exactly once, by the status given.
    #[test]
    fn the_counters_reconcile(limit in 1_u64..6, ops in proptest::collection::vec(op(), 1..200)) {
        let mut pair = Pair::new(limit);
        let (mut sent, mut accepted, mut answered) = (0, 0, Vec::new());
        let mut in_flight = Vec::new();
        let mut seen = Vec::new();
        for op in ops {
            match op {
                Op::Send(len) => sent += u64::from(pair.send(Kind::Request, sent + 1, &vec![0; len])),
                Op::Cancel(id) if id <= sent => drop(pair.send(Kind::Cancel, id, &[])),
                Op::Cancel(_) => {}
                Op::Next => {
                    let free = !pair.serve.is_blocked() && !pair.serve.is_at_limit();
                    match pair.next().unwrap() {
                        Some(Incoming::Request { id, .. }) => {
                            accepted += 1;
                            prop_assert!(free);
                            prop_assert_eq!(id, accepted, "in order, none left out");
                            in_flight.push(id);
                        }
                        Some(Incoming::Cancel { id }) => prop_assert!(id <= accepted),
                        Some(other) => panic!("nobody sent {other:?}"),
                        None => {}
                    }
                }
                Op::Respond(at, status, len) if !in_flight.is_empty() => {
                    let id = in_flight.swap_remove(at % in_flight.len());
                    let status = Status::parse(status).unwrap();
                    pair.respond(id, status, &vec![0; len]);
                    let fits = len <= pair.lanes.max_payload();
                    answered.push((id, if fits { status } else { Status::TooLarge }));
                }
                Op::Respond(..) => {}
                Op::Flush => {
                    let flushed = pair.flush();
                    prop_assert_eq!(flushed, !pair.serve.is_blocked());
                    pair.commit();
                }
                Op::Take => {
                    seen.extend(pair.take().map(|(id, status, _)| (id, status)));
                    let _ = pair.other.commit(pair.ends[1].own(), pair.ends[1].peer());
                }
            }
            let counts = pair.serve.counts();
            prop_assert_eq!(counts.accepted, accepted);
            let ran = answered.iter().filter(|(_, status)| status.ran()).count() as u64;
            prop_assert_eq!(counts.answered, ran);
            prop_assert_eq!(counts.refused, answered.len() as u64 - ran);
            prop_assert_eq!(counts.in_flight(), in_flight.len() as u64);
            prop_assert!(counts.in_flight() <= limit);
        }
        let rest = pair.take_flushed(answered.len() - seen.len());
        seen.extend(rest.into_iter().map(|(id, status, _)| (id, status)));
        prop_assert_eq!(&seen, &answered, "each once, in the order of answering");
        prop_assert_eq!(seen.iter().map(|(id, _)| id).collect::<BTreeSet<_>>().len(), seen.len());
        prop_assert_eq!(pair.take(), None);
    }
}

#[test]
fn a_batch_is_distinguished_from_a_request_however_it_travels() {
    let mut pair = Pair::new(8);
    let mut calls = CallMachine::default();
    let (end, lanes) = (&pair.ends[1], &mut pair.other);
    let (own, peer) = (end.own(), end.peer());
    let batch = Outgoing::batch(b"0123456789abcdef");
    calls.submit(lanes, own, peer, batch).unwrap();
    calls.submit(lanes, own, peer, b"one").unwrap();
    calls.submit_part(lanes, own, peer, batch).unwrap().unwrap();
    let _ = lanes.commit(own, peer);
    for (id, len, batch) in [(1, 16, true), (2, 3, false), (3, 16, true)] {
        assert_eq!(pair.next(), Ok(Some(Incoming::Request { id, len, batch })));
    }
}
