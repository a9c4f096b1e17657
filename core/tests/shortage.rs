//! A shortage of memory or descriptors: the end that needs them gets an error, nothing is lost, and the session
//! continues when there are some.

use std::time::Duration;

use bellwire_core::Deadline;
use bellwire_core::call::SubmitError;
use bellwire_core::drive::CallFailed;
use bellwire_core::resize::{FollowError, ResizeError, Resource, Shortage};
use bellwire_core::wire::Status;
use bellwire_sim::{Act, Sim, SimEnd, SimPort, SimServer};

use crate::pair::{Pair, growing, payload, size};
use crate::resize::{Rng, call, driver_in, echo, pipeline, reply_of, shuffling};

fn short(resource: Resource, bytes: u64) -> Shortage {
    Shortage { resource, bytes, code: 0 }
}

/// An early offer is only an optimization.
#[test]
fn an_early_offer_that_fails_is_retried_when_it_is_needed() {
    let mut pair = Pair::new(growing());
    pair.ends[0].runs_short(Act::Offer, 0..1, Resource::Memory);
    while pair.push(0, 1, 100).is_ok() {}
    assert!(!pair.maintenance(0));
    assert_eq!((pair.ends[0].acts(Act::Offer), pair.lanes[0].offered()), (1, None));
    pair.send(0, 2, 3000).unwrap();
    assert_eq!((pair.ends[0].acts(Act::Offer), pair.epoch(0).number), (2, 2));
    let _ = pair.commit(0);
    assert_eq!(pair.take_all(1).last(), Some(&2));
}

/// A stepping stone was used, and the next one failed: the lane is larger, and usable.
#[test]
fn a_shortage_behind_a_stepping_stone_leaves_the_lane_usable() {
    let mut pair = Pair::new(growing());
    while pair.push(0, 1, 100).is_ok() {}
    pair.maintenance(0);
    pair.ends[0].runs_short(Act::Offer, 1..2, Resource::Memory);
    let failed = pair.send(0, 2, 10_000);
    assert_eq!(failed, Err(ResizeError::Short(short(Resource::Memory, 32_768))));
    assert_eq!((pair.epoch(0).number, pair.epoch(0).size.size()), (2, 8192));
    pair.send(0, 3, 4000).unwrap();
    pair.publish(0, 4, 10_000);
    assert_eq!(pair.take_all(1).split_off(31), [3, 4]);
}

/// What follows the switch may wait; what this end sends may not.
#[test]
fn an_end_that_cannot_follow_can_still_send() {
    let mut pair = Pair::new(growing());
    pair.publish(0, 1, 10_000);
    pair.ends[1].runs_short(Act::Follow, 0..2, Resource::Maps);
    for id in 0..2 {
        let switch = pair.peek(1).unwrap().unwrap();
        let failed = pair.follow(1, &switch);
        assert_eq!(failed, Err(FollowError::Short(short(Resource::Maps, 32_768))));
        pair.publish(1, id, 500);
        assert_eq!(pair.take(0), Some((id, 500)));
    }
    assert_eq!(pair.take_all(1), [1]);
}

/// The answers before and after the one that cannot be sent are sent.
#[test]
fn an_owed_answer_without_memory_is_cut_and_the_others_are_sent() {
    let handler = |request: &[u8]| {
        let len = u64::from_le_bytes(request.try_into().unwrap());
        (Status::Ok, payload(len, len as usize))
    };
    let mut driver = driver_in(Sim { lane: size(65_536), ..growing() }, SimServer::new(handler));
    let lens: Vec<u64> = (0..60).map(|id| if id == 50 { 60_000 } else { 1000 + id }).collect();
    // An early offer, and the one that the long answer needs.
    driver.port().at_peer(|end| end.runs_short(Act::Offer, 0..u64::MAX, Resource::Memory));
    for len in &lens {
        driver.push(&len.to_le_bytes()).unwrap();
    }
    driver.commit();
    driver.port().run_for(Duration::from_millis(1));
    for (id, len) in (1..).zip(lens) {
        let (reply, bytes) = reply_of(&mut driver);
        assert_eq!(reply.ticket.id(), id, "in order");
        let expected = if len == 60_000 { Status::Short } else { Status::Ok };
        assert_eq!(reply.status, expected);
        if reply.status == Status::Ok {
            assert_eq!(bytes, payload(len, len as usize));
        }
    }
}

#[test]
fn a_message_that_cannot_be_mapped_stays_until_it_can() {
    let mut driver = driver_in(growing(), echo().attaching(5000));
    driver.port().end().runs_short(Act::Take, 0..2, Resource::Maps);
    driver.port().at_peer(|end| end.runs_short(Act::Take, 0..3, Resource::Maps));
    let pass = |port: &SimPort, id| port.end().pass(id, &payload(id, 6000));
    driver.submit_attached(6000, false, pass).unwrap();
    let mut buffer = Vec::new();
    let reply = driver.wait_for_reply(&mut { Deadline::NEVER }, &mut buffer).unwrap();
    assert!(reply.attached, "the server tried until it could");
    for _ in 0..2 {
        assert!(matches!(driver.port().end().take(1), Err(FollowError::Short(_))));
    }
    assert_eq!(driver.port().end().take(1).unwrap(), payload(1, 6000));
}

#[test]
fn a_trim_without_memory_fails_and_can_be_tried_again() {
    let mut driver = driver_in(growing(), echo());
    call(&mut driver, 1, 50_000);
    let offers = driver.port().end().acts(Act::Offer);
    driver.port().end().runs_short(Act::Offer, offers..offers + 1, Resource::Memory);
    let error = SubmitError::Short(short(Resource::Memory, 4096));
    assert_eq!(driver.trim(), Err(CallFailed::Submit(error)));
    assert_eq!(driver.lane_stats()[0].size, 131_072);
    call(&mut driver, 2, 50_000);
    driver.trim().unwrap();
    assert_eq!(driver.lane_stats()[0].size, 4096);
}

/// Every action of either end has a shortage now and then; every request that was sent is answered once, in full or
/// by the matching error.
#[test]
fn a_session_lives_through_shortages_at_every_step() {
    let mut lacked = 0;
    for act in [Act::Offer, Act::Follow] {
        for number in 0..12 {
            for at_peer in [false, true] {
                let mut driver = driver_in(growing(), shuffling(Rng(number + 1), 6));
                let which = number..number + 1 + number % 3;
                let script = |end: &SimEnd| end.runs_short(act, which, Resource::Memory);
                if at_peer {
                    driver.port().at_peer(script);
                } else {
                    script(driver.port().end());
                }
                let mut rng = Rng(number * 3 + 1);
                lacked += pipeline(&mut driver, &mut rng, (150, 20, 30_000), (4, 10));
                assert_eq!((driver.in_flight(), driver.ended()), (0, None));
            }
        }
    }
    assert!(lacked > 50, "{lacked}");
}
