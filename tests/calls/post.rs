//! One-way requests: they are handled, counted, never answered, and exactly known to be taken or not.

use std::time::Duration;

use bellwire::{
    Backpressure, CallError, Client, ErrorKind, Executed, Geometry, Limits, ServerConfig,
};

use crate::support::child::Process;
use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::services::{AsRequested, Echo, Hold};
use crate::support::test_server::{Dir, TestServer, client_config, reconcile_session};

const SOON: Duration = Duration::from_millis(10);

#[test]
fn posts_are_handled_however_they_travel_and_counted_on_both_sides() {
    for workers in [0, 2] {
        let fixture = TestServer::with(ServerConfig::default().workers(workers));
        let mut client =
            fixture.client_with::<Echo>(client_config().backpressure(Backpressure::Wait));
        let session = client.connect().unwrap();
        let mut posts = 0;
        // In one record, in parts, and many of them, so that the lane is full in between.
        for len in [0, 1, 100, 8_000, 9_000, 300_000] {
            for _ in 0..20 {
                session.post(&vec![7; len]).unwrap();
                session.raw().post(&vec![8; len]).unwrap();
                posts += 2;
            }
            assert_eq!(session.call(&vec![9; len]).unwrap(), vec![9; len], "beside them");
        }
        // With a lane that grows for them, and as a batch.
        session.backpressure(Backpressure::Grow).post(&vec![7; 40_000]).unwrap();
        session.post_batch(&[vec![1; 10], vec![], vec![2; 5_000]]).unwrap();
        posts += 2;
        session.flush(TEST_TIMEOUT).unwrap();
        let stats = session.stats();
        assert_eq!((stats.posts_taken, stats.posts_lost, stats.in_flight), (posts, 0, 0));
        assert_eq!((stats.made, stats.answered), (posts + 6, 6));
        reconcile_session(session);
        until("all are handled", || fixture.stats().posted == posts);
        drop(client);
        let stats = fixture.close();
        assert_eq!((stats.posted, stats.post_errors, stats.answered), (posts, 0, 6));
    }
}

/// A server lets a stream gather between two looks. It takes the rest all the same, before it sleeps and before it ends the
/// session of a client that has left.
#[test]
fn a_stream_of_posts_is_taken_to_its_end() {
    for workers in [0, 2] {
        let fixture = TestServer::with(ServerConfig::default().workers(workers));
        let mut posts = 0;
        for streams in [1, 60] {
            let mut client =
                fixture.client_with::<Echo>(client_config().backpressure(Backpressure::Wait));
            let session = client.connect().unwrap();
            for stream in 0..streams {
                for _ in 0..1_000 + 37 * stream {
                    session.post(&vec![7; 64]).unwrap();
                    posts += 1;
                }
                if stream + 1 < streams {
                    session.flush(TEST_TIMEOUT).unwrap();
                }
            }
        }
        until("all are handled", || fixture.stats().posted == posts);
        let stats = fixture.close();
        assert_eq!((stats.accepted, stats.posted, stats.lost), (posts, posts, 0));
    }
}

#[test]
fn a_request_that_no_lane_carries_is_posted_in_memory_of_its_own() {
    let fixture = TestServer::open();
    let config = client_config().lane(client_config().lane.attach_from(Some(100_000)));
    let mut client = fixture.client_with::<Echo>(config);
    let session = client.connect().unwrap();
    for _ in 0..3 {
        session.post(&vec![5; 100_000]).unwrap();
        session.raw().post(&vec![5; 200_000]).unwrap();
        session.flush(TEST_TIMEOUT).unwrap();
    }
    assert_eq!((session.stats().posts_taken, session.stats().requests.attaches), (6, 6));
    until("all are handled", || fixture.stats().posted == 6);
    assert_eq!(fixture.stats().post_errors, 0);
}

#[test]
fn handlers_that_fail_or_panic_are_counted_and_the_session_stays_open() {
    for workers in [0, 1] {
        let fixture = TestServer::with(ServerConfig::default().workers(workers));
        let mut client = fixture.client::<AsRequested>();
        let session = client.connect().unwrap();
        for outcome in
            [AsRequested::ANSWER, AsRequested::FAIL, AsRequested::PANIC, AsRequested::LARGE]
        {
            session.post(&outcome).unwrap();
        }
        session.raw().post(b"no number").unwrap();
        assert_eq!(session.call(&AsRequested::ANSWER).unwrap(), b"fine");
        session.flush(TEST_TIMEOUT).unwrap();
        until("all are handled", || fixture.stats().posted == 5);
        drop(client);
        let stats = fixture.close();
        assert_eq!((stats.posted, stats.post_errors, stats.panics), (5, 3, 1));
        assert_eq!((stats.answered, stats.errors), (1, 0));
    }
}

/// A provider in a process of its own, held at its gate by a call, and its client.
fn held() -> (Process, Client<Hold>, Dir) {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    let mut client = Client::with_config(&dir.run_dir, client_config());
    client.connect().unwrap().submit(&0).unwrap();
    assert_eq!(server.next_line(), "came 0");
    (server, client, dir)
}

#[test]
fn a_killed_provider_leaves_exactly_the_unconsumed_posts() {
    let (mut server, mut client, _dir) = held();
    let session = client.session().unwrap();
    for number in 1..=5 {
        session.post(&number).unwrap();
    }
    let late = session.flush(SOON).unwrap_err();
    assert!(matches!(late, CallError::Deadline { .. }), "{late}");
    assert_eq!((session.stats().posts_taken, session.stats().in_flight), (0, 6));
    server.send_line("open");
    session.flush(TEST_TIMEOUT).unwrap();
    assert_eq!((session.stats().posts_taken, session.stats().posts_lost), (5, 0));
    drop((server, client));

    let (mut server, mut client, _dir) = held();
    let session = client.session().unwrap();
    for number in 1..=7 {
        session.post(&number).unwrap();
    }
    server.kill();
    let gone = session.flush(TEST_TIMEOUT).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::PeerGone);
    let stats = session.stats();
    assert_eq!((stats.posts_taken, stats.posts_lost, stats.in_flight), (0, 7, 1));
    assert_eq!(session.post(&8).unwrap_err().executed(), Executed::No);
    reconcile_session(session);
}

#[test]
fn a_full_lane_is_met_as_the_caller_chose() {
    let policies =
        [Backpressure::Adapt, Backpressure::Wait, Backpressure::Fail, Backpressure::Grow];
    for policy in policies {
        let dir = Dir::new();
        let mut server = Process::start("server", &dir.run_dir);
        let limits = Limits { max_lane: Geometry::new(1 << 16).unwrap(), ..Limits::default() };
        let config = client_config().timeout(SOON).backpressure(policy);
        let config = config.lane(client_config().lane.limits(limits));
        let mut client = Client::<Hold>::with_config(&dir.run_dir, config);
        let session = client.connect().unwrap();
        session.submit(&0).unwrap();
        assert_eq!(server.next_line(), "came 0");
        let mut sent = 0;
        let full = loop {
            match session.post(&1) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
        };
        let is_right = match full {
            CallError::WouldBlock => policy == Backpressure::Fail,
            CallError::Deadline { executed: Executed::No } => policy != Backpressure::Fail,
            _ => false,
        };
        assert!(is_right, "{policy:?}: {full}");
        // It may also grow with the default, where it is often full.
        if policy != Backpressure::Adapt {
            let has_grown = session.stats().requests.grows > 0;
            assert_eq!(has_grown, policy == Backpressure::Grow, "{policy:?}");
        }
        server.send_line("open");
        session.flush(TEST_TIMEOUT).unwrap();
        let stats = session.stats();
        assert_eq!((stats.posts_taken, stats.posts_lost, stats.unsent), (sent, 0, 1));
        reconcile_session(session);
    }
}

/// It was informed that they were taken.
#[test]
fn posts_at_workers_are_handled_after_their_client_left() {
    let fixture = TestServer::with(ServerConfig::default().workers(1));
    let mut client = fixture.client::<Hold>();
    let session = client.connect().unwrap();
    for number in 1..=5 {
        session.post(&number).unwrap();
        // Withdrawn or answered, whichever comes first: nobody is there to see it.
        session.submit(&(10 * number)).unwrap();
    }
    session.flush(TEST_TIMEOUT).unwrap();
    assert_eq!(fixture.arrivals.next(), 1);
    drop(client);
    // Whoever comes in now, comes in after the reactor has seen the client leave.
    let _other = fixture.client::<Echo>();
    fixture.release();
    until("all are handled", || fixture.stats().posted == 5);
    let arrivals = fixture.arrivals.so_far();
    assert!((2..=5).all(|number| arrivals.contains(&number)), "{arrivals:?}");
    until("the session is over", || fixture.service::<Hold>().sessions == 0);
}

/// Their lane has room for all of them: on Windows a lane that a client has passed, and the server not taken, is lost with the
/// client.
#[test]
fn posts_are_handled_though_their_client_leaves_at_once() {
    for workers in [0, 2] {
        let fixture = TestServer::with(ServerConfig::default().workers(workers));
        let lane = client_config().lane.size(Geometry::new(1 << 20).unwrap());
        let mut client = fixture.client_with::<Echo>(client_config().lane(lane));
        let session = client.connect().unwrap();
        for len in 0..200 {
            session.post(&vec![7; 10 * len]).unwrap();
        }
        session.post_batch(&[vec![1; 10], vec![], vec![2; 5_000]]).unwrap();
        assert_eq!(session.stats().requests.grows, 0);
        drop(client);
        until("all are handled", || fixture.stats().posted == 201);
        let stats = fixture.close();
        assert_eq!((stats.accepted, stats.posted, stats.lost), (201, 201, 0), "{workers} workers");
    }
}

/// Published in the lane, and not taken: the handler of a call before them is held.
#[test]
fn posts_of_a_killed_client_are_handled() {
    for workers in [0, 1] {
        let fixture = TestServer::with(ServerConfig::default().workers(workers));
        let mut client = Process::start("client", fixture.run_dir());
        assert_eq!((client.ask("post 100"), client.next_line()), ("posts".into(), "posted".into()));
        assert_eq!(fixture.arrivals.next(), 0);
        client.kill();
        fixture.release();
        until("all are handled", || fixture.service::<Hold>().posted == 100);
        assert_eq!(fixture.arrivals.so_far(), (1..100).collect::<Vec<_>>());
        until("its session is over", || fixture.service::<Hold>().sessions == 0);
        let stats = fixture.close();
        assert_eq!((stats.accepted, stats.posted, stats.lost), (100, 100, 0), "{workers} workers");
    }
}

#[test]
fn a_client_that_is_killed_while_it_posts_leaves_no_gap() {
    for workers in [0, 2] {
        let fixture = TestServer::with(ServerConfig::default().workers(workers));
        fixture.release();
        let mut client = Process::start("client", fixture.run_dir());
        assert_eq!(client.ask("post 100000000"), "posts");
        until("many are handled", || fixture.service::<Hold>().posted > 1000);
        client.kill();
        until("its session is over", || fixture.service::<Hold>().sessions == 0);
        until("all are handled", || fixture.service::<Hold>().in_flight() == 0);
        let posted = fixture.service::<Hold>().posted;
        let mut numbers = fixture.arrivals.so_far();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..posted), "each once, and none was left out");
        let stats = fixture.close();
        assert_eq!((stats.accepted, stats.lost, stats.poisoned), (posted, 0, 0), "{stats:?}");
    }
}

/// Its place among the jobs of a session does not hide a request that is cancelled.
#[test]
fn a_request_behind_one_way_requests_is_withdrawn() {
    let fixture = TestServer::with(ServerConfig::default().workers(1));
    let mut client = fixture.client::<Hold>();
    let session = client.connect().unwrap();
    session.post(&1).unwrap();
    assert_eq!(fixture.arrivals.next(), 1);
    session.post(&2).unwrap();
    let first = session.submit(&3).unwrap();
    session.post(&4).unwrap();
    session.post(&5).unwrap();
    let second = session.submit(&6).unwrap();
    assert!(session.abandon(first) && session.abandon(second));
    until("both are withdrawn", || fixture.stats().refused == 2);
    fixture.release();
    until("the others are handled", || fixture.stats().posted == 4);
    assert_eq!(fixture.arrivals.so_far(), [2, 4, 5]);
}
