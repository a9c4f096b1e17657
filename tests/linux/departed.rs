//! A departed client's published requests still count.

use std::sync::Arc;

use bellwire::{Geometry, LaneConfig, Limits, ServerConfig};
use bellwire_core::sync::{AtomicU64, Ordering};
use bellwire_core::wire::{Header, Kind, Status};
use bellwire_core::{OwnMemory, PeerMemory, Port, Word};

use crate::support::guard::until;
use crate::support::rogue::Rogue;
use crate::support::services::Echo;
use crate::support::test_server::{Dir, TestServer, provide_with};

/// Requests that a client had published but not rung for when it died were dropped with its session: the server
/// learned of its end, and did not read the lane again. `cargo xtask kill --only client/publish:0:496` showed it.
#[test]
fn requests_published_before_a_client_died_reach_the_handler() {
    const REQUESTS: u64 = 14;
    let dir = Dir::new();
    let runs = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&runs);
    // The answers to all of them do not fit the lane, and no reader makes room.
    let limits = Limits { max_lane: Geometry::DEFAULT, ..Limits::default() };
    let config = ServerConfig::default().lane(LaneConfig::default().limits(limits));
    let server = provide_with::<Echo>(&dir.run_dir, config, move |_, _| {
        counts.fetch_add(1, Ordering::Relaxed);
        Ok(vec![0; 4000])
    });
    let mut rogue = Rogue::connect(&dir.run_dir, "echo").open();
    until("the server asks to be rung", || {
        rogue.link.peer().load(Word::WantData, Ordering::Acquire) != u64::MAX
    });
    for id in 1..=REQUESTS {
        rogue.write(Header::new(Kind::Request, Status::Ok, id, 1000), &[0; 1000]);
    }
    // Published without a ring.
    rogue.link.own().store(Word::Tail, rogue.tail, Ordering::Release);
    drop(rogue);
    until("the session is over", || server.stats().admitted == 1 && server.stats().sessions == 0);
    assert_eq!(runs.load(Ordering::Relaxed), REQUESTS);
    let stats = server.stop();
    assert_eq!((stats.accepted, stats.poisoned), (REQUESTS, 0), "{stats:?}");
}

/// On Windows the lane that it passed last may be lost with it.
#[test]
fn posts_in_lanes_that_grew_are_handled_though_their_client_leaves_at_once() {
    for workers in [0, 2] {
        let fixture = TestServer::with(ServerConfig::default().workers(workers));
        let mut client = fixture.client::<Echo>();
        let session = client.connect().unwrap();
        for len in 0..200 {
            session.post(&vec![7; 100 * len]).unwrap();
        }
        assert!(session.stats().requests.grows > 0);
        drop(client);
        until("all are handled", || fixture.stats().posted == 200);
    }
}
