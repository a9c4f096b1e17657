//! An end that dies, or closes the lane, at any step of a resize: what it published arrives, and whether a handler can have
//! run is known.

use std::time::Duration;

use bellwire_core::drive::{CallDriver, CallFailed};
use bellwire_core::lane::{Epoch, Lanes, PushError};
use bellwire_core::resize::{self, ResizeError, Resource};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{CloseReason, Header, Kind, Status};
use bellwire_core::{Deadline, Executed, PeerMemory, Port, Word};
use bellwire_sim::{Act, Event, Serving, SimEnd, SimPort, Step, Taken};

use crate::drive::by_hand;
use crate::pair::{Pair, growing, payload, size};
use crate::resize::{driver_in, echo};

/// How far the owner of a lane gets towards the next epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Steps {
    Nothing,
    Offered,
    Switched,
    Written,
    Published,
}

const STEPS: [Steps; 5] =
    [Steps::Nothing, Steps::Offered, Steps::Switched, Steps::Written, Steps::Published];

/// Sends a record of 3000 bytes as far as `steps`, through an epoch of 8 KiB.
fn send_large(end: &SimEnd, lanes: &mut Lanes, kind: Kind, id: u64, steps: Steps) {
    let mut port = end.clone();
    if steps < Steps::Offered {
        return;
    }
    let epoch = lanes.next_epoch(end.peer(), size(8192)).unwrap();
    port.offer(epoch).unwrap();
    lanes.offer(epoch);
    if steps < Steps::Switched {
        return;
    }
    assert_eq!(lanes.switch(end.own()), Some(epoch));
    port.adopt(epoch);
    if steps < Steps::Written {
        return;
    }
    let header = Header::new(kind, Status::Ok, id, 3000);
    lanes.push(end.own(), end.peer(), header, &payload(id, 3000)).unwrap();
    if steps == Steps::Published {
        let _ = lanes.commit(end.own(), end.peer());
    }
}

/// Returns the answers that arrive before its end.
fn answers(driver: &mut CallDriver<SimPort>) -> (Vec<u64>, CallFailed) {
    let mut buffer = Vec::new();
    let mut ids = Vec::new();
    loop {
        match driver.wait_for_reply(&mut { Deadline::NEVER }, &mut buffer) {
            Ok(reply) => {
                let id = reply.ticket.id();
                assert_eq!(&buffer[..reply.len], &payload(id, reply.len));
                ids.push(id);
            }
            Err(failed) => return (ids, failed),
        }
    }
}

#[test]
fn a_server_that_dies_at_any_step_of_its_switch() {
    for steps in STEPS {
        for rings in [false, true] {
            let peer = by_hand(move |end, lanes| {
                for _ in 0..2 {
                    let record = lanes.peek(end.peer()).unwrap().unwrap();
                    lanes.take_before_acting(end.own(), &record);
                }
                let header = Header::new(Kind::Response, Status::Ok, 1, 100);
                lanes.push(end.own(), end.peer(), header, &payload(1, 100)).unwrap();
                let _ = lanes.commit(end.own(), end.peer());
                send_large(end, lanes, Kind::Response, 2, steps);
                if rings {
                    end.ring();
                }
                Step::Gone
            });
            let mut driver = driver_in(growing(), peer);
            let tickets: Vec<_> =
                [1, 2, 3].map(|len| driver.submit(&vec![0; len]).unwrap()).into_iter().collect();
            let (ids, failed) = answers(&mut driver);
            let arrived = steps == Steps::Published;
            assert_eq!(ids, if arrived { vec![1, 2] } else { vec![1] }, "{steps:?}");
            assert_eq!(failed, CallFailed::PeerGone(Executed::Maybe));
            assert_eq!(driver.executed(tickets[1]), Executed::Maybe, "taken");
            assert_eq!(driver.executed(tickets[2]), Executed::No, "not taken");
            assert_eq!(driver.lane_stats()[1].epoch, 1 + u32::from(arrived));
            assert_eq!(driver.submit(b"y"), Err(CallFailed::PeerGone(Executed::No)));
        }
    }
}

/// The server dies before it followed, after it followed, or after it took what is behind the switch.
#[test]
fn a_server_that_dies_at_any_step_of_following() {
    for records in 0..=3 {
        let peer = by_hand(move |end, lanes| {
            for _ in 0..records {
                let record = lanes.peek(end.peer()).unwrap().unwrap();
                if record.kind == Kind::Switch {
                    resize::follow(&mut end.clone(), lanes, &record).unwrap();
                } else {
                    lanes.take_before_acting(end.own(), &record);
                }
            }
            let _ = lanes.peek(end.peer()).unwrap();
            Step::Gone
        });
        let mut driver = driver_in(growing(), peer);
        let first = driver.submit(&payload(1, 100)).unwrap();
        let second = driver.submit(&payload(2, 5000)).unwrap();
        let third = driver.submit(&payload(3, 6000)).unwrap();
        assert_eq!(answers(&mut driver), (Vec::new(), CallFailed::PeerGone(Executed::Maybe)));
        let ran = |at| if records >= at { Executed::Maybe } else { Executed::No };
        let executed = [first, second, third].map(|ticket| driver.executed(ticket));
        assert_eq!(executed, [ran(1), ran(3), Executed::No], "{records} records taken");
        assert_eq!(driver.give_up(second), ran(3));
    }
}

/// The memory of the switch lies in the caller's mailbox or on the socket: it needs nothing of a dead server.
#[test]
fn a_caller_follows_a_server_that_is_long_dead() {
    let mut driver = driver_in(growing(), echo());
    let lens = [100_usize, 5000, 200, 20_000, 100_000];
    for len in lens {
        driver.submit(&payload(len as u64, len)).unwrap();
    }
    driver.port().run_for(Duration::from_millis(1));
    driver.port().after(Duration::ZERO, Event::PeerGone);
    driver.port().end().runs_short(Act::Follow, 0..1, Resource::Descriptors);
    let mut buffer = Vec::new();
    let mut arrived = Vec::new();
    loop {
        match driver.wait_for_reply(&mut { Deadline::NEVER }, &mut buffer) {
            Ok(reply) => {
                assert_eq!(&buffer[..reply.len], &payload(reply.len as u64, reply.len));
                arrived.push(reply.len);
            }
            Err(CallFailed::Short(_)) => {}
            Err(failed) => {
                assert_eq!(failed, CallFailed::PeerGone(Executed::Maybe));
                break;
            }
        }
    }
    assert_eq!(arrived, lens);
}

#[test]
fn a_caller_that_dies_at_any_step_of_its_switch() {
    for steps in STEPS {
        let mut pair = Pair::new(growing());
        pair.push(0, 1, 100).unwrap();
        let _ = pair.commit(0);
        let Pair { ends: [end, server], lanes: [lanes, _] } = &mut pair;
        send_large(end, lanes, Kind::Request, 2, steps);
        // From here on end 0 no longer runs.
        let mut serving = Serving::new(server, 10);
        let mut taken = Vec::new();
        while let Ok(Some(Taken::Request { id, payload: bytes, .. })) = serving.take() {
            assert_eq!(bytes, payload(id, bytes.len()));
            taken.push(id);
            // Its answers go nowhere, and grow the lane all the same.
            serving.respond(id, Status::Ok, &payload(id, 10_000));
            serving.commit();
        }
        let arrived = steps == Steps::Published;
        assert_eq!(taken, if arrived { vec![1, 2] } else { vec![1] }, "{steps:?}");
        assert_eq!(serving.lane_stats()[1].epoch, 1 + u32::from(arrived));
        assert_eq!(serving.counts().in_flight(), 0);
    }
}

/// Epochs that a dead peer will not follow are no reason to wait, nor to loop for ever.
#[test]
fn a_caller_of_a_dead_server_sends_no_more_epochs_than_may_be_outstanding() {
    let mut driver = driver_in(growing(), |_: &SimEnd| Step::Parked(None));
    let mut len = 1500;
    while driver.submit(&vec![0; len]).is_ok() {
        len *= 2;
    }
    driver.port().after(Duration::ZERO, Event::PeerGone);
    let failed = driver.wait_for_room(&mut { Deadline::NEVER });
    assert_eq!(failed, Err(CallFailed::PeerGone(Executed::No)));
    assert_eq!(driver.trim(), Err(CallFailed::PeerGone(Executed::No)));
}

/// An epoch that was offered and is never used is closed with the session.
#[test]
fn a_close_with_an_epoch_offered_and_not_used() {
    for full in [false, true] {
        let mut pair = Pair::new(growing());
        let mut sent = Vec::new();
        while pair.push(0, sent.len() as u64, 100).is_ok() {
            sent.push(sent.len() as u64);
        }
        pair.maintenance(0);
        assert_eq!(pair.lanes[0].offered(), Some(Epoch { number: 2, size: size(8192) }));
        if !full {
            let _ = pair.commit(0);
            assert_eq!(pair.take_all(1), sent);
            let _ = pair.commit(1);
            sent.clear();
        }
        close(&mut pair, &sent, 1);
    }
}

#[test]
fn a_close_right_after_a_switch() {
    for publish in [false, true] {
        let mut pair = Pair::new(growing());
        pair.push(0, 1, 100).unwrap();
        pair.grow(0, size(16_384)).unwrap();
        if publish {
            let _ = pair.commit(0);
        }
        close(&mut pair, &[1], 2);
    }
}

/// End 0 closes the lane; end 1 gets what was sent, and then that, in this epoch.
fn close(pair: &mut Pair, sent: &[u64], epoch: u32) {
    let Pair { ends: [end, _], lanes: [lanes, _] } = pair;
    let _ = lanes.close(end.own(), end.peer(), CloseReason::Stopping);
    for id in sent {
        assert_eq!(pair.take(1).map(|(id, _)| id), Some(*id));
    }
    let mut record = pair.peek(1).unwrap().unwrap();
    if record.kind == Kind::Switch {
        pair.follow(1, &record).unwrap();
        record = pair.peek(1).unwrap().unwrap();
    }
    assert_eq!((record.kind, record.status), (Kind::Close, CloseReason::Stopping as u16));
    assert_eq!(pair.lanes[1].received().epoch, epoch);
    pair.lanes[1].take(&record);
    assert_eq!(pair.peek(1), Ok(None));
    // Nothing can follow, and nothing more is passed.
    let (offers, last) = (pair.ends[0].acts(Act::Offer), pair.epoch(0));
    let closed = ResizeError::Push(PushError::Closed);
    assert_eq!(pair.send(0, 9, 5), Err(closed));
    assert_eq!(pair.send(0, 9, 50_000), Err(closed));
    if pair.epoch(0).size.size() > 4096 || pair.lanes[0].offered().is_some() {
        assert_eq!(pair.shrink(0), Err(closed));
    }
    assert_eq!(pair.grow(0, size(65_536)), Err(closed));
    assert_eq!((pair.ends[0].acts(Act::Offer), pair.epoch(0)), (offers, last));
    // The other lane goes on.
    pair.publish(1, 1, 20_000);
    assert_eq!(pair.take_all(0), [1]);
}

/// A session that ends while new lanes of both ends are in flight.
#[test]
fn a_driver_that_closes_after_it_grew() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut serving = None;
    let server = move |end: &SimEnd| {
        let serving = serving.get_or_insert_with(|| Serving::new(end, 100));
        serving.wake_up();
        while let Ok(Some(Taken::Request { id, payload, .. })) = serving.take() {
            serving.respond(id, Status::Ok, &payload);
        }
        serving.commit();
        sender.send((serving.counts().accepted, serving.closed())).unwrap();
        if serving.closed().is_some() { Step::Parked(None) } else { serving.park() }
    };
    let mut driver = driver_in(growing(), server);
    for len in [100, 5000, 50_000] {
        driver.push(&payload(1, len)).unwrap();
    }
    driver.close(CloseReason::Normal);
    driver.port().run_peer();
    assert_eq!(receiver.try_iter().last(), Some((3, Some(CloseReason::Normal))));
    // The answers are there, though no call waits for them.
    assert!(driver.port().peer().load(Word::Tail, Ordering::Acquire) > 55_000);
}
