//! What both ends agreed on: a message above it fails before anything is written, and the session goes on.

use bellwire_core::call::SubmitError;
use bellwire_core::drive::CallFailed;
use bellwire_core::lane::PushError;
use bellwire_core::resize::ResizeError;
use bellwire_core::wire::{Header, Kind, Status};
use bellwire_core::{Geometry, Limits, Whose};
use bellwire_sim::{Act, SimPort, SimServer};

use crate::pair::{Pair, growing, limited, payload, size};
use crate::resize::{call, drive_in, echo, reply_of};

const ROOMY: Limits = Limits {
    max_message: 1 << 30,
    max_lane: Geometry::LARGE,
    max_shared_bytes_per_session: 1 << 30,
};

/// Limits of the own end, of the peer, and whose counts.
fn both(limits: Limits) -> [(Limits, Limits, Whose); 3] {
    [(limits, ROOMY, Whose::Own), (ROOMY, limits, Whose::Peer), (limits, limits, Whose::Own)]
}

fn too_large(len: u64, limit: u64, whose: Whose) -> Result<(), PushError> {
    Err(PushError::TooLarge { len, limit, whose })
}

#[test]
fn a_message_above_the_limit_is_too_large_and_the_session_goes_on() {
    for limit in [0, 1, 1000, 2000, 2001, 50_000] {
        for (own, peer, whose) in both(Limits { max_message: limit, ..ROOMY }) {
            let mut drive = drive_in(limited(own, peer), echo());
            assert_eq!(drive.end().lanes().max_message(), limit);
            for len in [limit + 1, limit + 100_000, 1 << 25] {
                let failed = drive.submit(&vec![7; len as usize]);
                let error = SubmitError::Push(PushError::TooLarge { len, limit, whose });
                assert_eq!(failed, Err(CallFailed::Submit(error)));
                let mut passed = false;
                let attached = drive.submit_attached(len, false, |_: &SimPort, _| {
                    passed = true;
                    Ok(())
                });
                assert_eq!(attached, Err(CallFailed::Submit(error)));
                assert!(!passed);
            }
            assert_eq!((drive.in_flight(), drive.lane_stats()[0].bytes), (0, 0));
            assert_eq!(drive.port().end().acts(Act::Offer), 0);
            call(&mut drive, 1, limit as usize);
        }
    }
}

#[test]
fn an_answer_above_the_limit_says_so_and_the_session_goes_on() {
    for (own, peer, _) in both(Limits { max_message: 5000, ..ROOMY }) {
        let handler = |request: &[u8]| (Status::Ok, payload(1, request.len() * 1000));
        let mut drive = drive_in(limited(own, peer), SimServer::new(handler).attaching(4500));
        for len in [6, 5, 100, 0] {
            drive.submit(&vec![0; len]).unwrap();
            let (reply, _) = reply_of(&mut drive);
            let status = if len <= 5 { Status::Ok } else { Status::TooLarge };
            assert_eq!((reply.status, reply.attached), (status, len == 5));
        }
    }
}

/// A message too long for the largest lane travels in memory of its own; one byte less does not.
#[test]
fn a_message_above_the_largest_lane_has_to_be_attached() {
    for (own, peer, _) in both(Limits { max_lane: size(16_384), ..ROOMY }) {
        let mut pair = Pair::new(limited(own, peer));
        let most = pair.lanes[0].max_payload();
        assert_eq!(most, 16_384 / 2 - 48);
        for len in [most + 1, 1 << 20, 1 << 29] {
            let attach = PushError::Attach { len: len as u64, limit: most as u64 };
            let header = Header::new(Kind::Request, Status::Ok, 1, 0);
            let (own, peer) = (pair.ends[0].own(), pair.ends[0].peer());
            let failed = pair.lanes[0].push(own, peer, header, &vec![0; len]);
            assert_eq!(failed, Err(attach));
        }
        assert_eq!(pair.lanes[0].position(), 0);
        // Whatever the lane's size is.
        pair.send(0, 1, most).unwrap();
        assert_eq!(pair.epoch(0).size.size(), 16_384);
        let _ = pair.commit(0);
        assert_eq!(pair.take(1), Some((1, most)));
        assert!(matches!(pair.push(0, 2, most + 1), Err(PushError::Attach { .. })));
    }
    let mut drive = drive_in(limited(Limits { max_lane: size(16_384), ..ROOMY }, ROOMY), {
        SimServer::new(|request: &[u8]| (Status::Ok, payload(3, request.len() * 100)))
    });
    for len in [1, 200, 81, 82, 5] {
        drive.submit(&vec![0; len]).unwrap();
        let (reply, answer) = reply_of(&mut drive);
        assert_eq!(reply.attached, len * 100 > drive.end().lanes().max_payload());
        assert_eq!(answer, payload(3, len * 100));
    }
}

/// The page and the lane count, and what is in flight.
#[test]
fn shared_memory_above_the_limit_is_too_large_and_the_session_goes_on() {
    let limit = 4096 + 4096 + 16_384;
    for (own, peer, whose) in both(Limits { max_shared_bytes_per_session: limit, ..ROOMY }) {
        let mut pair = Pair::new(limited(own, peer));
        let too_large = |len| too_large(len, limit, whose);
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

/// An answer may exceed the limit of shared memory altogether, or fit once the peer has taken some.
#[test]
fn answers_keep_to_the_shared_limit_too() {
    let limit = 4096 + 4096 + 65_536;
    let limits = Limits { max_shared_bytes_per_session: limit, max_lane: size(65_536), ..ROOMY };
    let handler = |request: &[u8]| {
        let len = u64::from_le_bytes(request.try_into().unwrap());
        (Status::Ok, payload(len, len as usize))
    };
    let mut drive = drive_in(limited(ROOMY, limits), SimServer::new(handler));
    let lens =
        [10, 30_000, 70_000, 20_000, 32_768 - 48, 32_768 - 47, 5, 40_000, 3000, 66_000, 9000];
    for (at, len) in lens.into_iter().enumerate() {
        drive.push(&u64::to_le_bytes(len)).unwrap();
        if at % 4 < 3 {
            continue;
        }
        drive.commit();
    }
    drive.commit();
    for (id, len) in (1..).zip(lens) {
        let (reply, bytes) = reply_of(&mut drive);
        assert_eq!(reply.ticket.id(), id, "in order");
        match reply.status {
            Status::Ok => assert_eq!(bytes, payload(len, len as usize)),
            Status::TooLarge => assert!(len > 30_000, "{len}"),
            status => panic!("{status:?}"),
        }
        if len < 32_768 - 47 {
            assert_eq!(reply.status, Status::Ok, "{len}");
        }
    }
}

#[test]
fn lanes_that_keep_their_size_know_no_epochs() {
    let fixed = bellwire_sim::Sim { limits: None, ..growing() };
    let mut pair = Pair::new(fixed);
    let most = pair.lanes[0].max_payload() as u64;
    assert_eq!(pair.push(0, 1, most as usize + 1), too_large(most + 1, most, Whose::Own));
    while pair.push(0, 1, 100).is_ok() {}
    assert!(!pair.maintenance(0));
    assert_eq!(pair.lanes[0].offered(), None);
    assert_eq!((pair.lanes[0].should_grow(), pair.lanes[0].is_grown()), (None, false));
}
