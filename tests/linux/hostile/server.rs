//! A server that sends wrong answers. Its client gets a typed error, and survives.

use std::thread;
use std::time::Duration;

use bellwire::{
    Backoff, CallError, Client, ErrorKind, Executed, PeerFault, RefreshError, Refreshed,
    SnapshotCache,
};
use bellwire_core::Word;
use bellwire_core::wire::{BoardWord, CloseReason, Header, Kind, Message, Status};
use rustix::fs::SealFlags;

use crate::misbehaving::impostor;
use crate::misbehaving::passing::Passing;
use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::memory::SEALS;
use crate::support::rogue::{RogueListener, RogueSession, encode, hello, service};
use crate::support::services::{Echo, Numbers, OutOfOrder, numbers};
use crate::support::test_server::{Dir, TestServer, client_config};

fn response(id: u64, len: u32) -> Header {
    Header::new(Kind::Response, Status::Ok, id, len)
}

/// A session of an [`Echo`] client with a rogue, whose first call was answered correctly.
struct RogueExchange {
    client: Client<Echo>,
    rogue: RogueSession,
    _listener: RogueListener,
    _dir: Dir,
}

impl RogueExchange {
    fn begin() -> Self {
        let dir = Dir::new();
        let listener = RogueListener::bind(&dir.run_dir, "echo");
        let mut client = Client::<Echo>::with_config(&dir.run_dir, client_config());
        let mut rogue = listener.meet(|| client.connect().map(|_| ()).unwrap());
        let session = client.session().unwrap();
        let ticket = session.submit(&b"first".to_vec()).unwrap();
        rogue.put(response(1, 5), b"first");
        let (answered, answer) = session.try_reply().unwrap().unwrap();
        assert_eq!((answered, answer.unwrap()), (ticket, b"first".to_vec()));
        Self { client, rogue, _listener: listener, _dir: dir }
    }
}

/// Commits the violation while the requests 2 and 3 wait for their answers: the call fails with the fault that names itself
/// so in its message, the session is closed, and the client does not use it again.
#[track_caller]
pub(crate) fn is_found(part: &str, violate: impl FnOnce(&mut RogueSession)) {
    let mut exchange = RogueExchange::begin();
    let session = exchange.client.session().unwrap();
    for request in [&b"second"[..], b"third"] {
        session.submit(&request.to_vec()).unwrap();
    }
    violate(&mut exchange.rogue);
    let error = loop {
        match session.try_reply() {
            Ok(Some((_, answer))) => drop(answer),
            Ok(None) => panic!("the violation is not found"),
            Err(error) => break error,
        }
    };
    let CallError::ProtocolViolation(fault) = error else { panic!("{error}") };
    let text = fault.to_string();
    assert!(text.contains(part), "{text:?} lacks {part:?}");
    assert_eq!((error.kind(), error.executed()), (ErrorKind::ProtocolViolation, Executed::Maybe));
    // The client uses nothing after the first violation.
    for again in [session.submit(&vec![]).unwrap_err(), session.call(&vec![]).unwrap_err()] {
        assert!(matches!(again, CallError::ProtocolViolation(known) if known == fault), "{again}");
    }
    assert!(!session.is_open());
    assert_ne!(exchange.client.refresh(), bellwire::ProviderState::Ready);
}

#[test]
fn a_head_beyond_the_published_tail_is_found_when_the_lane_is_full() {
    let mut exchange = RogueExchange::begin();
    let session = exchange.client.session().unwrap();
    exchange.rogue.set(Word::Head, 1 << 30);
    let error = (0..100).find_map(|_| session.submit(&vec![0; 1000]).err()).unwrap();
    assert!(
        matches!(error, CallError::ProtocolViolation(PeerFault::HeadTooFar { head, .. }) if head == 1 << 30),
        "{error}"
    );
    assert!(!session.is_open());
}

#[test]
fn a_close_with_a_request_in_flight_is_no_violation() {
    let mut exchange = RogueExchange::begin();
    let session = exchange.client.session().unwrap();
    session.submit(&vec![]).unwrap();
    let mut close = Header::new(Kind::Close, Status::Ok, 0, 0);
    close.status = (CloseReason::Normal as u16).into();
    exchange.rogue.put(close, &[]);
    let error = session.try_reply().unwrap_err();
    assert!(matches!(error, CallError::PeerGone { .. }), "{error}");
}

#[test]
fn a_control_message_instead_of_the_attachment() {
    let hello = Message::Hello(hello(service("echo")));
    is_found("no place", |rogue| {
        rogue.send_control(&encode(&hello, 0), &[]);
        rogue.put(Header::new(Kind::Attach, Status::Ok, 2, 0), &[]);
    });
}

type Alter = fn(&mut Passing);
type Found = Result<Refreshed, RefreshError<OutOfOrder>>;

/// What a cache finds in a snapshot from a rogue; returns both for further steps.
fn passes(
    alter: impl FnOnce(&mut Passing) + Send,
) -> (Found, SnapshotCache<Numbers>, RogueSession) {
    let dir = Dir::new();
    let listener = RogueListener::bind(&dir.run_dir, "numbers");
    let mut cache = SnapshotCache::<Numbers>::with_config(&dir.run_dir, client_config());
    let (found, rogue) = thread::scope(|scope| {
        let rogue = scope.spawn(|| {
            let mut rogue = listener.open(1);
            rogue.announce(1);
            rogue.wait_for_requests(1);
            pass(&mut rogue, alter);
            rogue
        });
        let mut found = cache.refresh_within(TEST_TIMEOUT);
        // The rogue may not have announced it yet.
        until("there is something", || {
            let empty = matches!(found, Ok(Refreshed::Empty));
            if empty {
                found = cache.refresh_within(TEST_TIMEOUT);
            }
            !empty
        });
        (found, rogue.join().unwrap())
    });
    (found, cache, rogue)
}

/// Passes a snapshot, as if it were the answer to the first request.
fn pass(rogue: &mut RogueSession, alter: impl FnOnce(&mut Passing)) {
    let mut passed = Passing::message();
    passed.memory.size = 4096;
    passed.memory.bytes = numbers(5, 3);
    passed.record.id = 1.into();
    passed.announce(|it| (it.id, it.generation, it.len) = (1, 1, 24));
    alter(&mut passed);
    passed.send(rogue);
}

/// A snapshot that is refused for its memfd: nothing is held, and the session is over.
#[track_caller]
fn is_refused(part: &str, alter: impl FnOnce(&mut Passing) + Send) {
    let (found, cache, rogue) = passes(alter);
    let error = found.unwrap_err();
    let RefreshError::Call(CallError::ProtocolViolation(fault)) = error else { panic!("{error}") };
    assert!(
        matches!(fault, PeerFault::Memory { what: "a message", why } if why == part),
        "{fault}"
    );
    assert!(cache.current().is_none());
    rogue.is_left();
}

#[test]
fn an_honest_snapshot_of_the_same_making_is_taken() {
    // Otherwise the tests below would prove nothing.
    let (found, cache, _rogue) = passes(|_| {});
    assert_eq!(found.unwrap(), Refreshed::Changed);
    assert_eq!(cache.current().unwrap().bytes(), numbers(5, 3));
}

#[test]
fn a_snapshot_in_invalid_memory_is_refused_and_ends_the_session() {
    const A_SEAL: &str = "a seal is missing";
    const SIZE: &str = "it has another size than announced";
    let altered: [(&str, Alter); 12] = [
        (A_SEAL, |passed| passed.memory.seals = SealFlags::empty()),
        // The seals of a lane: enough for copying out, and not for a reference.
        (A_SEAL, |passed| passed.memory.seals = SEALS),
        (A_SEAL, |passed| passed.memory.seals -= SealFlags::WRITE),
        (A_SEAL, |passed| passed.memory.seals -= SealFlags::SHRINK),
        (A_SEAL, |passed| passed.memory.seals -= SealFlags::GROW),
        (A_SEAL, |passed| passed.memory.seals -= SealFlags::SEAL),
        (SIZE, |passed| passed.announce(|it| it.len = 4097)),
        (SIZE, |passed| {
            passed.memory.size = 2048;
            passed.announce(|it| it.len = 2048);
        }),
        (SIZE, |passed| passed.memory.size = 8192),
        ("its pages are not allocated", |passed| {
            passed.memory.size = 1 << 20;
            passed.memory.sparse = true;
            passed.announce(|it| it.len = 1 << 20);
        }),
        ("it is not shared memory", |passed| passed.memory.other = Some(impostor::pipe)),
        ("it was announced for another message", |passed| passed.announce(|it| it.id = 2)),
    ];
    for (why, alter) in altered {
        is_refused(why, alter);
    }
}

#[test]
fn a_snapshot_above_the_readers_limit() {
    // No violation: the session's limit allows it, but the cache's does not.
    let (found, cache, rogue) = passes(|passed| {
        passed.memory.size = 2 << 20;
        passed.announce(|it| it.len = 2 << 20);
    });
    let error = found.unwrap_err();
    assert!(matches!(error, RefreshError::Call(CallError::Malformed(_))), "{error}");
    assert!(error.to_string().contains("longer than a snapshot is"), "{error}");
    assert!(cache.current().is_none() && !rogue.link.peer_gone());
}

#[test]
fn a_snapshot_above_the_sessions_limit_or_without_its_one_descriptor_is_a_violation() {
    let altered: [Alter; 4] = [
        |passed| passed.announce(|it| it.len = (64 << 20) + 1),
        |passed| passed.announce(|it| it.len = u64::MAX),
        |passed| passed.fds = 0,
        |passed| passed.fds = 2,
    ];
    for alter in altered {
        let (found, cache, rogue) = passes(alter);
        let error = found.unwrap_err();
        let RefreshError::Call(CallError::ProtocolViolation(fault)) = error else {
            panic!("{error}")
        };
        assert!(matches!(fault, PeerFault::Control { .. }), "{fault}");
        assert!(cache.current().is_none());
        rogue.is_left();
    }
}

#[test]
fn an_answer_in_the_lane_to_a_request_for_a_memfd() {
    let dir = Dir::new();
    let listener = RogueListener::bind(&dir.run_dir, "numbers");
    let mut cache = SnapshotCache::<Numbers>::with_config(&dir.run_dir, client_config());
    thread::scope(|scope| {
        let _rogue = scope.spawn(|| {
            let mut rogue = listener.open(1);
            rogue.announce(1);
            rogue.wait_for_requests(1);
            rogue.put(response(1, 8), &[0; 8]);
            rogue
        });
        until("it asks", || match cache.refresh_within(TEST_TIMEOUT) {
            Ok(found) => {
                assert_eq!(found, Refreshed::Empty);
                false
            }
            Err(error) => {
                assert!(matches!(error, RefreshError::Call(CallError::Malformed(_))), "{error}");
                true
            }
        });
    });
}

#[test]
fn a_snapshot_request_answered_busy_or_stopping_is_repeated() {
    // A provider that stops, or whose socket is full, is reported once; the next one is found all the same.
    for status in [Status::Busy, Status::Stopping] {
        let dir = Dir::new();
        let listener = RogueListener::bind(&dir.run_dir, "numbers");
        let run_dir = dir.run_dir.clone();
        let watcher = thread::spawn(move || {
            let backoff = Backoff::default()
                .initial(Duration::from_micros(10))
                .max(Duration::from_micros(100));
            let config = client_config().backoff(backoff);
            let mut cache = SnapshotCache::<Numbers>::with_config(&run_dir, config);
            // It learns once that there is no snapshot, and then waits for one.
            let mut found = cache.wait_for_change(Some(TEST_TIMEOUT)).unwrap();
            if found == Refreshed::Unavailable {
                found = cache.wait_for_change(Some(TEST_TIMEOUT)).unwrap();
            }
            (found, cache.current().map(|current| current.bytes().to_vec()))
        });
        let mut rogue = listener.open(1);
        rogue.announce(1);
        rogue.board.as_ref().unwrap().wake_all(BoardWord::Generation.offset());
        rogue.wait_for_requests(1);
        rogue.put(Header::new(Kind::Response, status, 1, 0), &[]);
        // It retries later, and finds the provider that is there then.
        rogue.is_left();
        drop((rogue, listener));
        let fixture = TestServer::in_dir(dir, bellwire::ServerConfig::default());
        fixture.numbers.publish(&numbers(5, 3)).unwrap();
        let (found, bytes) = watcher.join().unwrap();
        assert_eq!((found, bytes), (Refreshed::Changed, Some(numbers(5, 3))), "{status:?}");
    }
}
