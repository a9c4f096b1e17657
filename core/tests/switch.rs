//! A peer whose switches, and the messages for them, violate the protocol: each violation by its name.

use bellwire_core::drive::CallFailed;
use bellwire_core::lane::{Epoch, LaneTerms, Lanes, MOST_ATTACHED, MOST_OUTSTANDING};
use bellwire_core::resize::FollowError;
use bellwire_core::wire::{Attachment, Header, Kind, Message, Status};
use bellwire_core::{Deadline, Limits, PeerFault, Port};
use bellwire_sim::{Sim, SimEnd, SimMemory, Step};

use crate::codec::encode;
use crate::drive::by_hand;
use crate::liar::Liar;
use crate::pair::{Pair, growing, limited, payload, size};
use crate::resize::drive_in;

/// Both lanes open with 8 KiB and are between 8 KiB and 64 KiB.
fn pair() -> Pair {
    let limits = Limits { max_lane: size(65_536), max_message: 20_000, ..Limits::default() };
    let lane = size(8192);
    let sim = limited(limits, limits);
    Pair::new(Sim { lane, peer_lane: lane, least: lane, ..sim })
}

fn switch(number: u64, size: u64) -> Header {
    Header::new(Kind::Switch, Status::Ok, number | size << 32, 0)
}

/// Passes memory of `bytes` under another name.
fn pass(pair: &Pair, number: u32, announced: u64, bytes: u64) {
    let message = Message::Lane(Epoch { number, size: size(announced) });
    pair.ends[0].post(&encode(&message, 1), vec![SimMemory::new(bytes)]);
}

/// What end 1 finds in the next record.
fn found(pair: &mut Pair) -> PeerFault {
    match pair.peek(1) {
        Err(fault) => fault,
        Ok(record) => match pair.follow(1, &record.unwrap()) {
            Err(FollowError::Peer(fault)) => fault,
            other => panic!("{other:?}"),
        },
    }
}

fn why(fault: PeerFault) -> &'static str {
    match fault {
        PeerFault::Switch { why, .. } | PeerFault::Control { why, .. } => why,
        PeerFault::Memory { why, .. } => why,
        fault => panic!("{fault}"),
    }
}

#[test]
fn an_epoch_that_is_not_the_next_one() {
    for number in [0, 1, 3, 4, u64::from(u32::MAX)] {
        let mut pair = pair();
        pass(&pair, 2, 16_384, 16_384);
        pair.put(0, switch(number, 16_384), &[]);
        let fault = found(&mut pair);
        let id = number | 16_384 << 32;
        let why = "its epoch is not the next one";
        assert_eq!(fault, PeerFault::Switch { at: 0, id, why });
    }
}

#[test]
fn an_epoch_that_comes_again_or_is_left_out() {
    for number in [1, 2, 4] {
        let mut pair = pair();
        pair.send(0, 1, 5000).unwrap();
        assert_eq!(pair.epoch(0).number, 2);
        let _ = pair.commit(0);
        assert_eq!(pair.take_all(1), [1]);
        pass(&pair, number as u32, 16_384, 16_384);
        pair.put(0, switch(number, 16_384), &[]);
        assert_eq!(why(found(&mut pair)), "its epoch is not the next one");
    }
}

#[test]
fn a_size_that_was_not_agreed() {
    let cases = [
        (4096, "it is smaller than the least that was agreed"),
        (131_072, "it is larger than the limit"),
        (1 << 30, "it is larger than the limit"),
        (0, "its size is no lane's"),
        (2048, "its size is no lane's"),
        (12_288, "its size is no lane's"),
        (16_385, "its size is no lane's"),
        (1 << 31, "its size is no lane's"),
        (u64::from(u32::MAX), "its size is no lane's"),
    ];
    for (bytes, expected) in cases {
        let mut pair = pair();
        pass(&pair, 2, 16_384, 16_384);
        pair.put(0, switch(2, bytes), &[]);
        assert_eq!(why(found(&mut pair)), expected, "{bytes}");
    }
}

#[test]
fn records_without_a_payload_that_have_one() {
    for kind in [Kind::Switch, Kind::Attach, Kind::Trim, Kind::Cancel, Kind::Close] {
        for len in [1, 16, 100] {
            let mut pair = pair();
            pass(&pair, 2, 16_384, 16_384);
            let header = Header::new(kind, Status::Ok, 2 | 16_384 << 32, len);
            pair.put(0, header, &payload(1, len as usize));
            let fault = PeerFault::Unexpected { at: 0, kind: kind as u8 };
            assert_eq!(found(&mut pair), fault, "{kind:?}");
        }
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

#[test]
fn a_switch_without_its_memory() {
    let mut pair = pair();
    pair.put(0, switch(2, 16_384), &[]);
    let fault = found(&mut pair);
    assert_eq!(fault, PeerFault::Memory { what: "a lane", why: "its record came without it" });
}

#[test]
fn a_switch_to_other_memory_than_was_passed() {
    for (number, announced, bytes) in
        [(3, 16_384, 16_384), (2, 32_768, 32_768), (2, 16_384, 8192), (2, 16_384, 16_384 + 4096)]
    {
        let mut pair = pair();
        pass(&pair, number, announced, bytes);
        pair.put(0, switch(2, 16_384), &[]);
        let fault = found(&mut pair);
        let is_named = matches!(fault, PeerFault::Memory { what: "a lane", .. });
        assert!(is_named, "{fault}");
    }
}

#[test]
fn an_attachment_without_its_memory_or_with_another() {
    let pair = pair();
    let missing = FollowError::Peer(PeerFault::Memory {
        what: "a message",
        why: "its record came without it",
    });
    assert_eq!(pair.ends[1].take(1), Err(missing));
    let post = |id, len, bytes| {
        let message = Message::Attachment(Attachment { id, generation: 0, len });
        pair.ends[0].post(&encode(&message, 1), vec![SimMemory::new(bytes)]);
    };
    post(2, 100, 4096);
    assert!(matches!(pair.ends[1].take(1), Err(FollowError::Peer(PeerFault::Memory { .. }))));
    assert_eq!(pair.ends[1].take(2).unwrap(), vec![0; 100]);
    post(3, 5000, 4096);
    assert!(matches!(pair.ends[1].take(3), Err(FollowError::Peer(PeerFault::Memory { .. }))));
}

/// Whatever is wrong on the control socket is found at the next look, or the next switch.
#[test]
fn a_control_socket_with_what_has_no_place_there() {
    let lane = encode(&Message::Lane(Epoch { number: 2, size: size(16_384) }), 1);
    let attachment = encode(&Message::Attachment(Attachment { id: 1, generation: 0, len: 1 }), 1);
    let large = encode(&Message::Lane(Epoch { number: 2, size: size(131_072) }), 1);
    let cases: [(&[u8], usize, usize, &str); 5] = [
        (&lane, 1, MOST_OUTSTANDING + 1, "too many lanes"),
        (&attachment, 1, MOST_ATTACHED + 1, "too many attachments"),
        (&large, 1, 1, "a lane above the limit"),
        (b"BWC1 what?", 0, 1, "it is no control message"),
        (b"BWC1\x05\0\0\0\0\0\0\0\0\0\0\0", 0, 1, "an open session has no place for it"),
    ];
    for (bytes, memory, times, expected) in cases {
        let mut pair = pair();
        for _ in 0..times {
            pair.ends[0].post(bytes, (0..memory).map(|_| SimMemory::new(4096)).collect());
        }
        pair.put(0, switch(2, 16_384), &[]);
        let fault = match pair.ends[1].take_control() {
            Err(FollowError::Peer(fault)) => fault,
            _ => found(&mut pair),
        };
        assert_eq!(why(fault), expected);
    }
}

/// A violation by a switch ends a session as any other does.
#[test]
fn a_lie_about_a_lane_poisons_the_session_for_good() {
    type Lie = fn(&SimEnd);
    let lies: [(Lie, u64, u64, &str); 4] = [
        (|_| {}, 2, 8192, "came without it"),
        (
            |end| end.clone().offer(Epoch { number: 2, size: size(16_384) }).unwrap(),
            2,
            8192,
            "another epoch",
        ),
        (|_| {}, 3, 8192, "not the next one"),
        (|end| end.post(b"?", Vec::new()), 2, 8192, "no control message"),
    ];
    for (lie, number, bytes, expected) in lies {
        let liar = by_hand(move |end, lanes| {
            lie(end);
            lanes.push(end.own(), end.peer(), switch(number, bytes), &[]).unwrap();
            end.wake(lanes.commit(end.own(), end.peer()));
            Step::Parked(None)
        });
        let mut drive = drive_in(growing(), liar);
        drive.submit(b"x").unwrap();
        let failed = drive.wait_for_reply(&mut { Deadline::NEVER }, &mut Vec::new()).unwrap_err();
        let CallFailed::Peer(fault) = failed else { panic!("{failed}") };
        assert!(fault.to_string().contains(expected), "{fault}");
        assert_eq!(drive.ended(), Some(failed));
        assert_eq!(drive.submit(b"y"), Err(failed));
        assert_eq!(drive.trim(), Err(failed));
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
