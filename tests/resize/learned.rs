//! Sizes that a process has learned, for the sessions that it opens next.

use bellwire::{Client, Payload, Service, Session, SessionStats};

use crate::support::blob_server::{BlobServer, request};
use crate::support::blobs::submit;
use crate::support::services::services;

// A learned size applies to a service name, in the whole process: each test has its own name.
services! {
    Requests("learned-requests"): Payload => Payload;
    Answers("learned-answers"): Payload => Payload;
    Bounded("learned-bounded"): Payload => Payload;
    Other("learned-other"): Payload => Payload;
    Trimmed("learned-trimmed"): Payload => Payload;
}

/// Lanes carry what they can hold; they may open with up to 256 KiB.
const SETTINGS: &str = "stream=0 learned=262144";

fn grow<S: Service<Request = Payload, Response = Payload>>(
    session: &mut Session<S>,
    len: usize,
    answer: usize,
) -> SessionStats {
    assert_eq!(submit(session, &request(len, answer)).unwrap().len(), answer);
    session.stats()
}

/// What a new session opens with: the lane of requests and that of answers.
fn opens<S: Service>(blob_server: &BlobServer) -> ([u64; 2], Client<S>) {
    let mut client = blob_server.client::<S>(SETTINGS);
    let stats = client.session().unwrap().stats();
    assert_eq!((stats.requests.epoch, stats.answers.epoch), (1, 1));
    ([stats.requests.size, stats.answers.size], client)
}

const SMALL: u64 = 16 << 10;
const LARGE: u64 = 128 << 10;

#[test]
fn a_second_session_opens_with_the_request_lane_of_the_first() {
    let blob_server = BlobServer::open::<Requests>(SETTINGS);
    let (sizes, mut client) = opens::<Requests>(&blob_server);
    assert_eq!(sizes, [SMALL, SMALL]);
    grow(client.session().unwrap(), 50_000, 100);
    let (sizes, mut second) = opens::<Requests>(&blob_server);
    assert_eq!(sizes, [LARGE, SMALL], "requests were large, answers were not");
    assert_eq!(grow(second.session().unwrap(), 50_000, 100).requests.grows, 0);
    // It is small again when it is idle.
    second.session().unwrap().trim().unwrap();
    assert_eq!(second.session().unwrap().stats().requests.size, SMALL);
}

#[test]
fn a_second_session_opens_with_the_answer_lane_of_the_first() {
    let blob_server = BlobServer::open::<Answers>(SETTINGS);
    let (sizes, mut client) = opens::<Answers>(&blob_server);
    assert_eq!(sizes, [SMALL, SMALL]);
    grow(client.session().unwrap(), 100, 50_000);
    let (sizes, mut second) = opens::<Answers>(&blob_server);
    assert_eq!(sizes, [SMALL, LARGE], "answers were large, requests were not");
    assert_eq!(grow(second.session().unwrap(), 100, 50_000).answers.grows, 0);
}

#[test]
fn learned_sizes_are_bounded() {
    let blob_server = BlobServer::open::<Bounded>(SETTINGS);
    let (_, mut client) = opens::<Bounded>(&blob_server);
    let stats = grow(client.session().unwrap(), 1 << 20, 1 << 20);
    assert_eq!([stats.requests.size, stats.answers.size], [4 << 20; 2]);
    let (sizes, _second) = opens::<Bounded>(&blob_server);
    assert_eq!(sizes, [256 << 10; 2]);
    // A client that caps learned sizes opens within its cap.
    let mut third = blob_server.client::<Bounded>("stream=0 learned=16384");
    let stats = third.session().unwrap().stats();
    assert_eq!([stats.requests.size, stats.answers.size], [SMALL, 256 << 10]);
}

#[test]
fn another_service_learns_for_itself() {
    let blob_server = BlobServer::open::<Other>(SETTINGS);
    // Whatever the others have come to meanwhile.
    assert_eq!(opens::<Other>(&blob_server).0, [SMALL; 2]);
}

#[test]
fn a_trim_is_learned_too() {
    let blob_server = BlobServer::open::<Trimmed>(SETTINGS);
    let (_, mut client) = opens::<Trimmed>(&blob_server);
    grow(client.session().unwrap(), 50_000, 50_000);
    assert_eq!(opens::<Trimmed>(&blob_server).0, [LARGE; 2]);
    client.session().unwrap().trim().unwrap();
    assert_eq!(opens::<Trimmed>(&blob_server).0, [SMALL; 2]);
}
