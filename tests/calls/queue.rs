//! What waits for a worker, and how far workers may get ahead of the reader of their answers.

use std::sync::Arc;

use bellwire::{Client, Geometry, LaneConfig, Limits, ServerConfig};
use bellwire_core::sync::{AtomicUsize, Ordering};

use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::services::{Hold, services};
use crate::support::test_server::{Dir, TestServer, client_config, provide_with};

#[test]
fn above_the_limit_of_all_sessions_each_has_one_request_queued_and_the_server_sleeps() {
    let fixture = TestServer::with(ServerConfig::default().workers(1).max_queued(3));
    let mut greedy = fixture.client::<Hold>();
    let session = greedy.session().unwrap();
    session.submit(&1).unwrap();
    assert_eq!(fixture.arrivals.next(), 1);
    for request in 2..=20 {
        session.submit(&request).unwrap();
    }
    until("as many are queued as may be", || fixture.stats().accepted == 4);
    let mut others: Vec<_> = (0..3).map(|_| fixture.client::<Hold>()).collect();
    for (other, request) in others.iter_mut().zip((100..).step_by(100)) {
        for more in 0..3 {
            other.session().unwrap().submit(&(request + more)).unwrap();
        }
    }
    until("each has one of them queued", || fixture.stats().accepted == 7);
    let parks = fixture.stats().parks;
    greedy.session().unwrap().submit(&21).unwrap();
    until("the server sleeps again", || fixture.stats().parks > parks);
    assert_eq!(fixture.stats().accepted, 7);
    fixture.release();
    for client in [&mut greedy].into_iter().chain(&mut others) {
        let session = client.session().unwrap();
        let mut last = 0;
        while session.stats().in_flight > 0 {
            session.wait().unwrap();
            while let Some((_, answer)) = session.try_reply().unwrap() {
                let answer = answer.unwrap();
                assert!(answer > last, "in their order");
                last = answer;
            }
        }
    }
    assert_eq!(fixture.arrivals.so_far().len(), 20 + 9);
    drop((greedy, others));
    assert_eq!(fixture.close().answered, 21 + 9);
}

const LEN: u64 = 4 << 20;

services! {
    /// As many bytes as it is asked for.
    Large("large"): u64 => Vec<u8>;
}

#[test]
fn workers_get_ahead_of_a_client_that_does_not_read_by_few_answers() {
    let dir = Dir::new();
    let ran = Arc::new(AtomicUsize::new(0));
    let limits = Limits { max_lane: Geometry::DEFAULT, ..Limits::default() };
    let config = ServerConfig::default().workers(2).lane(LaneConfig::default().limits(limits));
    let counted = Arc::clone(&ran);
    let server = provide_with::<Large>(&dir.run_dir, config, move |_, len| {
        counted.fetch_add(usize::from(len > 0), Ordering::Relaxed);
        Ok(vec![7; len as usize])
    });
    let open = || Client::<Large>::with_config(&dir.run_dir, client_config());
    let (mut stalled, mut other) = (open(), open());
    let session = stalled.connect().unwrap();
    let sent = 40;
    for _ in 0..sent {
        session.submit(&LEN).unwrap();
    }
    until("the first is answered", || ran.load(Ordering::Relaxed) > 0);
    // Sessions share the workers in turns: with each of these comes one of the others, if allowed.
    for _ in 0..2 * sent {
        assert_eq!(other.call(&0).unwrap().len(), 0);
    }
    // Twice as many as wait for the reactor: it may have taken them and not yet found the lane full.
    let ahead = ran.load(Ordering::Relaxed);
    assert!(ahead <= 2 * (16 / 4 + 2) + 2, "{ahead} answers of 4 MiB");
    for _ in 0..sent {
        let (_, answer) = session.wait_reply(TEST_TIMEOUT).unwrap();
        assert_eq!(answer.unwrap().len() as u64, LEN);
    }
    drop((stalled, other));
    assert_eq!(server.stop().answered, 3 * sent);
}
