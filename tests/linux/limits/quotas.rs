//! What a user's clients make a server hold: it is counted, bounded, refused above that, and free again afterwards.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use bellwire::{CallError, Client, Geometry, Limits, Payload, ServerConfig, Status};
use bellwire_core::wire::{Header, Kind, MORE, RefuseCode};
use bellwire_memfd::pass;
use bellwire_memfd::prelude::*;

use crate::support::blobs::Blobs;
use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::rogue::{Rogue, RogueSession, encode};
use crate::support::services::{Echo, Hold, numbers};
use crate::support::test_server::{Dir, TestServer, client_config, provide_with};

const KIB: u64 = 1 << 10;

/// A server that has half a megabyte for each user's clients: some 25 sessions.
fn small_quota() -> ServerConfig {
    ServerConfig::default().max_memory(Some(1024 * KIB)).max_memory_per_user(Some(512 * KIB))
}

/// Gets as far as WELCOME: returns what the server passed, or why it refused.
fn enter(fixture: &TestServer) -> Result<(Rogue, Vec<OwnedFd>), String> {
    use bellwire_core::wire::Message;
    let rogue = Rogue::connect(fixture.run_dir(), "echo");
    // A user over its quota may be refused before the client has sent anything.
    let _ = pass::send(rogue.socket.as_fd(), &encode(&Message::Hello(rogue.hello), 0), &[]);
    match rogue.receive() {
        Some((Message::Welcome(_), fds)) => Ok((rogue, fds)),
        Some((Message::Refuse(refuse), _)) if refuse.code == RefuseCode::Quota => {
            Err(refuse.reason().to_owned())
        }
        other => panic!("{other:?}"),
    }
}

/// Opens and closes sessions and keeps what `keep` makes of the passed memory, until it is refused.
fn kept_until_refused<K>(fixture: &TestServer, keep: impl Fn(OwnedFd) -> K) -> Vec<K> {
    let mut kept = Vec::new();
    for _ in 0..1000 {
        match enter(fixture) {
            Ok((_, fds)) => kept.extend(fds.into_iter().take(2).map(&keep)),
            Err(reason) => {
                assert!(reason.contains("memory"), "{reason}");
                return kept;
            }
        }
    }
    panic!("nobody minds that {} regions are kept", kept.len());
}

#[test]
fn memory_that_a_client_keeps_counts_after_its_sessions_are_over() {
    let fixture = TestServer::with(small_quota());
    let mut open: Client<Echo> = fixture.client();
    let kept = kept_until_refused(&fixture, |fd| fd);
    assert!((20..=60).contains(&kept.len()), "{}", kept.len());
    assert_eq!(open.call(&vec![1]).unwrap(), [1], "who is in goes on");
    drop(kept);
    assert!(enter(&fixture).is_ok(), "what was given back counts no more");
}

#[test]
fn memory_that_a_client_keeps_mapped_or_opened_anew_counts_as_well() {
    let fixture = TestServer::with(small_quota());
    let reopened = kept_until_refused(&fixture, |fd| {
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
        std::fs::File::open(path).unwrap()
    });
    drop(reopened);
    let mapped = kept_until_refused(&fixture, |fd| {
        let size = usize::try_from(rustix::fs::fstat(&fd).unwrap().st_size).unwrap();
        bellwire_memfd::region::PeerRegion::verify_and_map(fd, size).unwrap()
    });
    assert!(mapped.len() >= 20, "{}", mapped.len());
    drop(mapped);
    assert!(enter(&fixture).is_ok());
}

#[test]
fn sessions_of_one_user_are_counted_and_leave_others_some() {
    let fixture = TestServer::with(ServerConfig::default().max_sessions(8));
    let held: Vec<_> = (0..6).map(|_| enter(&fixture).ok().unwrap()).collect();
    let Err(reason) = enter(&fixture) else { panic!("nobody counts") };
    assert!(reason.contains("max_sessions_per_user"), "{reason}");
    drop(held);
    until("their places are free", || enter(&fixture).is_ok());
}

#[test]
fn snapshots_that_a_client_keeps_are_on_its_quota_and_the_next_request_is_answered_busy() {
    let fixture = TestServer::with(small_quota());
    let mut rogue = Rogue::connect(fixture.run_dir(), "numbers").open();
    let mut kept = Vec::new();
    let mut id = 0;
    let mut ask = |rogue: &mut RogueSession, generation: u64| {
        fixture.numbers.publish(&numbers(generation, 10_000)).unwrap();
        id += 1;
        // Requests and answers without a payload are equally long.
        let at = rogue.tail;
        rogue.put(Header::new(Kind::Request, Status::Ok, id, 0), &[]);
        rogue.answer(at).1
    };
    for generation in 1..100 {
        match ask(&mut rogue, generation) {
            Status::Ok => kept.push(rogue.control().1),
            Status::Busy => break,
            other => panic!("{other:?}"),
        }
    }
    // Of 80 kB each, out of 512.
    assert!((4..=6).contains(&kept.len()), "{}", kept.len());
    drop(kept);
    assert_eq!(ask(&mut rogue, 100), Status::Ok);
}

#[test]
fn requests_that_arrive_in_parts_are_bounded_for_all_sessions_of_a_user() {
    let fixture = TestServer::with(quota_of(8 << 20).max_memory_per_user(Some(4 << 20)));
    let mut rogues: Vec<_> =
        (0..16).map(|_| Rogue::connect(fixture.run_dir(), "echo").open()).collect();
    // Four of them fill the lane to its end.
    let part = vec![7; 4080];
    let send = |rogue: &mut RogueSession, more: bool| {
        let header = Header::new(Kind::Request, Status::Ok, 1, 4080);
        rogue.put(Header { flags: if more { MORE } else { 0 }, ..header }, &part);
        rogue.sees(bellwire_core::Word::Head, rogue.tail);
    };
    // Almost half a megabyte each, the longest message that is allowed; twice the user's quota in all.
    for _ in 0..120 {
        for rogue in &mut rogues {
            send(rogue, true);
        }
    }
    let statuses: Vec<_> = rogues
        .iter_mut()
        .map(|rogue| {
            send(rogue, false);
            rogue.answer(0).1
        })
        .collect();
    let busy = statuses.iter().filter(|status| **status == Status::Busy).count();
    assert!((4..=14).contains(&busy), "{statuses:?}");
    drop(rogues);
    let mut client: Client<Echo> = fixture.client();
    until("the rest is free again", || client.call(&vec![1; 400_000]).is_ok());
}

fn quota_of(bytes: u64) -> ServerConfig {
    ServerConfig::default().max_memory(Some(bytes))
}

#[test]
fn requests_that_wait_for_a_worker_are_on_the_quota_of_their_user() {
    let fixture = TestServer::with(small_quota().workers(1));
    let mut first: Client<Hold> = fixture.client();
    let session = first.session().unwrap();
    session.submit(&1).unwrap();
    fixture.arrivals.next();
    // The worker is held: all of these wait.
    let mut other: Client<Echo> = fixture.client_with(client_config().max_in_flight(1000));
    let echo = other.session().unwrap();
    // When the quota is used up the server answers at once, so that the lane empties.
    let submit = |_| {
        let mut ticket = Err(CallError::WouldBlock);
        until("there is room", || {
            ticket = echo.submit(&vec![7; 8000]);
            !matches!(ticket, Err(CallError::WouldBlock))
        });
        ticket.unwrap()
    };
    let tickets: Vec<_> = (0..200).map(submit).collect();
    fixture.release();
    let answers: Vec<_> =
        tickets.iter().map(|_| echo.wait_reply(TEST_TIMEOUT).unwrap().1).collect();
    let busy = answers
        .iter()
        .filter(|answer| matches!(answer, Err(CallError::Declined { status: Status::Busy })));
    assert!((100..190).contains(&busy.count()));
    assert_eq!(other.call(&vec![1]).unwrap(), [1]);
}

#[test]
fn unread_answers_are_on_the_quota_of_their_user() {
    // The lane of answers holds two and stays as it is: the third is kept.
    let limits = Limits { max_lane: Geometry::DEFAULT, ..Limits::default() };
    let fixture = TestServer::with(small_quota().lane(small_quota().lane.limits(limits)));
    let mut clients: Vec<Client<Echo>> = (0..20).map(|_| fixture.client()).collect();
    for client in &mut clients {
        let session = client.session().unwrap();
        for _ in 0..3 {
            until("there is room", || session.submit(&vec![7; 8000]).is_ok());
        }
    }
    until("all were answered", || fixture.stats().answered == 60);
    let mut short = 0;
    for client in &mut clients {
        let session = client.session().unwrap();
        for _ in 0..3 {
            match session.wait_reply(TEST_TIMEOUT).unwrap().1 {
                Ok(answer) => assert_eq!(answer, [7; 8000]),
                Err(CallError::Declined { status: Status::Short }) => short += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    // Of 160 kB that wait some 110 are within the quota, beside 20 sessions.
    assert!((2..18).contains(&short), "{short}");
    assert!(clients.iter_mut().all(|client| client.call(&vec![1; 8000]).is_ok()));
}

#[test]
fn answers_above_the_quota_are_built_for_nothing_once_in_a_while() {
    const PAUSE: Duration = Duration::from_millis(500);
    let dir = Dir::new();
    let config = ServerConfig::default().max_memory_per_user(Some(4 << 20));
    let _server = provide_with::<Blobs>(&dir.run_dir, config, |_, _| {
        Ok(Payload::build_from(0, 400_000, |bytes| bytes.fill(7))?)
    });
    let mut clients = [(); 2].map(|()| Client::<Blobs>::with_config(&dir.run_dir, client_config()));
    let mut kept = Vec::new();
    let start = Instant::now();
    let mut refused = 0;
    while refused < 4 {
        for client in &mut clients {
            match client.call(&Payload::from(vec![1])) {
                Ok(payload) => kept.push(payload),
                Err(CallError::Declined { status: Status::Short }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    // The first of each session is not waited for, then each session waits for every one, of either.
    assert!(start.elapsed() >= 2 * PAUSE, "{:?}", start.elapsed());
    assert!(!kept.is_empty());
    kept.clear();
    until("there is room again", || {
        clients.iter_mut().all(|client| client.call(&Payload::from(vec![1])).is_ok())
    });
}
