use std::time::Duration;

use bellwire::{CallError, Client, Executed, LaneConfig, Limits, ServerConfig, SnapshotCache};

use super::agree;
use crate::support::child::Process;
use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::parked::once_parked;
use crate::support::services::{
    AsRequested, AsRequestedBytes, AsRequestedNumber, Echo, Hold, Numbers,
};
use crate::support::test_server::{Dir, TestServer, client_config};

fn with_worker() -> TestServer {
    TestServer::with(ServerConfig::default().workers(1))
}

#[test]
fn each_way_to_end_is_counted_on_both_ends() {
    for workers in [0, 2] {
        // Too little for a rambling answer.
        let limits = Limits { max_message: 64 << 10, ..Limits::default() };
        let fixture = TestServer::with(
            ServerConfig::default().workers(workers).lane(LaneConfig::default().limits(limits)),
        );
        let mut client = fixture.client::<AsRequested>();
        for (outcome, times) in [
            (AsRequested::ANSWER, 5),
            (AsRequested::FAIL, 3),
            (AsRequested::PANIC, 2),
            (AsRequested::LARGE, 1),
        ] {
            (0..times).for_each(|_| drop(client.call(&outcome)));
        }
        let (here, there) = agree(&fixture, client.session().unwrap());
        assert_eq!((here.made, here.answered, here.refused), (11, 5, 0), "{workers} workers");
        assert_eq!((here.failed, here.errors, here.dropped), (6, 6, 0), "{workers} workers");
        assert_eq!((there.answered, there.errors, there.panics), (11, 6, 2), "{workers} workers");
        drop(client);

        // Bytes that are no request: refused. An answer that is no number: dropped.
        let mut client = fixture.client::<AsRequestedBytes>();
        client.call(&vec![1, 2, 3]).unwrap_err();
        let stats = client.session().unwrap().stats();
        assert_eq!((stats.made, stats.refused, stats.failed), (1, 1, 0));
        let mut client = fixture.client::<AsRequestedNumber>();
        assert!(matches!(client.call(&AsRequested::ANSWER), Err(CallError::Malformed(_))));
        let stats = client.session().unwrap().stats();
        assert_eq!((stats.made, stats.failed, stats.dropped, stats.errors), (1, 1, 1, 0));
        drop(client);
        let stats = fixture.close();
        assert_eq!((stats.accepted, stats.refused, stats.errors, stats.lost), (13, 1, 6, 0));
    }
}

#[test]
fn pipelines_deadlines_and_abandoned_requests_reconcile() {
    let fixture = with_worker();
    let mut client = fixture.client::<Hold>();
    let session = client.session().unwrap();
    let tickets: Vec<_> = (0..10).map(|at| session.submit(&at).unwrap()).collect();
    assert_eq!(fixture.arrivals.next(), 0);
    // The first runs; the others wait for the worker, and are taken back.
    for ticket in &tickets[..4] {
        assert!(session.abandon(*ticket) && !session.abandon(*ticket));
    }
    let late = session.call_within(&77, Duration::ZERO).unwrap_err();
    assert!(matches!(late, CallError::Deadline { .. }), "{late}");
    until("what no worker has begun is taken back", || fixture.service::<Hold>().refused == 4);
    fixture.release();
    let mut answers = 0;
    while answers < 6 {
        let (_, answer) = session.wait_reply(Duration::from_secs(60)).unwrap();
        answer.unwrap();
        answers += 1;
    }
    let (here, there) = agree(&fixture, session);
    assert_eq!((here.made, here.answered, here.refused, here.in_flight), (11, 6, 0, 0));
    assert_eq!((here.failed, here.late, here.errors, here.dropped), (5, 1, 0, 5));
    assert_eq!((there.accepted, there.answered, there.refused), (11, 7, 4));
}

#[test]
fn an_answer_that_was_not_taken_is_in_flight_until_it_is_abandoned() {
    let fixture = with_worker();
    let mut client = fixture.client::<Hold>();
    let session = client.session().unwrap();
    let first = session.submit(&1).unwrap();
    let second = session.submit(&2).unwrap();
    fixture.release();
    // Waiting for a call stashes the answers before it.
    assert_eq!(session.call(&3).unwrap(), 3);
    let stats = session.stats();
    assert_eq!((stats.made, stats.answered, stats.in_flight), (3, 1, 2));
    assert!(session.abandon(first));
    assert_eq!(session.try_reply().unwrap().unwrap().0, second);
    let (here, there) = agree(&fixture, session);
    assert_eq!((here.answered, here.failed, here.dropped, here.in_flight), (2, 1, 1, 0));
    assert_eq!((there.answered, there.refused), (3, 0));
}

#[test]
fn batches_growth_and_attachments_are_counted_alike() {
    let fixture = TestServer::open();
    let config = client_config().lane(client_config().lane.attach_from(Some(100_000)));
    let mut client = fixture.client_with::<Echo>(config);
    let session = client.session().unwrap();
    for _ in 0..3 {
        let replies = session.call_batch(&[vec![1; 5], vec![2; 50]]).unwrap();
        assert_eq!(replies.count(), 2);
    }
    for len in [20_000, 40_000, 200_000, 100_000] {
        assert_eq!(session.call(&vec![7; len]).unwrap().len(), len);
    }
    let many: Vec<Vec<u8>> = (0..500_u32).map(|at| vec![at as u8; 40]).collect();
    session.call_many(&many, |_, answer| drop(answer.unwrap())).unwrap();
    let (here, there) = agree(&fixture, session);
    assert_eq!((here.made, here.answered, here.failed), (507, 507, 0));
    assert_eq!((here.requests.attaches, there.attaches_received), (2, 2));
    assert_eq!(here.answers.attaches, there.attaches_sent);
    let grown = here.requests.grows + here.answers.grows;
    assert!(grown >= 2, "{here:?}");
    assert_eq!((grown, here.requests.shrinks + here.answers.shrinks), (there.grows, there.shrinks));
    // Each end polls by itself, the one that reads more often.
    assert!(there.request_high_water > 20_000 && here.answers.high_water > 20_000, "{there:?}");
    // The rings of both ends are counted where they were made.
    assert!(here.requests.bytes > 60_000 && here.answers.bytes > 260_000, "{here:?}");
}

#[test]
fn calls_that_are_not_sent_are_counted_apart() {
    let fixture = with_worker();
    let config = client_config().lane(
        client_config()
            .lane
            .limits(Limits { max_lane: bellwire::Geometry::DEFAULT, ..Limits::default() }),
    );
    let mut client = fixture.client_with::<Hold>(config);
    let session = client.session().unwrap();
    let mut made = 0;
    let full = loop {
        match session.submit(&made) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, CallError::WouldBlock), "{full}");
    let late = session.call_within(&0, Duration::ZERO).unwrap_err();
    // The reactor may have taken one more in between: then this one was sent, and given up.
    let CallError::Deadline { executed } = late else { panic!("{late}") };
    let sent = u64::from(executed == Executed::Maybe);
    let stats = session.stats();
    let (made_now, unsent) = (stats.made, stats.unsent);
    assert_eq!((made_now, unsent, stats.in_flight), (made + sent, 2 - sent, made));
    assert!(stats.requests.full >= 1, "{stats:?}");
    fixture.release();
    for _ in 0..made {
        session.wait_reply(Duration::from_secs(60)).unwrap().1.unwrap();
    }
    agree(&fixture, session);
}

#[test]
fn a_snapshot_that_is_not_published_yet_is_refused() {
    let fixture = TestServer::open();
    let mut cache = SnapshotCache::<Numbers>::with_config(fixture.run_dir(), client_config());
    until("a board", || {
        matches!(cache.refresh_within(TEST_TIMEOUT), Ok(bellwire::Refreshed::Empty))
    });
    cache.wait_for_change(Some(Duration::ZERO)).unwrap();
    fixture.numbers.publish(&crate::support::services::numbers(1, 4)).unwrap();
    until("a snapshot", || {
        cache.refresh_within(TEST_TIMEOUT).is_ok_and(|_| cache.current().is_some())
    });
    drop(cache);
    let stats = fixture.close();
    assert_eq!((stats.attaches_sent, stats.errors), (1, 0));
    assert_eq!(stats.accepted, stats.answered + stats.refused);
}

#[test]
fn requests_of_a_client_that_dies_are_counted_as_lost() {
    let fixture = with_worker();
    let mut child = Process::start("client", fixture.run_dir());
    assert_eq!(child.ask("ask 5"), "asked");
    until("all are taken", || fixture.service::<Hold>().accepted == 5);
    child.kill();
    until("it is gone", || fixture.service::<Hold>().sessions == 0);
    let stats = fixture.service::<Hold>();
    assert_eq!((stats.accepted, stats.lost, stats.answered), (5, 5, 0), "{stats:?}");
    assert_eq!(stats.in_flight(), 0);
    let stats = fixture.close();
    assert_eq!((stats.accepted, stats.lost), (5, 5), "what the worker finished is nobody's");
}

#[test]
fn a_server_that_dies_leaves_every_request_accounted_for() {
    let dir = Dir::new();
    let mut server = Process::start("server 1", &dir.run_dir);
    let mut client = Client::<Hold>::with_config(&dir.run_dir, client_config());
    let session = client.connect().unwrap();
    let kept = session.submit(&1).unwrap();
    assert_eq!(server.next_line(), "came 1");
    let killer = once_parked(move || server.kill());
    let gone = session.call_many(&[2, 3, 4], |_, answer| drop(answer.unwrap_err()));
    assert!(matches!(gone, Err(CallError::PeerGone { .. })), "{gone:?}");
    killer.join().unwrap();
    let stats = session.stats();
    assert_eq!((stats.made, stats.answered, stats.failed, stats.in_flight), (4, 0, 3, 1));
    assert!(session.abandon(kept));
    let stats = session.stats();
    assert_eq!((stats.made, stats.failed, stats.in_flight), (4, 4, 0));
}
