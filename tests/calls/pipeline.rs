//! Many requests in flight.

use std::time::Duration;

use bellwire::{CallError, Doorbell, ServerConfig};

use crate::support::guard::TEST_TIMEOUT;
use crate::support::services::Hold;
use crate::support::test_server::{TestServer, client_config, reconcile_session};

#[test]
fn a_wait_for_any_answer_ends_at_its_timeout() {
    for doorbell in [Doorbell::Futex, Doorbell::Eventfd, Doorbell::Socket] {
        let fixture = TestServer::with(ServerConfig::default().workers(1));
        let mut client = fixture.client_with::<Hold>(client_config().doorbell(doorbell));
        let session = client.session().unwrap();
        let sent = [1, 2].map(|number| session.submit(&number).unwrap());
        let early = session.wait_reply(Duration::from_millis(5));
        assert!(matches!(early, Err(CallError::Deadline { .. })), "{doorbell:?}: {early:?}");
        assert_eq!(session.stats().in_flight, 2, "{doorbell:?}: nobody gave up");
        fixture.release();
        for (number, expected) in [1, 2].into_iter().zip(sent) {
            let (ticket, answer) = session.wait_reply(TEST_TIMEOUT).unwrap();
            assert_eq!((ticket, answer.unwrap()), (expected, number), "{doorbell:?}");
        }
        reconcile_session(session);
        fixture.close();
        let gone = client.session().unwrap().wait_reply(TEST_TIMEOUT);
        assert!(matches!(gone, Err(CallError::Closed { .. })), "{doorbell:?}: {gone:?}");
    }
}

#[test]
fn a_batch_past_its_timeout_stays_in_flight() {
    let fixture = TestServer::with(ServerConfig::default().workers(1));
    let mut client = fixture.client_with::<Hold>(client_config());
    let session = client.session().unwrap();
    let sent = session.submit_batch(&[1, 2]).unwrap();
    let early = session.wait_batch(Duration::from_millis(5)).map(drop);
    assert!(matches!(early, Err(CallError::Deadline { .. })), "{early:?}");
    assert_eq!(session.stats().in_flight, 1, "nobody gave up");
    fixture.release();
    let (ticket, replies) = session.wait_batch(TEST_TIMEOUT).unwrap();
    let answers: Result<Vec<_>, _> = replies.unwrap().collect();
    assert_eq!((ticket, answers.unwrap()), (sent, vec![1, 2]));
    reconcile_session(session);
}
