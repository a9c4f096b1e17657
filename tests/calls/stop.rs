use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bellwire::{
    CallError, Client, CloseReason, ErrorKind, Executed, Geometry, LaneConfig, Limits,
    ProviderState, Refreshed, Server, ServerConfig, SnapshotCache, Status,
};

use crate::support::guard::{TEST_TIMEOUT, scaled, until};
use crate::support::parked::park;
use crate::support::services::{Echo, Hold, Numbers, numbers};
use crate::support::test_server::{
    Dir, TestServer, client_config, provide_with, reconcile, server_config,
};

#[test]
fn a_stopping_server_answers_accepted_requests_and_refuses_the_rest() {
    let fixture = TestServer::with(
        ServerConfig::default()
            // Two are held, one echoes.
            .workers(3)
            .max_in_flight(2)
            .drain_timeout(TEST_TIMEOUT),
    );
    let mut hold = fixture.client::<Hold>();
    let mut echo = fixture.client::<Echo>();
    let session = hold.session().unwrap();
    for who in 1..=4 {
        session.submit(&who).unwrap();
    }
    let mut taken = [fixture.arrivals.next(), fixture.arrivals.next()];
    taken.sort_unstable();
    assert_eq!(taken, [1, 2]);
    let gate = fixture.gate();
    let (server, _dir) = fixture.into_server();
    let stopped = thread::spawn(move || server.stop());
    // Nothing more is taken once it stops.
    let mut echoed = 0;
    let refused = loop {
        match echo.session().unwrap().call(&vec![1]) {
            Ok(_) => echoed += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, CallError::Declined { status: Status::Stopping }), "{refused}");
    assert_eq!((refused.kind(), refused.executed()), (ErrorKind::Stopping, Executed::No));
    gate.open();
    let answers = [(); 4].map(|()| session.wait_reply(TEST_TIMEOUT).unwrap().1);
    let ran = answers.iter().filter(|answer| answer.is_ok()).count();
    let is_refused = |answer: &&Result<_, _>| {
        matches!(answer, Err(CallError::Declined { status: Status::Stopping }))
    };
    assert_eq!((ran, answers.iter().filter(is_refused).count()), (2, 2));
    let stats = stopped.join().unwrap();
    reconcile(&stats);
    assert_eq!((stats.answered, stats.refused, stats.lost), (2 + echoed, 3, 0));
}

/// Neither its answers, which nobody makes room for, nor what else it has sent.
#[test]
fn a_server_that_stops_does_not_wait_for_a_client_that_is_gone() {
    for (workers, leaves_after_stop) in [(0, false), (1, false), (0, true), (1, true)] {
        let small = Limits { max_lane: Geometry::DEFAULT, ..Limits::default() };
        let lane = || LaneConfig::default().limits(small);
        let config = ServerConfig::default().workers(workers).lane(lane());
        let fixture = TestServer::with(config.drain_timeout(Duration::MAX));
        let mut client = fixture.client_with::<Echo>(client_config().lane(lane()));
        let session = client.session().unwrap();
        let request = vec![7; 1000];
        // Until neither lane has room: it takes no answer.
        until("both lanes are full", || {
            let is_full = matches!(session.submit(&request), Err(CallError::WouldBlock));
            is_full && fixture.service::<Echo>().lane_full > 0
        });
        let mut other = fixture.client::<Echo>();
        let other = other.session().unwrap();
        let (server, _dir) = fixture.into_server();
        let (sender, stopped) = channel();
        let stopping = thread::spawn(move || sender.send(server.stop()).unwrap());
        if leaves_after_stop {
            until("the server stops", || other.call(&vec![1]).is_err());
        }
        drop(client);
        let stats = stopped.recv_timeout(scaled(TEST_TIMEOUT)).expect("it waits for ever");
        stopping.join().unwrap();
        reconcile(&stats);
    }
}

#[test]
fn a_handler_may_stop_its_own_server() {
    for workers in [0, 1] {
        let dir = Dir::new();
        let config = server_config(ServerConfig::default().workers(workers));
        let running = Arc::new(Mutex::new(None::<Server>));
        let stopped = Arc::clone(&running);
        let server = provide_with::<Echo>(&dir.run_dir, config, move |_, request| {
            let server = stopped.lock().unwrap().take();
            server.map(Server::stop);
            Ok(request)
        });
        *running.lock().unwrap() = Some(server.into_inner());
        let mut client = Client::<Echo>::with_config(&dir.run_dir, client_config());
        assert_eq!(client.call(&vec![1]).unwrap(), [1], "{workers} workers");
        until("nobody serves any more", || client.refresh() == ProviderState::Absent);
    }
}

#[test]
fn a_stopping_server_closes_the_session_of_a_parked_client() {
    let fixture =
        TestServer::with(ServerConfig::default().workers(1).drain_timeout(Duration::ZERO));
    let mut client = fixture.client::<Hold>();
    let caller = park(move || client.call(&1));
    assert_eq!(fixture.arrivals.next(), 1);
    let gate = fixture.gate();
    let (server, _dir) = fixture.into_server();
    let stopped = thread::spawn(move || server.stop());
    // The handler still runs: only the end of the session can end the call.
    let error = caller.join().unwrap().unwrap_err();
    assert!(
        matches!(
            error,
            CallError::Closed { reason: CloseReason::Stopping, executed: Executed::Maybe }
        ),
        "{error}"
    );
    gate.open();
    let stats = stopped.join().unwrap();
    reconcile(&stats);
    assert_eq!((stats.accepted, stats.lost), (1, 1));
}

#[test]
fn a_server_that_stops_wakes_a_parked_watcher() {
    let fixture = TestServer::open();
    fixture.numbers.publish(&numbers(1, 3)).unwrap();
    let mut cache = SnapshotCache::<Numbers>::with_config(fixture.run_dir(), client_config());
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
    let watcher = park(move || (cache.wait_for_change(None).unwrap(), cache));
    fixture.close();
    let (found, cache) = watcher.join().unwrap();
    assert_eq!(found, Refreshed::Unavailable);
    assert_eq!(cache.current().unwrap().bytes(), numbers(1, 3), "the last good one stays");
}

#[test]
fn a_server_that_is_dropped_stops() {
    let fixture = TestServer::open();
    let mut client = fixture.client::<Echo>();
    assert_eq!(client.call(&vec![1]).unwrap(), [1]);
    let (server, _dir) = fixture.into_server();
    drop(server);
    assert!(!client.session().unwrap().is_open());
    assert_eq!(client.refresh(), ProviderState::Absent);
}
