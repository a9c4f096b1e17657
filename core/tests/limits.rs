//! What both ends agreed on: a message above it fails before anything is written, and the session goes on.

use bellwire_core::lane::PushError;
use bellwire_core::resize::ResizeError;
use bellwire_core::{Geometry, LimitOwner, Limits};
use bellwire_sim::Act;

use crate::pair::{Pair, growing, limited};

const ROOMY: Limits = Limits {
    max_message: 1 << 30,
    max_lane: Geometry::LARGE,
    max_shared_bytes_per_session: 1 << 30,
};

/// Limits of the own end, of the peer, and whose counts.
fn both(limits: Limits) -> [(Limits, Limits, LimitOwner); 3] {
    [
        (limits, ROOMY, LimitOwner::Own),
        (ROOMY, limits, LimitOwner::Peer),
        (limits, limits, LimitOwner::Own),
    ]
}

fn too_large(len: u64, limit: u64, owner: LimitOwner) -> Result<(), PushError> {
    Err(PushError::TooLarge { len, limit, owner })
}

/// The page and the lane count, and what is in flight.
#[test]
fn shared_memory_above_the_limit_is_too_large_and_the_session_stays_open() {
    let limit = 4096 + 4096 + 16_384;
    for (own, peer, owner) in both(Limits { max_shared_bytes_per_session: limit, ..ROOMY }) {
        let mut pair = Pair::new(limited(own, peer));
        let too_large = |len| too_large(len, limit, owner);
        // A lane of 32 KiB is too much, a memfd of three pages is not.
        let most = ROOMY.max_lane.max_payload() as u64;
        let rather_attach = Err(PushError::Attach { len: 8145, limit: most });
        assert_eq!(pair.push(0, 1, 8145), rather_attach);
        let attach = |pair: &mut Pair, bytes| pair.lanes[0].can_attach(pair.ends[0].peer(), bytes);
        assert_eq!(attach(&mut pair, 16_385), too_large(16_385), "five pages");
        assert_eq!(attach(&mut pair, 16_384), Ok(()));
        assert_eq!((pair.lanes[0].position(), pair.ends[0].acts(Act::Offer)), (0, 0));
        pair.send(0, 1, 8144).unwrap();
        assert_eq!(pair.epoch(0).size.size(), 16_384);
        // The lane of 4 KiB counts until it was left by the peer too: that is worth waiting for.
        assert_eq!(attach(&mut pair, 1), Err(PushError::Full { missing: 16 }));
        let _ = pair.commit(0);
        assert_eq!(pair.take_all(1), [1]);
        let _ = pair.commit(1);
        assert_eq!(attach(&mut pair, 4096), Ok(()));
        assert_eq!(attach(&mut pair, 4097), too_large(4097));
        assert_eq!(pair.push(0, 1, 8145), rather_attach);
        pair.shrink(0).unwrap();
        pair.send(0, 2, 8000).unwrap_err();
        let _ = pair.commit(0);
        assert_eq!(pair.take_all(1), []);
        let _ = pair.commit(1);
        pair.publish(0, 2, 8000);
        assert_eq!(pair.take_all(1), [2]);
    }
}

#[test]
fn attachments_count_until_they_are_taken() {
    let limit = 4096 + 4096 + 3 * 4096;
    let mut pair =
        Pair::new(limited(Limits { max_shared_bytes_per_session: limit, ..ROOMY }, ROOMY));
    for id in 0..3 {
        pair.attach(0, id, 4000).unwrap();
    }
    let can = |pair: &mut Pair, bytes| pair.lanes[0].can_attach(pair.ends[0].peer(), bytes);
    assert_eq!(can(&mut pair, 1), Err(PushError::Full { missing: 16 }));
    assert_eq!(pair.send(0, 9, 3000), Err(ResizeError::Push(PushError::Full { missing: 16 })));
    let armed = pair.arm(0, true);
    assert!(matches!(armed, bellwire_core::lane::Armed::Sleep { .. }));
    for left in [2, 1] {
        let record = pair.peek(1).unwrap().unwrap();
        pair.lanes[1].take(&record);
        assert_eq!(pair.commit(1).space, left == 2, "once");
    }
    assert_eq!(can(&mut pair, 8192), Ok(()));
    pair.send(0, 9, 3000).unwrap();
    assert_eq!(pair.epoch(0).size.size(), 8192);
}

#[test]
fn lanes_that_keep_their_size_know_no_epochs() {
    let fixed = bellwire_sim::Sim { limits: None, ..growing() };
    let mut pair = Pair::new(fixed);
    let most = pair.lanes[0].max_payload() as u64;
    assert_eq!(pair.push(0, 1, most as usize + 1), too_large(most + 1, most, LimitOwner::Own));
    while pair.push(0, 1, 100).is_ok() {}
    assert!(!pair.maintenance(0));
    assert_eq!(pair.lanes[0].offered(), None);
    assert_eq!((pair.lanes[0].should_grow(), pair.lanes[0].is_grown()), (None, false));
}
