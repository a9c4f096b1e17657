//! Lanes that grow because they are often full, or soon will be.

use bellwire_core::drive::CallFailed;
use bellwire_core::lane::{Epoch, FULL_LIMIT, PushError};
use bellwire_core::{Deadline, Limits};
use bellwire_sim::{Act, Sim, SimEnd, Step};

use super::{MILLI, NEVER, Rng, driver_in, echo, pipeline, reply_of, shuffling};
use crate::pair::{Pair, growing, limited, payload, size};

#[test]
fn the_next_epoch_is_offered_when_three_quarters_are_full_and_then_only_switched_to() {
    let mut pair = Pair::new(growing());
    let mut used = 0;
    while used < 3072 - 128 - 32 {
        pair.push(0, 1, 112).unwrap();
        used += 128;
        assert!(!pair.maintenance(0));
        assert_eq!(pair.lanes[0].offered(), None, "{used} bytes used");
    }
    while pair.push(0, 1, 112).is_ok() {
        pair.maintenance(0);
    }
    assert_eq!(pair.lanes[0].offered(), Some(Epoch { number: 2, size: size(8192) }));
    assert_eq!(pair.ends[0].acts(Act::Offer), 1);
    let to = pair.lanes[0].should_grow().expect("it is full, and one was offered");
    pair.grow(0, to).unwrap();
    assert_eq!(pair.epoch(0), Epoch { number: 2, size: size(8192) });
    assert_eq!(pair.ends[0].acts(Act::Offer), 1, "only a switch");
    pair.push(0, 2, 112).unwrap();
    let _ = pair.commit(0);
    assert_eq!(pair.take_all(1).last(), Some(&2));
}

/// The limit of shared memory leaves no room for the next epoch until a message was taken; a waiter for room in the
/// lane need not wait for that.
#[test]
fn an_early_offer_that_fails_leaves_the_wait_for_room_as_it_is() {
    let limits = Limits { max_shared_bytes_per_session: 4096 * 4, ..Limits::default() };
    let mut pair = Pair::new(limited(limits, limits));
    for _ in 0..10 {
        pair.push(0, 1, 112).unwrap();
    }
    pair.attach(0, 2, 4096).unwrap();
    let missing = loop {
        match pair.push(0, 1, 112) {
            Ok(()) => {}
            Err(PushError::Full { missing }) => break missing,
            Err(error) => panic!("{error}"),
        }
    };
    assert!(missing <= 128);
    assert!(!pair.maintenance(0));
    assert_eq!((pair.lanes[0].offered(), pair.ends[0].acts(Act::Offer)), (None, 0));
    let _ = pair.commit(0);
    assert!(!pair.has_room(0));
    pair.take(1).unwrap();
    let _ = pair.commit(1);
    assert!(pair.has_room(0));
}

#[test]
fn an_offered_epoch_that_is_too_small_is_a_stepping_stone() {
    let mut pair = Pair::new(growing());
    while pair.push(0, 1, 112).is_ok() {}
    pair.maintenance(0);
    assert_eq!(pair.lanes[0].offered(), Some(Epoch { number: 2, size: size(8192) }));
    pair.send(0, 2, 10_000).unwrap();
    assert_eq!(pair.epoch(0), Epoch { number: 3, size: size(32_768) });
    assert_eq!(pair.ends[0].acts(Act::Offer), 2);
    let _ = pair.commit(0);
    assert_eq!(pair.take_all(1).last(), Some(&2));
    let stats = pair.lanes[1].received();
    assert_eq!((stats.epoch, stats.grows), (3, 2));
}

/// Without an offer it takes a full lane for half of the last 32 records.
#[test]
fn a_lane_that_is_often_full_grows_and_one_that_seldom_is_does_not() {
    for (every, grows) in [(1, true), (2, true), (3, false), (8, false)] {
        let mut pair = Pair::new(growing());
        while pair.push(0, 0, 112).is_ok() {}
        let _ = pair.commit(0);
        let mut should = false;
        for id in 0..200 {
            if id % every == 0 {
                assert!(matches!(pair.push(0, id, 112), Err(PushError::Full { .. })));
                should |= pair.lanes[0].should_grow().is_some();
            }
            // Room for one record; or for as many as fit until the next is to find the lane full.
            for _ in 0..if id % every == 0 { every } else { 0 } {
                pair.take(1);
            }
            let _ = pair.commit(1);
            pair.push(0, id, 112).unwrap();
            let _ = pair.commit(0);
        }
        assert_eq!(should, grows, "every {every}");
    }
}

#[test]
fn a_lane_that_was_often_full_grows_no_further_than_its_cap() {
    let mut driver = driver_in(growing(), shuffling(Rng(9), 30));
    let mut rng = Rng(3);
    assert_eq!(pipeline(&mut driver, &mut rng, (30_000, 20_000, 600), (1000, NEVER)), 0);
    let [own, _] = driver.lane_stats();
    assert!(own.size > 4096 && own.size <= FULL_LIMIT, "{own:?}");
    // A message that needs it exceeds the limit; after that, fullness does not.
    let mut pair = Pair::new(growing());
    pair.publish(0, 0, FULL_LIMIT as usize / 4);
    assert_eq!(pair.take_all(1), [0]);
    let _ = pair.commit(1);
    for _ in 0..100 {
        while pair.push(0, 1, 5000).is_ok() {}
        pair.maintenance(0);
        assert_eq!((pair.lanes[0].offered(), pair.lanes[0].should_grow()), (None, None));
        let _ = pair.commit(0);
        pair.take(1);
        let _ = pair.commit(1);
    }
}

/// A larger lane is no help against a peer that does not read.
#[test]
fn a_lane_does_not_grow_twice_for_a_peer_that_never_reads() {
    let mut driver = driver_in(growing(), |_: &SimEnd| Step::Parked(None));
    for _ in 0..10 {
        while driver.submit(&[0; 100]).is_ok() {}
        let failed = driver.wait_for_room(&mut Deadline::within(MILLI)).unwrap_err();
        assert!(matches!(failed, CallFailed::Deadline(_)), "{failed}");
    }
    let [own, _] = driver.lane_stats();
    assert_eq!((own.epoch, own.size), (2, 8192));
    assert_eq!(driver.port().end().acts(Act::Offer), 1);
}

/// The answers of a server find the lane full as often; it grows step by step, as its peer reads.
#[test]
fn a_servers_lane_grows_by_fullness_as_far_as_its_peer_reads() {
    let mut driver = driver_in(Sim { lane: size(65_536), ..growing() }, echo());
    let mut sizes = vec![4096];
    for round in 0..10 {
        for id in 0..400 {
            driver.push(&payload(round * 1000 + id, 100)).unwrap();
        }
        driver.commit();
        driver.port().run_for(MILLI);
        for id in 0..400 {
            assert_eq!(reply_of(&mut driver).1, payload(round * 1000 + id, 100));
            sizes.push(driver.lane_stats()[1].size);
        }
    }
    assert!(sizes.is_sorted() && sizes.last() > Some(&8192) && sizes.last() <= Some(&FULL_LIMIT));
}

/// The largest lane size is agreed: fullness respects it too.
#[test]
fn fullness_grows_no_lane_past_the_agreed_size() {
    let limits = Limits { max_lane: size(8192), ..Limits::default() };
    let mut driver = driver_in(limited(limits, Limits::default()), shuffling(Rng(9), 30));
    assert_eq!(pipeline(&mut driver, &mut Rng(3), (3000, 500, 600), (1000, NEVER)), 0);
    let [own, _] = driver.lane_stats();
    assert_eq!((own.size, own.grows), (8192, 1));
}
