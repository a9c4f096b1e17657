//! What may be outstanding: epochs that the peer has not followed to, and attachments.

use bellwire_core::Deadline;
use bellwire_core::lane::{Armed, MAX_ATTACHED, MAX_OUTSTANDING, PushError};
use bellwire_core::resize::ResizeError;
use bellwire_core::wire::{Kind, Status};
use bellwire_sim::{Act, Peer, Sim, SimEnd, SimPort, SimServer, Step};

use super::{MILLI, driver_in, echo, is_full, reply_of};
use crate::pair::{Pair, growing, payload, size};

/// Grows the lane of end 0 as often as it may without its peer following, and returns what it met then.
fn outstanding(pair: &mut Pair) -> ResizeError {
    for number in 2..=MAX_OUTSTANDING as u32 + 1 {
        pair.send(0, number.into(), 1500 << (number - 1)).unwrap();
        assert_eq!(pair.epoch(0).number, number);
    }
    pair.send(0, 99, 1500 << (MAX_OUTSTANDING + 1)).unwrap_err()
}

#[test]
fn one_epoch_more_than_may_be_outstanding_meets_a_full_lane_and_is_rung() {
    let mut pair = Pair::new(growing());
    let missing = match outstanding(&mut pair) {
        ResizeError::Push(PushError::Full { missing }) => missing,
        error => panic!("{error}"),
    };
    assert_eq!(missing, 16, "the first switch");
    assert_eq!(pair.ends[0].acts(Act::Offer), MAX_OUTSTANDING as u64);
    assert!(matches!(pair.arm(0, true), Armed::Sleep { head: Some(0), .. }));
    // What fits goes out meanwhile.
    pair.push(0, 50, 10).unwrap();
    assert!(!pair.has_room(0));
    let switch = pair.peek(1).unwrap().unwrap();
    assert_eq!(switch.kind, Kind::Switch);
    pair.follow(1, &switch).unwrap();
    assert!(pair.commit(1).space, "who waits for an epoch is rung when it is followed");
    assert!(pair.has_room(0));
    pair.publish(0, 99, 1500 << (MAX_OUTSTANDING + 1));
    assert_eq!(pair.take_all(1), [2, 3, 4, 5, 50, 99]);
}

/// One step smaller than needed was offered: it counts.
#[test]
fn an_epoch_that_was_offered_and_not_used_counts_as_outstanding() {
    let mut pair = Pair::new(growing());
    for number in 2..=MAX_OUTSTANDING as u64 {
        pair.send(0, number, 1500 << (number - 1)).unwrap();
    }
    let next = pair.epoch(0).size.doubled();
    let epoch = pair.lanes[0].next_epoch(pair.ends[0].peer(), next).unwrap();
    bellwire_core::Port::offer(&mut pair.ends[0].clone(), epoch).unwrap();
    pair.lanes[0].offer(epoch);
    let full = pair.lanes[0].next_epoch(pair.ends[0].peer(), next);
    assert!(matches!(full, Err(PushError::Full { missing: 16 })), "{full:?}");
    // It is used when it is large enough, and no step when not.
    pair.send(0, 8, next.max_payload()).unwrap();
    assert_eq!(pair.epoch(0), epoch);
    assert!(matches!(pair.send(0, 9, 200_000), Err(ResizeError::Push(PushError::Full { .. }))));
}

#[test]
fn a_caller_that_waits_for_an_epoch_is_woken_when_the_peer_follows() {
    let wakes = bellwire_core::Instant::default().after(5 * MILLI);
    let mut server = echo();
    let sleepy = move |end: &SimEnd| {
        if end.now() < wakes { Step::Busy(wakes) } else { server.step(end) }
    };
    let mut driver = driver_in(growing(), sleepy);
    let (mut sent, mut len) = (0, 1500);
    let error = loop {
        match driver.submit(&payload(sent, len)) {
            Ok(_) => (sent, len) = (sent + 1, len * 2),
            Err(error) => break error,
        }
    };
    assert!(is_full(&error), "{error}");
    assert_eq!(driver.port().end().acts(Act::Offer), MAX_OUTSTANDING as u64);
    driver.wait_for_room(&mut { Deadline::NEVER }).unwrap();
    let mut buffer = Vec::new();
    let mut answered = 0;
    while driver.submit(&payload(sent, len)).inspect_err(|error| assert!(is_full(error))).is_err() {
        driver.wait_for_room(&mut { Deadline::NEVER }).unwrap();
        answered += u64::from(driver.try_reply(&mut buffer).unwrap().is_some());
    }
    while answered <= sent {
        assert_eq!(reply_of(&mut driver).1, payload(answered, 1500 << answered));
        answered += 1;
    }
}

#[test]
fn one_attachment_more_than_may_be_outstanding_meets_a_full_lane_and_is_rung() {
    let mut pair = Pair::new(growing());
    for id in 0..MAX_ATTACHED as u64 {
        pair.attach(0, id, 100).unwrap();
    }
    assert_eq!(pair.attach(0, 99, 100), Err(PushError::Full { missing: 16 }));
    assert_eq!(pair.ends[0].acts(Act::Pass), MAX_ATTACHED as u64);
    assert!(matches!(pair.arm(0, true), Armed::Sleep { head: Some(0), .. }));
    // The lane itself has room.
    pair.push(0, 50, 0).unwrap();
    let record = pair.peek(1).unwrap().unwrap();
    assert_eq!((record.kind, record.id), (Kind::Attach, 0));
    assert_eq!(pair.ends[1].take(0).unwrap(), payload(0, 100));
    pair.lanes[1].take(&record);
    assert!(pair.commit(1).space, "it is the first of many in the lane, and its taker is heard");
    assert!(pair.has_room(0));
    pair.attach(0, 99, 100).unwrap();
    assert_eq!(pair.lanes[0].sent().attaches, MAX_ATTACHED as u64 + 1);
}

#[test]
fn requests_and_answers_travel_in_memory_of_their_own_among_others() {
    let sim = Sim { lane: size(65_536), ..growing() };
    let mut driver = driver_in(sim, echo().attaching(5000));
    let mut expected = Vec::new();
    for id in 1..=100_u64 {
        let len = id as usize * 97;
        let sent = if id % 3 == 0 {
            let pass = |port: &SimPort, id| port.end().pass(id, &payload(id, len));
            driver.submit_attached(len as u64, false, pass)
        } else {
            driver.submit(&payload(id, len))
        };
        match sent {
            Ok(ticket) => assert_eq!(ticket.id(), id),
            Err(error) => panic!("{error}"),
        }
        expected.push((id, len));
        if id % 7 > 0 && id < 100 {
            continue;
        }
        for (id, len) in expected.drain(..) {
            let (reply, answer) = reply_of(&mut driver);
            assert_eq!((reply.ticket.id(), reply.attached), (id, len >= 5000));
            assert_eq!(answer, payload(id, len));
        }
    }
    assert_eq!(driver.port().end().acts(Act::Pass), 33);
    assert_eq!(driver.lane_stats()[0].attaches, 33);
    assert_eq!(
        driver.lane_stats()[1].attaches,
        (1..=100).filter(|id| id * 97 >= 5000).count() as u64
    );
}

/// Answers in memory of their own that found the lane full, or too many of their kind, wait like others.
#[test]
fn attached_answers_that_found_no_room_are_passed_when_there_is() {
    for (requests, others) in [(MAX_ATTACHED as u64 * 3, 0), (20, 1000)] {
        let handler = move |request: &[u8]| {
            let id = u64::from_le_bytes(request.try_into().unwrap());
            let len = if id % 2 == 0 { 6000 } else { others };
            (Status::Ok, payload(id, len))
        };
        let server = SimServer::new(handler).attaching(if others == 0 { 0 } else { 6000 });
        let mut driver = driver_in(Sim { lane: size(65_536), ..growing() }, server);
        for id in 1..=requests {
            driver.push(&id.to_le_bytes()).unwrap();
        }
        driver.commit();
        driver.port().run_for(MILLI);
        for id in 1..=requests {
            let (reply, answer) = reply_of(&mut driver);
            assert_eq!(reply.ticket.id(), id, "in order");
            assert_eq!(answer, payload(id, if id % 2 == 0 { 6000 } else { others }));
        }
    }
}
