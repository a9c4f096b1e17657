//! Lanes that change their size, and messages in memory of their own, between two processes. Each test runs with the
//! server's end of the pipe on either side.

use std::time::Duration;

use bellwire_core::drive::CallFailed;
use bellwire_core::lane::Lanes;
use bellwire_core::resize;
use bellwire_core::wire::{Header, Kind, Status};
use bellwire_core::{Deadline, Geometry, Park, Port};
use bellwire_win::link::Link;

use crate::session::{Listens, Session, answer, lanes, link_with, request, ring, sealed};
use crate::support::test_deadline;

#[test]
fn both_lanes_grow_and_nothing_is_lost() {
    for listens in Listens::BOTH {
        let mut session = Session::open(listens);
        for len in [100, 20_000, 7, 200_000, 9_000, 400_000, 20, 2_000_000, 1] {
            session.call(&request(len));
        }
        for lane in session.driver.lane_stats() {
            assert!(lane.grows >= 3 && lane.shrinks == 0, "{listens:?} {lane:?}");
            assert_eq!((lane.size, lane.attaches), (4 << 20, 0), "{listens:?}");
        }
        session.close();
    }
}

#[test]
fn a_lane_grows_while_requests_are_in_flight() {
    for listens in Listens::BOTH {
        let Session { mut driver, mut child, .. } = Session::open(listens);
        let mut sent = std::collections::VecDeque::new();
        let mut buffer = Vec::new();
        let mut left = (1..=300_usize).map(|round| request(round * 311 % 70_000 + round % 9));
        let mut next = left.next();
        while next.is_some() || !sent.is_empty() {
            let submitted = next.as_deref().map(|request| driver.submit(request));
            let until = &mut Deadline::at(test_deadline().unwrap());
            match submitted {
                Some(Ok(ticket)) => {
                    sent.push_back((ticket, answer(&next.take().unwrap())));
                    next = left.next();
                    continue;
                }
                Some(Err(error)) => assert!(matches!(error, CallFailed::Submit(_)), "{error}"),
                None => {}
            }
            if sent.is_empty() {
                driver.wait_for_room(until).unwrap();
                continue;
            }
            let reply = driver.wait_for_reply(until, &mut buffer).unwrap();
            let (ticket, expected) = sent.pop_front().unwrap();
            assert_eq!(reply.ticket, ticket);
            assert!(buffer[..reply.len] == expected);
        }
        let [own, peer] = driver.lane_stats();
        assert!(own.grows > 0 && peer.grows > 0, "{own:?} {peer:?}");
        driver.close(bellwire_core::wire::CloseReason::Normal);
        drop(driver);
        assert!(child.wait());
    }
}

/// Sends requests of `len` bytes by hand until `enough`, and returns how many.
fn push_until(
    link: &Link,
    lanes: &mut Lanes,
    last_id: &mut u64,
    len: usize,
    enough: impl Fn(u64) -> bool,
) {
    let first = *last_id;
    while !enough(*last_id - first) {
        *last_id += 1;
        let header = Header::new(Kind::Request, Status::Ok, *last_id, len as u32);
        lanes.push(link.own(), link.peer(), header, &request(len)).unwrap();
    }
}

/// Takes `count` answers to requests of `len` bytes, and follows the peer's lane.
fn take_answers(link: &mut Link, lanes: &mut Lanes, count: u64, len: usize) {
    let mut taken = 0;
    while taken < count {
        let Some(record) = lanes.peek(link.peer()).unwrap() else {
            let wake = lanes.commit(link.own(), link.peer());
            ring(link, wake);
            let (armed, wake) = lanes.arm(link.own(), link.peer(), false).unwrap();
            ring(link, wake);
            if let bellwire_core::lane::Armed::Sleep { tail, head } = armed {
                link.park(Park { tail, head, until: test_deadline() });
            }
            lanes.disarm(link.own());
            continue;
        };
        if record.kind == Kind::Switch {
            resize::follow(link, lanes, &record).unwrap();
            continue;
        }
        let mut bytes = vec![0; record.len as usize];
        lanes.copy(link.peer(), &record, &mut bytes);
        assert!(bytes == answer(&request(len)));
        lanes.take(&record);
        taken += 1;
    }
}

#[test]
fn an_epoch_that_was_offered_early_is_the_one_that_is_used() {
    let bodies = ["session::body_connects", "session::body_listens"];
    for listens in Listens::BOTH {
        let (mut link, mut child, _dir) = link_with(bodies[0], bodies[1], listens);
        let (mut lanes, mut id) = (lanes(), 0);
        // Three quarters of the lane, published at once.
        push_until(&link, &mut lanes, &mut id, 1000, |sent| sent == 13);
        let wake = lanes.commit(link.own(), link.peer());
        assert!(lanes.take_maintenance());
        assert!(!resize::maintain(&mut link, &mut lanes, Duration::MAX), "nothing to publish");
        let offered = lanes.offered().expect("it grows before it is full");
        ring(&link, wake);
        // The peer has it, and uses the old lane on.
        take_answers(&mut link, &mut lanes, 13, 1000);
        push_until(&link, &mut lanes, &mut id, 1000, |sent| sent == 3);
        take_answers(&mut link, &mut lanes, 3, 1000);
        assert_eq!((lanes.epoch().number, lanes.offered()), (1, Some(offered)));
        resize::grow(&mut link, &mut lanes, Geometry::DEFAULT.doubled()).unwrap();
        assert_eq!((lanes.epoch(), lanes.offered()), (offered, None));
        push_until(&link, &mut lanes, &mut id, 12_000, |sent| sent == 1);
        take_answers(&mut link, &mut lanes, 1, 12_000);
        drop(link);
        assert!(child.wait());
    }
}

#[test]
fn a_lane_that_is_much_too_large_shrinks_at_a_later_send() {
    for listens in Listens::BOTH {
        let mut session = Session::open(listens);
        for round in 1..=3 {
            session.call(&request(300_000));
            session.driver.end_mut().set_shrink_after(Duration::ZERO);
            while session.driver.lane_stats()[0].size > Geometry::DEFAULT.size() {
                session.call(&request(10));
            }
            assert_eq!(session.driver.lane_stats()[0].shrinks, round);
            session.driver.end_mut().set_shrink_after(Duration::MAX);
        }
        session.close();
    }
}

#[test]
fn a_trim_shrinks_both_lanes_and_leaves_messages_in_flight_intact() {
    for listens in Listens::BOTH {
        let mut session = Session::open(listens);
        let mut buffer = Vec::new();
        for round in 1..=5 {
            let until = &mut Deadline::at(test_deadline().unwrap());
            let large = session.driver.submit(&request(50_000)).unwrap();
            session.driver.trim().unwrap();
            assert!(!session.driver.is_trimmed());
            let reply = session.driver.wait_for_reply(until, &mut buffer).unwrap();
            assert_eq!((reply.ticket, reply.len), (large, 50_000));
            session.call(&request(10));
            assert!(session.driver.is_trimmed(), "its answer came before that of the call");
            for lane in session.driver.lane_stats() {
                let counts = (lane.size, lane.grows, lane.shrinks);
                assert_eq!(counts, (Geometry::DEFAULT.size(), round, round), "{listens:?}");
            }
        }
        session.close();
    }
}

#[test]
fn messages_travel_in_memory_of_their_own_both_ways() {
    for listens in Listens::BOTH {
        let Session { mut driver, mut child, .. } = Session::open(listens);
        let mut buffer = Vec::new();
        for len in [1, 4095, 4096, 4097, 1 << 20, 3 << 20, 5] {
            let request = request(len);
            let sealed = sealed(&request);
            // One in a lane too: the two keep their order.
            let ticket = driver
                .submit_attached(len as u64, false, |link, id| link.pass_attachment(id, 0, &sealed))
                .unwrap();
            drop(sealed);
            let small = driver.submit(&[7]).unwrap();
            let until = &mut Deadline::at(test_deadline().unwrap());
            let reply = driver.wait_for_reply(until, &mut buffer).unwrap();
            assert_eq!((reply.ticket, reply.attached), (ticket, true));
            let (attachment, map) = driver.port_mut().take_attachment(ticket.id()).unwrap();
            assert_eq!((attachment.id, attachment.len), (ticket.id(), len as u64));
            assert!(*map == *answer(&request), "{len} bytes");
            let reply = driver.wait_for_reply(until, &mut buffer).unwrap();
            assert_eq!((reply.ticket, buffer[0]), (small, 8));
        }
        let [own, peer] = driver.lane_stats();
        assert_eq!((own.attaches, peer.attaches), (7, 7));
        driver.close(bellwire_core::wire::CloseReason::Normal);
        drop(driver);
        assert!(child.wait());
    }
}

#[test]
fn many_messages_wait_for_their_turn() {
    // More than are taken in before a record asks, and than the pipe holds at once.
    const MESSAGES: u64 = 60;
    for listens in Listens::BOTH {
        let Session { mut driver, mut child, .. } = Session::open(listens);
        let sealed = sealed(&request(5000));
        let mut tickets = Vec::new();
        for _ in 0..MESSAGES {
            let pass = |link: &Link, id| link.pass_attachment(id, 0, &sealed);
            tickets.push(driver.submit_attached(5000, false, pass).unwrap());
        }
        let mut buffer = Vec::new();
        for ticket in tickets {
            let until = &mut Deadline::at(test_deadline().unwrap());
            let reply = driver.wait_for_reply(until, &mut buffer).unwrap();
            assert_eq!((reply.ticket, reply.attached), (ticket, true));
            let (_, map) = driver.port_mut().take_attachment(ticket.id()).unwrap();
            assert!(*map == *answer(&request(5000)));
        }
        driver.close(bellwire_core::wire::CloseReason::Normal);
        drop(driver);
        assert!(child.wait());
    }
}
