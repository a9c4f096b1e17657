//! Requests for the next publication, and for the ring.

use std::time::Duration;

use bellwire::{IncidentCause, ServerConfig};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{BroadcastRing, Header, Kind, Message, Status};
use bellwire_core::{PeerMemory, Port, Word};

use crate::support::guard::until;
use crate::support::rogue::{Rogue, RogueSession};
use crate::support::services::numbers;
use crate::support::test_server::TestServer;

/// What the answer to nothing but a header takes in the lane, in bytes.
const RECORD: u64 = 16;

fn ask(rogue: &mut RogueSession, id: u64, what: &[u8]) {
    let len = u32::try_from(what.len()).unwrap();
    rogue.put(Header::new(Kind::Request, Status::Ok, id, len), what);
}

/// Requests the publication after a generation.
fn ask_after(rogue: &mut RogueSession, id: u64, generation: u64) {
    ask(rogue, id, &generation.to_le_bytes());
}

fn enter(config: ServerConfig) -> (TestServer, RogueSession) {
    let fixture = TestServer::with(config);
    fixture.numbers.publish(&numbers(1, 10)).unwrap();
    let rogue = Rogue::connect(fixture.run_dir(), "numbers").open();
    (fixture, rogue)
}

/// Waits until the server has taken all that was sent.
fn is_taken(rogue: &RogueSession) {
    rogue.sees(Word::Head, rogue.tail);
}

#[test]
fn an_awaited_request_is_answered_by_the_next_publication() {
    let (fixture, mut rogue) = enter(ServerConfig::default());
    ask_after(&mut rogue, 1, 1);
    is_taken(&rogue);
    // The server sleeps now: it is the publication that wakes it.
    rogue.sees(Word::WantData, rogue.tail);
    assert_eq!(rogue.link.peer().load(Word::Tail, Ordering::Acquire), 0, "nothing is there yet");
    fixture.numbers.publish(&numbers(2, 10)).unwrap();
    assert_eq!(rogue.answer(0), (Kind::Response, Status::Ok, 1));
    // One that is published already is announced at once.
    ask_after(&mut rogue, 2, 1);
    assert_eq!(rogue.answer(RECORD), (Kind::Response, Status::Ok, 2));
    drop(rogue);
    assert_eq!(fixture.close().lost, 0);
}

#[test]
fn a_second_awaited_request_and_one_without_a_generation_are_refused() {
    let (fixture, mut rogue) = enter(ServerConfig::default());
    ask_after(&mut rogue, 1, 1);
    ask_after(&mut rogue, 2, 1);
    assert_eq!(rogue.answer(0), (Kind::Response, Status::Busy, 2));
    ask(&mut rogue, 3, &[1; 7]);
    assert_eq!(rogue.answer(RECORD), (Kind::Response, Status::Malformed, 3));
    drop(rogue);
    until("it is gone", || fixture.stats().sessions == 0);
    let stats = fixture.close();
    assert_eq!((stats.accepted, stats.refused, stats.lost), (3, 3, 0));
}

#[test]
fn an_awaited_request_does_not_count_against_the_limit_of_requests() {
    let (fixture, mut rogue) = enter(ServerConfig::default().max_in_flight(1));
    ask_after(&mut rogue, 1, 1);
    ask(&mut rogue, 2, &[]);
    assert_eq!(rogue.answer(0), (Kind::Attach, Status::Ok, 2));
    rogue.put(Header::new(Kind::Cancel, Status::Ok, 1, 0), &[]);
    assert_eq!(rogue.answer(RECORD), (Kind::Response, Status::Cancelled, 1));
    drop(rogue);
    assert_eq!(fixture.close().lost, 0);
}

#[test]
fn a_cancelled_awaited_request_is_answered_and_frees_its_place() {
    let (fixture, mut rogue) = enter(ServerConfig::default());
    ask_after(&mut rogue, 1, 1);
    is_taken(&rogue);
    rogue.put(Header::new(Kind::Cancel, Status::Ok, 1, 0), &[]);
    assert_eq!(rogue.answer(0), (Kind::Response, Status::Cancelled, 1));
    ask_after(&mut rogue, 2, 1);
    is_taken(&rogue);
    fixture.numbers.publish(&numbers(2, 10)).unwrap();
    assert_eq!(rogue.answer(RECORD), (Kind::Response, Status::Ok, 2));
    drop(rogue);
    assert_eq!(fixture.close().lost, 0);
}

#[test]
fn an_awaited_request_is_answered_when_the_server_stops() {
    let (fixture, mut rogue) = enter(ServerConfig::default());
    ask_after(&mut rogue, 1, 1);
    is_taken(&rogue);
    let stats = fixture.close();
    assert_eq!(rogue.answer(0), (Kind::Response, Status::Stopping, 1));
    assert_eq!((stats.accepted, stats.refused, stats.lost), (1, 1, 0));
}

#[test]
fn an_awaited_request_of_a_leaving_client_is_not_counted_as_lost() {
    let (fixture, mut rogue) = enter(ServerConfig::default());
    ask_after(&mut rogue, 1, 1);
    is_taken(&rogue);
    drop(rogue);
    until("it is gone", || fixture.stats().sessions == 0);
    let stats = fixture.close();
    assert_eq!((stats.accepted, stats.refused, stats.lost), (1, 1, 0));
}

/// Its answer may stay unread until the reader refreshes; nothing else may.
#[test]
fn only_the_answer_of_an_awaited_request_is_never_overdue() {
    let stall_timeout = Some(Duration::from_millis(20));
    let (fixture, mut awaiting) = enter(ServerConfig::default().stall_timeout(stall_timeout));
    ask_after(&mut awaiting, 1, 0);
    assert_eq!(awaiting.answer(0), (Kind::Response, Status::Ok, 1));
    awaiting.set(Word::Head, RECORD);
    ask_after(&mut awaiting, 2, 1);
    is_taken(&awaiting);
    fixture.numbers.publish(&numbers(2, 10)).unwrap();
    assert_eq!(awaiting.answer(RECORD), (Kind::Response, Status::Ok, 2));
    // Only now is it checked: a session that is overdue later was not checked before.
    awaiting.sees(Word::WantData, awaiting.tail);
    let mut stalled = Rogue::connect(fixture.run_dir(), "numbers").open();
    ask_after(&mut stalled, 1, 0);
    assert_eq!(stalled.answer(0), (Kind::Response, Status::Ok, 1));
    ask(&mut stalled, 2, &[]);
    assert_eq!(stalled.answer(RECORD), (Kind::Attach, Status::Ok, 2));
    until("one is closed", || fixture.stats().stalled > 0);
    let close = RECORD * 2;
    assert_eq!(stalled.answer(close).0, Kind::Close);
    assert_eq!(
        awaiting.link.peer().load(Word::Tail, Ordering::Acquire),
        close,
        "it is sent nothing"
    );
    let stats = fixture.stats();
    assert_eq!((stats.stalled, stats.sessions), (1, 1));
    assert!(matches!(fixture.recorded_incidents()[..], [IncidentCause::Stalled]));
}

#[test]
fn the_ring_is_passed_on_request_and_a_service_without_one_declines() {
    let fixture = TestServer::open();
    let mut rogue = Rogue::connect(fixture.run_dir(), "numbers").open();
    let number = 1_u32.to_le_bytes();
    ask(&mut rogue, 1, &number);
    assert_eq!(rogue.answer(0), (Kind::Response, Status::NotYet, 1));
    fixture.numbers.publish(&numbers(1, 10)).unwrap();
    ask(&mut rogue, 2, &number);
    assert_eq!(rogue.answer(RECORD), (Kind::Attach, Status::Ok, 2));
    let (message, fds) = rogue.control();
    let Message::Attachment(attachment) = message else { panic!("{message:?}") };
    let ring = BroadcastRing::of_attachment(&attachment).unwrap();
    assert_eq!((ring.number, ring.size.size(), fds.len()), (1, 64 << 10, 1));
    ask(&mut rogue, 3, &[1; 5]);
    assert_eq!(rogue.answer(2 * RECORD), (Kind::Response, Status::Malformed, 3));
}
