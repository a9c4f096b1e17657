//! Lanes that become small again.

use bellwire::CallError;

use crate::support::blob_server::{BlobServer, request, request_by};
use crate::support::blobs::{Blobs, Storage, submit};
use crate::support::guard::until;
use crate::support::test_server::reconcile_session;

#[test]
fn lanes_that_are_much_too_large_shrink_at_the_next_sends() {
    let settings = "stream=0 shrink_ms=1";
    for doorbell in 1..=3 {
        let blob_server = BlobServer::open::<Blobs>(settings);
        let mut client = blob_server.client::<Blobs>(&format!("{settings} doorbell={doorbell}"));
        let session = client.session().unwrap();
        for round in 1..=3 {
            submit(session, &request(50_000, 50_000)).unwrap();
            until("both lanes are small again", || {
                session.call(&request(100, 100)).unwrap();
                let stats = session.stats();
                let is_small = |size| size == 16 << 10;
                is_small(stats.requests.size) && is_small(stats.answers.size)
            });
            let stats = session.stats();
            for lane in [stats.requests, stats.answers] {
                assert_eq!(lane.grows, lane.shrinks, "{lane:?}");
                assert!(lane.grows >= round, "{lane:?}");
                assert_eq!(u64::from(lane.epoch), 1 + lane.grows + lane.shrinks, "{lane:?}");
            }
        }
        reconcile_session(session);
        drop(client);
        assert_eq!(blob_server.close().admitted, 1);
    }
}

#[test]
fn lanes_keep_their_size_until_the_shrink_delay_is_over() {
    // Of the half minute that is the default, this takes less.
    let blob_server = BlobServer::open::<Blobs>("stream=0");
    let mut client = blob_server.client::<Blobs>("stream=0");
    let session = client.session().unwrap();
    submit(session, &request(50_000, 50_000)).unwrap();
    for _ in 0..5000 {
        session.call(&request(100, 100)).unwrap();
    }
    let stats = session.stats();
    for lane in [stats.requests, stats.answers] {
        assert_eq!((lane.size, lane.shrinks), (128 << 10, 0), "{lane:?}");
    }
}

#[test]
fn a_trim_shrinks_both_lanes_and_leaves_messages_in_flight_intact() {
    let blob_server = BlobServer::open::<Blobs>("stream=0");
    let mut client = blob_server.client::<Blobs>("stream=0");
    let session = client.session().unwrap();
    for round in 1..=20 {
        let large = session.submit(&request(50_000, 50_000)).unwrap();
        let sealed =
            session.submit(&request_by(9000, Storage::Sealed, 9000, Storage::Sealed)).unwrap();
        session.trim().unwrap();
        let stats = session.stats();
        for lane in [stats.requests, stats.answers] {
            assert_eq!((lane.size, lane.grows, lane.shrinks), (16 << 10, round, round), "{lane:?}");
        }
        assert_eq!(stats.in_flight, 2);
        for (ticket, len) in [(large, 50_000), (sealed, 9000)] {
            let (answered, answer) = session.try_reply().unwrap().expect("the trim came after it");
            assert_eq!((answered, answer.unwrap().len()), (ticket, len));
        }
    }
    // There is nothing to release, and that is no error.
    session.trim().unwrap();
    session.trim().unwrap();
    reconcile_session(session);
}

#[test]
fn a_trim_of_an_ended_session_is_an_error() {
    let blob_server = BlobServer::open::<Blobs>("");
    let mut client = blob_server.client::<Blobs>("");
    let session = client.session().unwrap();
    session.call(&request(100, 100)).unwrap();
    blob_server.close();
    let error = session.trim().unwrap_err();
    assert!(matches!(error, CallError::PeerGone { .. }), "{error}");
    assert!(session.call(&request(100, 100)).is_err());
}
