//! What either end does not put up with.

use bellwire::{CallError, ErrorKind, Executed, Geometry, LimitOwner, Limits, Session, Status};

use crate::support::blob_server::{BlobServer, is_answer, request, request_by};
use crate::support::blobs::{Blobs, Storage, submit};
use crate::support::services::Echo;
use crate::support::test_server::{TestServer, client_config, reconcile_session};

/// A request that is refused before anything of it is written, however it is sent.
#[track_caller]
fn is_too_large(session: &mut Session<Blobs>, len: usize, expected: (u64, LimitOwner)) {
    let before = session.stats();
    let [private, sealed] =
        [Storage::Private, Storage::Sealed].map(|by| request_by(len, by, 8, Storage::Private));
    let errors = [
        session.call(&private).unwrap_err(),
        session.call(&sealed).unwrap_err(),
        session.submit(&private).unwrap_err(),
        session.submit(&sealed).unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.kind(), error.executed()), (ErrorKind::TooLarge, Executed::No));
        let CallError::TooLarge { len: said, limit, owner } = error else { panic!("{error}") };
        assert_eq!((said, (limit, owner)), (len as u64, expected));
    }
    let after = session.stats();
    assert_eq!((after.requests, after.made), (before.requests, before.made));
}

#[test]
fn a_request_above_either_ends_limit_is_not_sent() {
    for stream in ["", "stream=0"] {
        for (server, client, expected) in [
            ("", "max_message=100000", (100_000, LimitOwner::Own)),
            ("max_message=100000", "", (100_000, LimitOwner::Peer)),
            ("max_message=100000", "max_message=200000", (100_000, LimitOwner::Peer)),
            ("max_message=100000", "max_message=100000", (100_000, LimitOwner::Own)),
            ("max_message=300", "", (300, LimitOwner::Peer)),
        ] {
            let blob_server = BlobServer::open::<Blobs>(&format!("{stream} {server}"));
            let mut client = blob_server.client::<Blobs>(&format!("{stream} {client}"));
            let session = client.session().unwrap();
            let limit = expected.0 as usize;
            assert_eq!(session.max_request(), expected.0);
            is_too_large(session, limit + 1, expected);
            is_too_large(session, limit * 10, expected);
            // What is just within it goes through, in every way.
            for by in [Storage::Private, Storage::Sealed] {
                let most = request_by(limit, by, limit, by);
                is_answer(&session.call(&most).unwrap(), limit, by);
                is_answer(&submit(session, &most).unwrap(), limit, by);
            }
            reconcile_session(session);
            drop(client);
            let stats = blob_server.close();
            assert_eq!((stats.admitted, stats.accepted, stats.poisoned), (1, 4, 0));
        }
    }
}

#[test]
fn an_answer_above_either_ends_limit_is_reported_as_too_large() {
    for stream in ["", "stream=0"] {
        for (server, client) in [("", "max_message=100000"), ("max_message=100000", "")] {
            let blob_server = BlobServer::open::<Blobs>(&format!("{stream} {server}"));
            let mut client = blob_server.client::<Blobs>(&format!("{stream} {client}"));
            let session = client.session().unwrap();
            for how in [Storage::Private, Storage::Sealed] {
                let request = request_by(100, Storage::Private, 100_001, how);
                for error in [session.call(&request), submit(session, &request)] {
                    let error = error.unwrap_err();
                    let is_reported =
                        matches!(error, CallError::Declined { status: Status::TooLarge });
                    assert!(is_reported, "{error}");
                    assert_eq!(error.kind(), ErrorKind::TooLarge);
                    assert_eq!(error.executed(), Executed::Maybe);
                }
                let request = request_by(100, Storage::Private, 100_000, how);
                is_answer(&session.call(&request).unwrap(), 100_000, how);
            }
            reconcile_session(session);
            drop(client);
            let stats = blob_server.close();
            assert_eq!((stats.admitted, stats.answered, stats.poisoned), (1, 6, 0));
        }
    }
}

#[test]
fn a_lane_stops_at_its_limit_and_longer_messages_are_attached() {
    for (server, client) in [("max_lane=65536", ""), ("", "max_lane=65536")] {
        let blob_server = BlobServer::open::<Blobs>(&format!("stream=0 {server}"));
        let mut client = blob_server.client::<Blobs>(&format!("stream=0 {client}"));
        let session = client.session().unwrap();
        let longest = 32 * 1024 - 48;
        submit(session, &request(longest, longest)).unwrap();
        let stats = session.stats();
        for lane in [stats.requests, stats.answers] {
            assert_eq!((lane.size, lane.attaches), (64 << 10, 0), "{lane:?}");
        }
        for (round, len) in [longest + 1, 1 << 20, 33 << 20].into_iter().enumerate() {
            is_answer(&submit(session, &request(len, len)).unwrap(), len, Storage::Private);
            let stats = session.stats();
            for lane in [stats.requests, stats.answers] {
                assert_eq!((lane.size, lane.attaches), (64 << 10, round as u64 + 1), "{lane:?}");
            }
        }
    }
}

#[test]
fn messages_on_their_way_stop_at_the_limit_of_shared_memory() {
    const MESSAGE: usize = 3 << 20;
    for (server, client) in [("max_shared=8388608", ""), ("", "max_shared=8388608")] {
        let (blob_server, gate, arrivals) = BlobServer::gated::<Blobs>(server);
        let mut client = blob_server.client::<Blobs>(client);
        let session = client.session().unwrap();
        // The first is the handler's by now.
        let message = request_by(MESSAGE, Storage::Sealed, 8, Storage::Private);
        session.submit(&message).unwrap();
        assert_eq!(arrivals.next(), MESSAGE as u64);
        let mut sent = 1;
        let error = loop {
            match session.submit(&message) {
                Ok(_) => sent += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, CallError::WouldBlock), "{error}");
        assert_eq!(sent, 3, "two of 3 MiB are within 8 MiB, three are not");
        gate.open();
        // A call waits for room.
        is_answer(&session.call(&message).unwrap(), 8, Storage::Private);
        for _ in 0..sent {
            is_answer(&session.try_reply().unwrap().unwrap().1.unwrap(), 8, Storage::Private);
        }
        drop(client);
        assert_eq!(blob_server.close().answered, 4);
    }
}

#[test]
fn a_message_that_is_never_within_the_limit_of_shared_memory_is_too_large() {
    let blob_server = BlobServer::open::<Blobs>("max_shared=8388608");
    let mut client = blob_server.client::<Blobs>("");
    let session = client.session().unwrap();
    let error =
        session.submit(&request_by(9 << 20, Storage::Sealed, 8, Storage::Private)).unwrap_err();
    assert!(
        matches!(error, CallError::TooLarge { len, limit, owner: LimitOwner::Peer }
            if (len, limit) == (9 << 20, 8 << 20)),
        "{error}"
    );
    let declined =
        session.call(&request_by(8, Storage::Private, 9 << 20, Storage::Sealed)).unwrap_err();
    assert!(matches!(declined, CallError::Declined { status: Status::TooLarge }), "{declined}");
    is_answer(&session.call(&request(100, 100)).unwrap(), 100, Storage::Private);
}

#[test]
fn a_message_whose_lane_exceeds_the_limit_of_shared_memory_is_sent_in_parts_or_attached() {
    // A lane for it takes 16 MiB; the message itself is well within what may be shared.
    const MESSAGE: usize = 5 << 20;
    for stream in ["", "stream=0"] {
        let blob_server = BlobServer::open::<Blobs>(&format!("{stream} max_shared=8388608"));
        let mut client = blob_server.client::<Blobs>(stream);
        let session = client.session().unwrap();
        is_answer(&session.call(&request(MESSAGE, MESSAGE)).unwrap(), MESSAGE, Storage::Private);
        is_answer(&submit(session, &request(MESSAGE, 8)).unwrap(), 8, Storage::Private);
    }
}

/// A lane that takes all of it would leave nothing for attachments: each snapshot would be too large.
#[test]
fn a_lane_opens_within_both_limits_of_shared_memory_and_leaves_a_page() {
    let fixture = TestServer::open();
    let limits = Limits { max_shared_bytes_per_session: 16 << 10, ..Limits::default() };
    let lane = client_config().lane.size(Geometry::DEFAULT).limits(limits);
    let mut client = fixture.client_with::<Echo>(client_config().lane(lane));
    let session = client.connect().unwrap();
    let stats = session.stats();
    assert_eq!((stats.requests.size, stats.answers.size), (8 << 10, 8 << 10));
    assert_eq!(session.call(&vec![7; 4_000]).unwrap(), vec![7; 4_000]);
}

#[test]
fn a_client_that_limits_shared_memory_below_a_page_and_a_lane_has_the_smallest_lane() {
    let fixture = TestServer::open();
    let limits = Limits { max_shared_bytes_per_session: 0, ..Limits::default() };
    let config = client_config().lane(client_config().lane.limits(limits));
    let mut client = fixture.client_with::<Echo>(config);
    let session = client.connect().unwrap();
    assert_eq!(session.stats().requests.size, 4 << 10);
    assert_eq!(session.call(&vec![7; 1_000]).unwrap(), vec![7; 1_000]);
}
