//! A client that shares its page and its lane and writes arbitrary values there. Each test is one protocol violation.

use bellwire::{Client, IncidentCause, LaneConfig, PeerFault, ServerConfig, ServerStats};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{CloseReason, Header, Kind, Status};
use bellwire_core::{Bell, Geometry, OwnMemory, PeerMemory, Port, Word};

use crate::support::guard::until;
use crate::support::rogue::{Rogue, RogueSession};
use crate::support::services::Echo;
use crate::support::test_server::TestServer;

fn request(id: u64, len: u32) -> Header {
    Header::new(Kind::Request, Status::Ok, id, len)
}

/// A violation that was detected.
#[derive(Debug)]
pub(crate) struct Caught {
    /// The fault that the server reports.
    pub(crate) fault: PeerFault,
    /// Its final counters.
    pub(crate) stats: ServerStats,
}

/// The server reports this violation.
macro_rules! is {
    ($caught:expr, $fault:pat) => {{
        let caught = $caught;
        assert!(matches!(caught.fault, $fault), "{:?}", caught.fault);
    }};
}

/// Commits the violation on a session that was correct before. The server closes it, counts it as poisoned once,
/// reports why, and continues with its other sessions.
#[track_caller]
pub(crate) fn poisons(lie: impl FnOnce(&mut RogueSession)) -> Caught {
    poisons_in(TestServer::open(), lie)
}

#[track_caller]
pub(crate) fn poisons_in(fixture: TestServer, lie: impl FnOnce(&mut RogueSession)) -> Caught {
    let mut good: Client<Echo> = fixture.client();
    assert_eq!(good.call(&vec![1]).unwrap(), [1]);
    let mut rogue = Rogue::connect(fixture.run_dir(), "echo").open();
    rogue.put(request(1, 5), b"hello");
    rogue.sees(Word::Tail, 32);
    lie(&mut rogue);
    rogue.is_poisoned();
    assert_eq!(good.call(&vec![2]).unwrap(), [2]);
    let mut late: Client<Echo> = fixture.client();
    assert_eq!(late.call(&vec![3]).unwrap(), [3]);
    drop((good, late));
    let offences = fixture.offences();
    let [IncidentCause::ProtocolViolation(fault)] = offences[..] else { panic!("{offences:?}") };
    let stats = fixture.close();
    assert_eq!((stats.admitted, stats.poisoned, stats.turned_away), (3, 1, 0), "{stats:?}");
    Caught { fault, stats }
}

/// A bad record header, at the position of the next record.
#[track_caller]
fn poisons_by_header(header: Header) -> Caught {
    poisons(|rogue| rogue.put(header, &[0; 16]))
}

#[test]
fn a_tail_that_goes_back() {
    is!(poisons(|rogue| rogue.set(Word::Tail, 16)), PeerFault::TailWentBack { seen: 32, now: 16 });
}

#[test]
fn a_tail_that_goes_back_to_nothing() {
    is!(poisons(|rogue| rogue.set(Word::Tail, 0)), PeerFault::TailWentBack { seen: 32, now: 0 });
}

#[test]
fn a_tail_beyond_the_lane() {
    // Judging by the tail alone it may be in a later lane: detected at the record that is not there.
    let beyond = 32 + Geometry::DEFAULT.size() + 16;
    is!(poisons(|rogue| rogue.set(Word::Tail, beyond)), PeerFault::UnknownKind { at: 32, kind: 0 });
    let largest = Geometry::LARGEST.size();
    is!(poisons(|rogue| rogue.set(Word::Tail, 2 * largest)), PeerFault::TailTooFar { .. });
}

#[test]
fn a_tail_at_the_end_of_numbers() {
    is!(poisons(|rogue| rogue.set(Word::Tail, u64::MAX)), PeerFault::TailTooFar { .. });
    is!(poisons(|rogue| rogue.set(Word::Tail, u64::MAX - 15)), PeerFault::TailTooFar { .. });
}

#[test]
fn a_misaligned_tail() {
    is!(poisons(|rogue| rogue.set(Word::Tail, 33)), PeerFault::Misaligned { at: 33 });
    is!(poisons(|rogue| rogue.set(Word::Tail, 40)), PeerFault::Misaligned { at: 40 });
}

/// A false Head for the server's lane, once that is full and the server checks.
#[track_caller]
fn poisons_by_head(first: u64, then: u64) -> Caught {
    let lane = Geometry::new(4096).unwrap();
    let config = ServerConfig::default().lane(LaneConfig::default().size(lane));
    poisons_in(TestServer::with(config), |rogue| {
        rogue.link.own().store(Word::Head, first, Ordering::Release);
        // More than the lane and its next epoch hold together.
        for id in 2..16 {
            rogue.write(request(id, 1000), &[0; 1000]);
        }
        rogue.publish();
        if first != then {
            let event_index = || rogue.link.peer().load(Word::WantSpace, Ordering::Acquire);
            until("the server waits for room", || event_index() != u64::MAX);
            rogue.link.own().store(Word::Head, then, Ordering::Release);
            rogue.link.ring(Bell::Space);
        }
    })
}

#[test]
fn a_head_past_what_was_published() {
    is!(poisons_by_head(1 << 32, 1 << 32), PeerFault::HeadTooFar { .. });
    is!(poisons_by_head(u64::MAX - 15, u64::MAX - 15), PeerFault::HeadTooFar { .. });
}

#[test]
fn a_head_that_goes_back() {
    is!(poisons_by_head(32, 16), PeerFault::HeadWentBack { .. });
    is!(poisons_by_head(32, 0), PeerFault::HeadWentBack { .. });
}

#[test]
fn a_misaligned_head() {
    is!(poisons_by_head(24, 24), PeerFault::Misaligned { at: 24 });
}

#[test]
fn a_record_longer_than_what_was_published() {
    is!(poisons_by_header(request(2, 17)), PeerFault::RecordTooLong { len: 17, .. });
}

#[test]
fn a_record_longer_than_the_lane() {
    is!(poisons_by_header(request(2, 32 << 10)), PeerFault::RecordTooLong { .. });
}

#[test]
fn a_record_of_the_greatest_length() {
    is!(poisons_by_header(request(2, u32::MAX)), PeerFault::RecordTooLong { .. });
    is!(poisons_by_header(request(2, u32::MAX - 15)), PeerFault::RecordTooLong { .. });
}

#[test]
fn a_record_beyond_the_lanes_end() {
    poisons(|rogue| {
        // To 1 KiB before the end, one honest record at a time.
        let mut id = 2;
        while rogue.tail < Geometry::DEFAULT.size() - 1024 {
            let len = (Geometry::DEFAULT.size() - 1024 - rogue.tail - 16).min(1000);
            rogue.put(request(id, u32::try_from(len).unwrap()), &vec![0; len as usize]);
            rogue.take_answers();
            id += 1;
        }
        // A record that extends past the end; all of that is published.
        rogue.write(request(id, 1024), &[0; 1008]);
        rogue.tail += 16;
        rogue.publish();
    });
}

#[test]
fn an_unknown_kind() {
    is!(poisons_by_header(Header { kind: 8, ..request(2, 16) }), PeerFault::Unexpected { .. });
    for kind in [0, 99, 255] {
        is!(poisons_by_header(Header { kind, ..request(2, 16) }), PeerFault::UnknownKind { .. });
    }
}

#[test]
fn flags_that_are_not_defined() {
    for flags in [1, 8, 0x80] {
        is!(poisons_by_header(Header { flags, ..request(2, 16) }), PeerFault::UnknownFlags { .. });
    }
}

#[test]
fn a_response_to_a_server() {
    is!(
        poisons_by_header(Header::new(Kind::Response, Status::Ok, 1, 16)),
        PeerFault::Unexpected { .. }
    );
}

#[test]
fn an_attachment_to_a_server() {
    is!(
        poisons_by_header(Header::new(Kind::Attach, Status::Ok, 1, 16)),
        PeerFault::Unexpected { .. }
    );
}

#[test]
fn a_switch_to_an_epoch_that_nobody_announced() {
    poisons_by_header(Header::new(Kind::Switch, Status::Ok, 0, 16));
}

#[test]
fn an_id_that_is_used_again() {
    let caught = poisons_by_header(request(1, 16));
    assert_eq!(caught.stats.accepted, 4, "the handler did not run again");
    is!(caught, PeerFault::ReusedId { .. });
}

#[test]
fn an_id_that_goes_back() {
    poisons(|rogue| {
        rogue.put(request(10, 0), &[]);
        rogue.put(request(9, 0), &[]);
    });
}

#[test]
fn a_cancellation_of_what_was_never_asked() {
    poisons(|rogue| rogue.put(Header::new(Kind::Cancel, Status::Ok, 77, 0), &[]));
}

#[test]
fn a_pad_that_does_not_reach_the_lanes_end() {
    is!(poisons_by_header(Header::new(Kind::Pad, Status::Ok, 0, 16)), PeerFault::Unexpected { .. });
}

#[test]
fn a_pad_longer_than_the_lane() {
    is!(
        poisons_by_header(Header::new(Kind::Pad, Status::Ok, 0, u32::MAX)),
        PeerFault::RecordTooLong { .. }
    );
}

#[test]
fn a_close_with_a_reason_that_is_none() {
    poisons(|rogue| {
        let mut header = Header::new(Kind::Close, Status::Ok, 0, 0);
        header.status = 99.into();
        rogue.put(header, &[]);
    });
}

#[test]
fn a_close_with_a_payload() {
    poisons(|rogue| {
        let mut header = Header::new(Kind::Close, Status::Ok, 0, 16);
        header.status = (CloseReason::Normal as u16).into();
        rogue.put(header, &[0; 16]);
    });
}

#[test]
fn what_follows_a_lie_is_not_run() {
    let Caught { stats, .. } = poisons(|rogue| {
        rogue.write(request(2, 0), &[]);
        rogue.write(Header { kind: 200, ..request(3, 0) }, &[]);
        rogue.write(request(4, 0), &[]);
        rogue.publish();
    });
    // Three of good clients, "hello", and the one before the violation.
    assert_eq!(stats.accepted, 5);
}

#[test]
fn words_that_are_only_wishes_poison_nothing() {
    // They decide how often this client is rung, and that is its own affair.
    let fixture = TestServer::open();
    let mut rogue = Rogue::connect(fixture.run_dir(), "echo").open();
    for (word, value) in [
        (Word::WantData, 1),
        (Word::WantSpace, u64::MAX - 1),
        (Word::Doorbell, 77),
        (Word::Doorbell, u64::MAX),
        (Word::RungAt, u64::MAX),
        (Word::State, u64::MAX),
        (Word::Rings, u64::MAX),
    ] {
        rogue.set(word, value);
    }
    rogue.put(request(1, 5), b"hello");
    rogue.sees(Word::Tail, 32);
    drop(rogue);
    let stats = fixture.close();
    assert_eq!((stats.poisoned, stats.answered), (0, 1));
}

#[test]
fn many_liars_at_once_disturb_nobody() {
    let fixture = TestServer::open();
    let mut good: Client<Echo> = fixture.client();
    let liars: Vec<_> = (0..32).map(|_| Rogue::connect(fixture.run_dir(), "echo").open()).collect();
    for (at, rogue) in liars.iter().enumerate() {
        rogue.set(Word::Tail, 1 << (at + 20));
        assert_eq!(good.call(&vec![at as u8]).unwrap(), [at as u8]);
    }
    for mut rogue in liars {
        rogue.is_poisoned();
    }
    drop(good);
    let stats = fixture.close();
    assert_eq!((stats.poisoned, stats.answered), (32, 32));
}
