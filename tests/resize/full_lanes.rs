//! Lanes that grow while they are full, at both ends at once, without a deadlock.

use std::collections::VecDeque;

use bellwire::{CallError, Session, Ticket};

use crate::support::blob_server::{BlobServer, is_answer, request};
use crate::support::blobs::{Blobs, Storage};
use crate::support::guard::until;
use crate::support::test_server::reconcile_session;

/// Sends until the lane is full, and reads nothing.
fn fill(session: &mut Session<Blobs>, len: usize, sent: &mut VecDeque<(Ticket, usize)>) {
    loop {
        match session.submit(&request(len, len)) {
            Ok(ticket) => sent.push_back((ticket, len)),
            Err(CallError::WouldBlock) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Takes all answers, in their order.
fn drain(session: &mut Session<Blobs>, sent: &mut VecDeque<(Ticket, usize)>) {
    until("all answers come", || {
        while let Some((ticket, answer)) = session.try_reply().unwrap() {
            let (expected, len) = sent.pop_front().unwrap();
            assert_eq!(ticket, expected);
            is_answer(&answer.unwrap(), len, Storage::Private);
        }
        sent.is_empty()
    });
}

#[test]
fn both_ends_grow_with_both_lanes_full() {
    for doorbell in 1..=3 {
        // Lanes of one page, up to 64 KiB by fullness alone; a message of 300 KB needs another one.
        let blob_server = BlobServer::open::<Blobs>("lane=4096 stream=0");
        let mut client =
            blob_server.client::<Blobs>(&format!("lane=4096 stream=0 doorbell={doorbell}"));
        let session = client.session().unwrap();
        let mut sent = VecDeque::new();
        for round in 0..10 {
            fill(session, 700, &mut sent);
            // Neither lane has room, and both have to grow; what came before is kept.
            let large = 20_000 << (round % 5);
            let answer = session.call(&request(large, large)).unwrap();
            is_answer(&answer, large, Storage::Private);
            fill(session, 900, &mut sent);
            let stats = session.stats();
            assert!(stats.requests.grows > 0 && stats.answers.grows > 0, "{stats:?}");
            drain(session, &mut sent);
            session.trim().unwrap();
        }
        reconcile_session(session);
        drop(client);
        let stats = blob_server.close();
        assert_eq!((stats.admitted, stats.accepted), (1, stats.answered), "{stats:?}");
    }
}

#[test]
fn epochs_not_followed_are_bounded_and_the_next_waits_for_room() {
    let (blob_server, gate, arrivals) = BlobServer::gated::<Blobs>("stream=0");
    let mut client = blob_server.client::<Blobs>("stream=0");
    let session = client.session().unwrap();
    let mut sent = VecDeque::new();
    sent.push_back((session.submit(&request(100, 100)).unwrap(), 100));
    assert_eq!(arrivals.next(), 100);
    // The provider is in its handler, and follows nothing.
    let mut len = 10_000;
    let error = loop {
        match session.submit(&request(len, len)) {
            Ok(ticket) => sent.push_back((ticket, len)),
            Err(error) => break error,
        }
        len *= 2;
    };
    assert!(matches!(error, CallError::WouldBlock), "{error}");
    let grows = session.stats().requests.grows;
    assert_eq!(grows, 4, "as many as may be outstanding");
    gate.open();
    // It waits, and is not forgotten.
    is_answer(&session.call(&request(len, len)).unwrap(), len, Storage::Private);
    assert_eq!(session.stats().requests.grows, grows + 1);
    drain(session, &mut sent);
    drop(client);
    assert_eq!(blob_server.close().admitted, 1);
}

#[test]
fn a_client_that_reads_nothing_is_answered_when_it_does() {
    let blob_server = BlobServer::open::<Blobs>("lane=4096 stream=0");
    let mut client = blob_server.client::<Blobs>("lane=4096 stream=0");
    let mut other = blob_server.client::<Blobs>("");
    let session = client.session().unwrap();
    let mut sent = VecDeque::new();
    for len in [500, 5000, 50_000, 500_000] {
        fill(session, len, &mut sent);
        is_answer(&other.call(&request(len, len)).unwrap(), len, Storage::Private);
    }
    drain(session, &mut sent);
    reconcile_session(session);
}
