//! One session's trouble is not another's.

use std::thread;
use std::time::Duration;

use bellwire::{
    CallError, ErrorKind, Geometry, IncidentCause, LaneConfig, Limits, RefuseCode, ServerConfig,
    Session, SpinPolicy,
};

use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::services::{AsRequested, Echo, Hold};
use crate::support::test_server::{TestServer, reconcile_session};

#[test]
fn a_slow_handler_holds_up_no_other_session_when_there_are_workers() {
    let fixture = TestServer::with(ServerConfig::default().workers(2));
    let mut slow = fixture.client::<Hold>();
    let mut quick = fixture.client::<Echo>();
    let held = slow.session().unwrap().submit(&1).unwrap();
    assert_eq!(fixture.arrivals.next(), 1);
    for at in 0..50 {
        assert_eq!(quick.call(&vec![at]).unwrap(), [at]);
    }
    assert!(slow.session().unwrap().try_reply().unwrap().is_none());
    fixture.release();
    let (answered, answer) = slow.session().unwrap().wait_reply(TEST_TIMEOUT).unwrap();
    assert_eq!((answered, answer.unwrap()), (held, 1));
    drop((slow, quick));
    assert_eq!(fixture.close().answered, 51);
}

/// What the server's lane holds of echoes of `BIG`, and one more that waits for room.
const TAKEN: u64 = 16;
const BIG: [u8; 1000] = [7; 1000];

/// Sends so much and reads so little that the server can no longer answer, and sleeps. Returns how often it had slept
/// before the last requests came.
fn stop_reading(fixture: &TestServer, session: &mut Session<Echo>) -> u64 {
    for _ in 0..TAKEN + 2 {
        until("there is room", || session.submit(&BIG.to_vec()).is_ok());
    }
    // The reactor publishes its counters when it goes to sleep.
    until("the server sleeps, and an answer is pending", || fixture.stats().accepted == TAKEN);
    let parks = fixture.stats().parks;
    // These find the server unable to take them.
    for _ in 0..4 {
        session.submit(&BIG.to_vec()).unwrap();
    }
    parks
}

/// A server that spins eagerly: a session that always seems active would starve all others. Its lanes have a fixed
/// size, so that the test knows what fills them.
fn eager_spinning() -> ServerConfig {
    let long = Duration::from_millis(1);
    let limits = Limits { max_lane: Geometry::DEFAULT, ..Limits::default() };
    ServerConfig::default()
        .spin(SpinPolicy { max: long, pays_within: long })
        .lane(LaneConfig::default().limits(limits))
}

#[test]
fn a_client_that_reads_no_answers_delays_no_other_client() {
    let fixture = TestServer::with(eager_spinning());
    let mut stalled = fixture.client::<Echo>();
    let session = stalled.session().unwrap();
    stop_reading(&fixture, session);
    let mut other = fixture.client::<Echo>();
    assert_eq!(other.call(&vec![1]).unwrap(), [1]);
    let mut third = fixture.client::<AsRequested>();
    assert_eq!(third.call(&AsRequested::ANSWER).unwrap(), b"fine");
    // Fill the own lane, too: then it is the caller's to wait.
    while session.submit(&BIG.to_vec()).is_ok() {}
    assert!(matches!(session.submit(&BIG.to_vec()), Err(CallError::WouldBlock)));
    // And when it reads at last, nothing was lost.
    for _ in 0..session.stats().in_flight {
        assert_eq!(session.wait_reply(TEST_TIMEOUT).unwrap().1.unwrap(), BIG);
    }
    drop((stalled, other, third));
    let stats = fixture.close();
    assert_eq!((stats.accepted, stats.refused, stats.lost), (stats.answered, 0, 0));
}

#[test]
fn a_server_sleeps_while_a_client_reads_no_answers() {
    let fixture = TestServer::with(eager_spinning());
    let mut stalled = fixture.client::<Echo>();
    let parks = stop_reading(&fixture, stalled.session().unwrap());
    until("the server sleeps again", || fixture.stats().parks > parks);
    assert_eq!(fixture.stats().accepted, TAKEN);
    // Whether the rest is answered or refused depends on what the server notices first: the client's end, or its own.
    drop(stalled);
    let stats = fixture.close();
    assert_eq!(stats.accepted, stats.answered + stats.refused);
}

#[test]
fn a_call_waits_for_room_and_puts_earlier_answers_by() {
    let fixture = TestServer::with(eager_spinning());
    let mut stalled = fixture.client::<Echo>();
    let session = stalled.session().unwrap();
    stop_reading(&fixture, session);
    let in_flight = session.stats().in_flight;
    for at in 0..20 {
        assert_eq!(session.call(&vec![at; 2000]).unwrap(), [at; 2000]);
    }
    // Neither lost nor counted twice.
    reconcile_session(session);
    assert_eq!(session.stats().in_flight, in_flight);
    let mut came = 0;
    while let Some((_, answer)) = session.try_reply().unwrap() {
        assert_eq!(answer.unwrap(), BIG);
        came += 1;
    }
    assert_eq!(came, in_flight);
    reconcile_session(session);
}

#[test]
fn a_client_at_its_limit_of_requests_delays_no_other_client() {
    let config = eager_spinning().workers(2).max_in_flight(1);
    let fixture = TestServer::with(config);
    let mut greedy = fixture.client::<Hold>();
    let session = greedy.session().unwrap();
    for who in 1..=3 {
        session.submit(&who).unwrap();
    }
    assert_eq!(fixture.arrivals.next(), 1);
    let mut other = fixture.client::<Echo>();
    assert_eq!(other.call(&vec![1]).unwrap(), [1]);
    assert_eq!(fixture.arrivals.so_far(), [0; 0], "one at a time");
    fixture.release();
    let answers = [(); 3].map(|()| session.wait_reply(TEST_TIMEOUT).unwrap().1.unwrap());
    assert_eq!(answers, [1, 2, 3]);
}

#[test]
fn one_session_too_many_is_refused_with_the_limit_and_a_freed_slot_is_reused() {
    let fixture = TestServer::with(ServerConfig::default().max_sessions(2));
    let (first, mut second) = (fixture.client::<Echo>(), fixture.client::<Echo>());
    let mut third = bellwire::Client::<Echo>::new(fixture.run_dir());
    let error = third.call(&vec![1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("all 2 sessions"), "{error}");
    until("it is noted", || !fixture.recorded_incidents().is_empty());
    let recorded_incidents = fixture.recorded_incidents();
    let is_expected = |cause: &IncidentCause| matches!(cause, IncidentCause::Refused { code: RefuseCode::Quota, reason } if reason.contains("all 2"));
    assert!(
        matches!(&recorded_incidents[..], [first, ..] if is_expected(first)),
        "{recorded_incidents:?}"
    );
    assert_eq!(second.call(&vec![2]).unwrap(), [2]);
    drop(first);
    until("a session is free", || third.call(&vec![3]).is_ok());
}

#[test]
fn many_sessions_from_many_threads_each_get_their_own_answers() {
    let fixture = TestServer::with(ServerConfig::default().workers(2));
    thread::scope(|scope| {
        for thread in 0..4_u8 {
            let fixture = &fixture;
            let clients: Vec<_> = (0..8).map(|_| fixture.client::<Echo>()).collect();
            scope.spawn(move || {
                let mut clients = clients;
                for round in 0..50_u8 {
                    for (at, client) in clients.iter_mut().enumerate() {
                        let request = vec![thread, round, at as u8];
                        assert_eq!(client.call(&request).unwrap(), request);
                    }
                }
            });
        }
    });
    let stats = fixture.close();
    assert_eq!((stats.admitted, stats.answered), (32, 4 * 8 * 50));
}
