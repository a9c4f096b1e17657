use std::time::Duration;

use bellwire::{CallError, Client, Doorbell, ErrorKind, Executed, ProviderState, ServerConfig};

use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::parked::once_parked;
use crate::support::services::{Echo, Hold};
use crate::support::test_server::{Dir, TestServer, client_config, reconcile_session};
use crate::support::transport::endpoint::Endpoint;
use crate::support::transport::prelude::*;

fn with_worker() -> TestServer {
    TestServer::with(ServerConfig::default().workers(1))
}

#[test]
fn another_thread_cancels_a_parked_call_and_only_that() {
    for doorbell in [Doorbell::Futex, Doorbell::Eventfd, Doorbell::Socket] {
        let fixture = with_worker();
        let mut client = fixture.client_with::<Hold>(client_config().doorbell(doorbell));
        let canceller = client.canceller().unwrap();
        let from_elsewhere = once_parked(move || canceller.cancel());
        let error = client.call(&1).unwrap_err();
        assert!(
            matches!(error, CallError::Cancelled { executed: Executed::Maybe }),
            "{doorbell:?}: {error}"
        );
        from_elsewhere.join().unwrap();
        fixture.release();
        assert_eq!(client.call(&2).unwrap(), 2, "{doorbell:?}: the next call is not cancelled");
        let session = client.session().unwrap();
        assert_eq!((session.stats().answered, session.stats().failed), (1, 1));
        reconcile_session(session);
        drop(client);
        assert_eq!(fixture.close().accepted, 2);
    }
}

#[test]
fn a_cancellation_ahead_of_time_ends_the_next_wait() {
    let fixture = with_worker();
    let mut client = fixture.client::<Hold>();
    let canceller = client.canceller().unwrap();
    canceller.cancel();
    assert!(matches!(client.call(&1), Err(CallError::Cancelled { .. })));
    fixture.release();
    assert_eq!(client.call(&2).unwrap(), 2);
}

#[test]
fn a_call_that_waits_to_connect_is_cancelled_too() {
    let dir = Dir::new();
    // It listens, and never answers a HELLO.
    let (path, echo) = (dir.run_dir.path(), Client::<Echo>::SERVICE);
    let same_user = bellwire::Admission::SameUser;
    let silent = Endpoint::reserve(path, echo, &same_user, false, None).unwrap();
    silent.listen(1).unwrap();
    let mut client = Client::<Echo>::with_config(&dir.run_dir, client_config());
    let canceller = client.canceller().unwrap();
    let from_elsewhere = once_parked(move || canceller.cancel());
    let error = client.call(&vec![1]).unwrap_err();
    assert!(matches!(error, CallError::Cancelled { executed: Executed::No }), "{error}");
    from_elsewhere.join().unwrap();
    assert_eq!(client.refresh(), ProviderState::Connecting);
}

#[test]
fn a_call_ends_at_its_deadline_and_the_session_stays_open() {
    let fixture = with_worker();
    let mut client = fixture.client::<Hold>();
    for timeout in [Duration::ZERO, Duration::from_millis(10)] {
        let error = client.call_within(&1, timeout).unwrap_err();
        assert!(matches!(error, CallError::Deadline { executed: Executed::Maybe }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Deadline);
    }
    fixture.release();
    // The late answers are dropped, and are not delivered to another call.
    for at in 10..20 {
        assert_eq!(client.call(&at).unwrap(), at);
    }
    let stats = client.session().unwrap().stats();
    assert_eq!((stats.made, stats.answered, stats.failed, stats.in_flight), (12, 10, 2, 0));
}

#[test]
fn a_batch_ends_at_the_configured_deadline_or_at_its_own() {
    let fixture = with_worker();
    let mut client: Client<Hold> = fixture.client_with(client_config().timeout(Duration::ZERO));
    let by_client = client.call_batch(&[1, 2]).unwrap_err();
    let by_session = client.session().unwrap().call_batch(&[3]).unwrap_err();
    for error in [by_client, by_session] {
        assert!(matches!(error, CallError::Deadline { executed: Executed::Maybe }), "{error}");
    }
    fixture.release();
    // The late answers are dropped, and are not delivered to another batch.
    let answers = client.call_batch_within(&[4, 5], TEST_TIMEOUT).unwrap();
    assert_eq!(answers.map(Result::unwrap).collect::<Vec<_>>(), [4, 5]);
    let answers = client.session().unwrap().call_batch_within(&[6], TEST_TIMEOUT).unwrap();
    assert_eq!(answers.map(Result::unwrap).collect::<Vec<_>>(), [6]);
}

#[test]
fn a_request_that_waits_for_a_worker_is_withdrawn_when_it_is_abandoned() {
    let fixture = with_worker();
    let mut client = fixture.client::<Hold>();
    let session = client.session().unwrap();
    let held = session.submit(&1).unwrap();
    assert_eq!(fixture.arrivals.next(), 1);
    let unwanted = session.submit(&2).unwrap();
    assert!(session.abandon(unwanted));
    assert!(!session.abandon(unwanted));
    let last = session.submit(&3).unwrap();
    until("the cancellation is taken", || fixture.stats().refused == 1);
    fixture.release();
    for expected in [(held, 1), (last, 3)] {
        let (ticket, answer) = session.wait_reply(TEST_TIMEOUT).unwrap();
        assert_eq!((ticket, answer.unwrap()), expected);
    }
    reconcile_session(session);
    assert_eq!(fixture.arrivals.so_far(), [3], "the handler never saw the second");
    drop(client);
    let stats = fixture.close();
    assert_eq!((stats.accepted, stats.answered, stats.refused), (3, 2, 1));
}

#[test]
fn requests_that_wait_for_a_worker_are_withdrawn_when_their_session_ends() {
    let fixture = with_worker();
    let mut client = fixture.client::<Hold>();
    let session = client.session().unwrap();
    session.submit(&1).unwrap();
    assert_eq!(fixture.arrivals.next(), 1);
    for round in 0..3 {
        let mut gone = fixture.client::<Hold>();
        for request in 0..100 {
            gone.session().unwrap().submit(&(1000 + request)).unwrap();
        }
        let accepted = 1 + (round + 1) * 100;
        until("all are taken", || fixture.stats().accepted == accepted);
        drop(gone);
        until("its session is over", || fixture.stats().sessions == 1);
    }
    fixture.release();
    session.wait().unwrap();
    assert_eq!(session.try_reply().unwrap().unwrap().1.unwrap(), 1);
    assert_eq!(session.call(&2).unwrap(), 2);
    assert_eq!(fixture.arrivals.so_far(), [2], "the handler saw nothing of who is gone");
}

#[test]
fn sessions_have_workers_in_turns() {
    let fixture = with_worker();
    let (mut first, mut second) = (fixture.client::<Hold>(), fixture.client::<Hold>());
    let session = first.session().unwrap();
    session.submit(&1).unwrap();
    assert_eq!(fixture.arrivals.next(), 1);
    for request in 2..=4 {
        session.submit(&request).unwrap();
    }
    until("all are taken", || fixture.stats().accepted == 4);
    second.session().unwrap().submit(&5).unwrap();
    until("it is taken", || fixture.stats().accepted == 5);
    fixture.release();
    let order = [(); 4].map(|()| fixture.arrivals.next());
    assert_eq!(order, [2, 5, 3, 4]);
}

#[test]
fn a_session_is_cancelled_by_its_own_canceller() {
    let fixture = with_worker();
    let mut client = fixture.client::<Hold>();
    let session = client.session().unwrap();
    let canceller = session.canceller().unwrap();
    let from_elsewhere = once_parked(move || canceller.cancel());
    let error = session.call(&1).unwrap_err();
    assert!(matches!(error, CallError::Cancelled { executed: Executed::Maybe }), "{error}");
    from_elsewhere.join().unwrap();
    fixture.release();
    assert_eq!(session.call(&2).unwrap(), 2);
}
