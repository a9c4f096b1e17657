//! Messages in parts: longer than the lane that carries them.

use std::time::Duration;

use bellwire_core::call::{self, CallMachine, SubmitError};
use bellwire_core::drive::{CallDriver, CallFailed};
use bellwire_core::lane::{FULL_LIMIT, LaneTerms, Lanes, PushError};
use bellwire_core::resize::Resource;
use bellwire_core::serve::{Incoming, ServeMachine};
use bellwire_core::wire::{Header, Kind, Status};
use bellwire_core::{Deadline, Limits, PeerFault};
use bellwire_sim::{Act, SimPort, SimServer};

use crate::pair::{Pair, growing, limited, payload, size};
use crate::resize::{Rng, call, driver_in, echo, reply_of};

/// Waits for room: everything else that comes meanwhile is an answer that is kept.
fn submit_in_parts(driver: &mut CallDriver<SimPort>, message: &[u8]) -> u64 {
    loop {
        match driver.submit_in_parts(message) {
            Ok(ticket) => return ticket.id(),
            Err(CallFailed::Submit(SubmitError::Push(PushError::Full { .. }))) => {
                driver.wait_for_room(&mut { Deadline::NEVER }).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn messages_much_longer_than_their_lanes_round_trip() {
    let small = Limits { max_lane: size(4096), ..Limits::default() };
    for sim in [growing(), limited(small, small)] {
        let mut driver = driver_in(sim, echo().streaming(5000));
        for (id, len) in (1..).zip([0, 1, 1008, 1009, 5000, 100_000, 3_000_000]) {
            assert_eq!(submit_in_parts(&mut driver, &payload(id, len)), id);
            let (reply, bytes) = reply_of(&mut driver);
            assert_eq!((reply.ticket.id(), reply.len), (id, len));
            assert_eq!(bytes, payload(id, len));
        }
        assert!(driver.lane_stats().iter().all(|lane| lane.size <= FULL_LIMIT));
    }
}

/// 64 of 128 KiB have gone through the lane that is made at first.
#[test]
fn a_lane_that_carries_many_messages_in_parts_becomes_a_large_one() {
    let mut driver = driver_in(growing(), echo().streaming(5000));
    let mut sizes = Vec::new();
    for id in 1..=70 {
        assert_eq!(submit_in_parts(&mut driver, &payload(id, 128 << 10)), id);
        assert_eq!(reply_of(&mut driver).1, payload(id, 128 << 10));
        let [own, _] = driver.lane_stats();
        sizes.push(own.size);
    }
    let (first, then) = sizes.split_at(63);
    assert!(first.iter().all(|size| *size == 256 << 10), "{sizes:?}");
    assert_eq!(then.last(), Some(&(1 << 20)), "{sizes:?}");
}

/// The lane changes its size between parts.
#[test]
fn a_message_in_parts_crosses_epochs() {
    let mut rng = Rng(4);
    let mut pair = Pair::new(growing());
    let mut calls = CallMachine::default();
    let mut serve = ServeMachine::new(10);
    let mut buffer = Vec::new();
    for sent in 1..=100 {
        let message = payload(sent, 20_000);
        loop {
            let Pair { ends: [end, _], lanes: [lanes, _] } = &mut pair;
            let part = calls.submit_part(lanes, end.own(), end.peer(), &message);
            match part {
                Ok(Some(ticket)) => {
                    assert_eq!(ticket.id(), sent);
                    break;
                }
                Ok(None) | Err(SubmitError::Push(PushError::Full { .. })) => {}
                Err(error) => panic!("{error}"),
            }
            let _ = match rng.below(6) {
                0 => pair.grow(0, size(16_384)),
                1 => pair.grow(0, size(8192)),
                2 => pair.shrink(0),
                _ => Ok(()),
            };
            let _ = pair.commit(0);
            assert_eq!(incoming(&mut pair, &mut serve, &mut buffer), None);
        }
        let _ = pair.commit(0);
        let request = incoming(&mut pair, &mut serve, &mut buffer);
        assert_eq!(request, Some(Incoming::Request { id: sent, len: 20_000, batch: false }));
        assert_eq!(buffer[..20_000], message);
        let (end, lanes) = (&pair.ends[1], &mut pair.lanes[1]);
        serve.respond(lanes, end.own(), end.peer(), sent, Status::Ok, &[]).unwrap();
        let _ = pair.commit(1);
        let (end, lanes) = (&pair.ends[0], &mut pair.lanes[0]);
        let incoming = calls.next_reply(lanes, end.own(), end.peer(), &mut Vec::new());
        assert!(matches!(incoming, Ok(Some(call::Incoming::Reply(_)))));
    }
    assert!(pair.epoch(0).number > 100);
}

/// What the serving end takes next.
fn next(
    pair: &mut Pair,
    serve: &mut ServeMachine,
    buffer: &mut Vec<u8>,
) -> Result<Option<Incoming>, PeerFault> {
    let (end, lanes) = (&pair.ends[1], &mut pair.lanes[1]);
    let next = serve.next(lanes, end.own(), end.peer(), buffer);
    let _ = pair.commit(1);
    next
}

/// What the serving end takes, after switches and parts.
fn incoming(pair: &mut Pair, serve: &mut ServeMachine, buffer: &mut Vec<u8>) -> Option<Incoming> {
    loop {
        match next(pair, serve, buffer).unwrap() {
            Some(Incoming::Switch(switch)) => pair.follow(1, &switch).unwrap(),
            Some(Incoming::Part) => {}
            other => return other,
        }
    }
}

/// Ends of which only this one knows that it takes no message above 5000 bytes.
fn one_limited(at: usize) -> Pair {
    let (limits, roomy) = (Limits { max_message: 5000, ..Limits::default() }, Limits::default());
    let mut pair = Pair::new(limited(roomy, roomy));
    let terms = |own, peer| LaneTerms::agreed(size(4096), size(4096), own, peer);
    pair.lanes[at] = Lanes::with_terms(terms(&limits, &roomy), terms(&roomy, &limits));
    pair
}

/// A request that is abandoned half sent: the handler does not run, and the next record is understood.
#[test]
fn a_request_that_was_broken_off_is_none() {
    for next in 0..4 {
        let (sender, ran) = std::sync::mpsc::channel();
        let handler = move |request: &[u8]| {
            sender.send(request.len()).unwrap();
            (Status::Ok, request.to_vec())
        };
        let limits = Limits { max_lane: size(4096), ..Limits::default() };
        let mut driver =
            driver_in(limited(limits, limits), SimServer::new(handler).streaming(1000));
        let full = driver.submit_in_parts(&payload(1, 50_000));
        assert!(matches!(full, Err(CallFailed::Submit(SubmitError::Push(PushError::Full { .. })))));
        driver.wait_for_room(&mut { Deadline::NEVER }).unwrap();
        driver.abort_parts();
        match next {
            0 => {}
            1 => driver.trim().unwrap(),
            2 => assert_eq!(submit_in_parts(&mut driver, &payload(2, 20_000)), 2),
            _ => {
                let pass = |port: &SimPort, id| port.end().pass(id, b"abc");
                driver.submit_attached(3, false, pass).unwrap();
            }
        }
        if next >= 2 {
            reply_of(&mut driver);
        }
        call(&mut driver, 5, 500);
        assert!(driver.is_trimmed());
        let expected: &[usize] = [&[500][..], &[500], &[20_000, 500], &[3, 500]][next];
        assert_eq!(ran.try_iter().collect::<Vec<_>>(), expected);
        assert_eq!(driver.in_flight(), 0);
    }
}

/// Without memory for a better lane it goes through the one that is there.
#[test]
fn a_message_in_parts_needs_no_memory() {
    let mut driver = driver_in(growing(), echo().streaming(1000));
    driver.port().end().runs_short(Act::Offer, 0..1000, Resource::Memory);
    assert_eq!(submit_in_parts(&mut driver, &payload(1, 300_000)), 1);
    assert_eq!(reply_of(&mut driver).1, payload(1, 300_000));
    assert_eq!(driver.lane_stats()[0].size, 4096);
}

/// Together they are longer than one message may be.
#[test]
fn parts_without_end_stop_at_the_limit() {
    let mut pair = one_limited(1);
    let (mut serve, mut buffer) = (ServeMachine::new(10), Vec::new());
    let mut parts = 0;
    let fault = loop {
        pair.put(0, Header::new(Kind::Request, Status::Ok, 1, 0).part(1000, true), &[7; 1000]);
        match next(&mut pair, &mut serve, &mut buffer) {
            Ok(Some(Incoming::Part)) => parts += 1,
            Ok(other) => panic!("{other:?}"),
            Err(fault) => break fault,
        }
    };
    assert_eq!(parts, 5);
    assert!(matches!(fault, PeerFault::MessageTooLong { len: 6000, limit: 5000, .. }), "{fault}");
    assert!(buffer.len() <= 5000);
}

#[test]
fn a_request_that_is_given_up_while_it_arrives_takes_no_memory_and_is_answered() {
    let mut pair = Pair::new(limited(Limits::default(), Limits::default()));
    let mut serve = ServeMachine::new(10);
    let mut send = |serve: &mut ServeMachine, buffer: &mut Vec<u8>, id, more| {
        let header = Header::new(Kind::Request, Status::Ok, id, 0).part(1000, more);
        pair.put(0, header, &[7; 1000]);
        next(&mut pair, serve, buffer).unwrap()
    };
    let mut buffer = Vec::new();
    assert_eq!(send(&mut serve, &mut buffer, 1, true), Some(Incoming::Part));
    serve.give_up_arriving();
    buffer = Vec::new();
    for _ in 0..20 {
        assert_eq!(send(&mut serve, &mut buffer, 1, true), Some(Incoming::Part));
    }
    let given_up = Incoming::GivenUp { id: 1 };
    assert_eq!(send(&mut serve, &mut buffer, 1, false), Some(given_up));
    assert_eq!((buffer.len(), serve.counts().in_flight()), (0, 1));
    // The next one arrives as ever.
    assert_eq!(send(&mut serve, &mut buffer, 2, true), Some(Incoming::Part));
    let whole = Incoming::Request { id: 2, len: 2000, batch: false };
    assert_eq!(send(&mut serve, &mut buffer, 2, false), Some(whole));
}

/// Its request was never answered, and is counted so.
#[test]
fn an_answer_whose_last_part_exceeds_the_limit_is_not_counted_as_answered() {
    let mut pair = one_limited(0);
    let mut calls = CallMachine::default();
    let end = &pair.ends[0];
    let ticket = calls.submit(&mut pair.lanes[0], end.own(), end.peer(), b"").unwrap();
    let _ = pair.commit(0);
    for part in 1..=6 {
        let more = part < 6;
        let header = Header::new(Kind::Response, Status::Ok, ticket.id(), 0).part(1000, more);
        pair.put(1, header, &[7; 1000]);
        let (end, lanes) = (&pair.ends[0], &mut pair.lanes[0]);
        let next = calls.next_reply(lanes, end.own(), end.peer(), &mut Vec::new());
        match more {
            true => assert_eq!(next, Ok(None)),
            false => {
                let fault = next.unwrap_err();
                assert!(matches!(fault, PeerFault::MessageTooLong { len: 6000, .. }), "{fault}");
            }
        }
        let _ = pair.commit(0);
    }
    assert_eq!(calls.in_flight(), 1);
    assert!(calls.is_waiting(ticket));
    assert_eq!(calls.take_dropped(), 0);
}

/// A caller that is read slowly waits part by part and is rung for each.
#[test]
fn parts_wait_for_room_both_ways() {
    let limits = Limits { max_lane: size(4096), ..Limits::default() };
    let server = echo().streaming(1).taking(Duration::from_micros(50));
    let mut driver = driver_in(limited(limits, limits), server);
    for id in 1..=20 {
        submit_in_parts(&mut driver, &payload(id, 9000));
        assert_eq!(reply_of(&mut driver).1, payload(id, 9000));
    }
}
