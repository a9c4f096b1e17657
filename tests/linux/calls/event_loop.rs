use std::os::fd::AsFd;

use bellwire::{CallError, CloseReason, Doorbell, ServerConfig, Session};
use bellwire_memfd::{clock, poll};

use crate::support::guard::{test_deadline, until};
use crate::support::services::{Echo, Hold};
use crate::support::test_server::{TestServer, client_config, reconcile_session};

fn is_readable(session: &Session<Hold>) -> bool {
    let fd = session.pollable().expect("a descriptor to poll");
    poll::wait_readable(&[fd], Some(clock::now())).unwrap().any()
}

fn sleep_until_readable(fd: &impl AsFd) {
    assert!(
        poll::wait_readable(&[fd.as_fd()], Some(test_deadline())).unwrap().any(),
        "nobody rings"
    );
}

#[test]
fn an_event_loop_sleeps_on_one_descriptor_and_misses_no_answer() {
    for doorbell in [Doorbell::Eventfd, Doorbell::Socket] {
        let fixture = TestServer::with(ServerConfig::default().workers(1));
        let mut client = fixture.client_with::<Hold>(client_config().doorbell(doorbell));
        let session = client.session().unwrap();
        assert!(session.try_reply().unwrap().is_none());
        let ticket = session.submit(&1).unwrap();
        assert_eq!(fixture.arrivals.next(), 1);
        assert!(!session.arm().unwrap(), "{doorbell:?}");
        assert!(!is_readable(session), "{doorbell:?}: no answer yet");
        fixture.release();
        sleep_until_readable(&session.pollable().unwrap());
        let (answered, answer) = session.try_reply().unwrap().expect("that was what rang");
        assert_eq!((answered, answer.unwrap()), (ticket, 1));
        assert!(session.try_reply().unwrap().is_none());
        // Many times, with no call to wait in between.
        let mut loops = 0;
        for at in 0..500 {
            session.submit(&at).unwrap();
            let (_, answer) = loop {
                if let Some(reply) = session.try_reply().unwrap() {
                    break reply;
                }
                if !session.arm().unwrap() {
                    loops += 1;
                    sleep_until_readable(&session.pollable().unwrap());
                }
            };
            assert_eq!(answer.unwrap(), at, "{doorbell:?}");
        }
        assert!(loops > 0, "{doorbell:?}: it never slept");
        reconcile_session(session);
        drop(client);
        assert_eq!(fixture.close().answered, 501);
    }
}

#[test]
fn an_event_loop_learns_that_the_provider_is_gone() {
    for doorbell in [Doorbell::Eventfd, Doorbell::Socket] {
        let fixture = TestServer::open();
        let mut client = fixture.client_with::<Echo>(client_config().doorbell(doorbell));
        let session = client.session().unwrap();
        assert!(!session.arm().unwrap());
        let fd = session.pollable().unwrap().try_clone_to_owned().unwrap();
        fixture.close();
        sleep_until_readable(&fd);
        let gone = session.try_reply();
        assert!(
            matches!(gone, Err(CallError::Closed { reason: CloseReason::Stopping, .. })),
            "{doorbell:?}: {gone:?}"
        );
    }
}

#[test]
fn arming_reports_an_answer_that_has_already_arrived() {
    let fixture = TestServer::open();
    let config = client_config().doorbell(Doorbell::Eventfd);
    let mut client = fixture.client_with::<Echo>(config);
    let session = client.session().unwrap();
    let ticket = session.submit(&vec![1]).unwrap();
    // A call waits for its own answer, and puts the first one by.
    assert_eq!(session.call(&vec![2]).unwrap(), [2]);
    assert!(session.arm().unwrap());
    let (answered, answer) = session.try_reply().unwrap().unwrap();
    assert_eq!((answered, answer.unwrap()), (ticket, vec![1]));
}

#[test]
fn an_event_loop_may_take_one_answer_at_a_time() {
    for doorbell in [Doorbell::Eventfd, Doorbell::Socket] {
        let fixture = TestServer::with(ServerConfig::default().workers(1));
        let mut client = fixture.client_with::<Hold>(client_config().doorbell(doorbell));
        let session = client.session().unwrap();
        let sent = [1, 2, 3].map(|number| session.submit(&number).unwrap());
        fixture.release();
        until("all are answered", || fixture.stats().answered == 3);
        for (ticket, left) in sent.into_iter().zip([2, 1, 0]) {
            assert!(session.arm().unwrap(), "{doorbell:?}: {ticket:?} is there");
            assert_eq!(session.try_reply().unwrap().unwrap().0, ticket);
            assert_eq!(session.stats().in_flight, left);
        }
        assert!(!session.arm().unwrap(), "{doorbell:?}: nothing is there any more");
    }
}

#[test]
fn a_session_rung_by_futex_has_nothing_to_poll() {
    let fixture = TestServer::open();
    let mut client = fixture.client::<Echo>();
    let none = client.session().unwrap().pollable().unwrap_err();
    assert_eq!(none.kind(), std::io::ErrorKind::Unsupported);
}
