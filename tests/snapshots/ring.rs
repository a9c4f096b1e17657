//! Short snapshots travel in a ring that readers copy from: neither the provider nor the kernel does anything for them.

use std::thread;
use std::time::{Duration, Instant};

use bellwire::{ProviderState, Refreshed, ServerConfig, SnapshotCache};

use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::services::{Hold, Numbers, numbers};
use crate::support::test_server::{TestServer, client_config};

/// Above this many numbers a snapshot is not in the ring.
const IN_RING: u64 = (256 << 10) / 8;

fn reader(fixture: &TestServer) -> SnapshotCache<Numbers> {
    SnapshotCache::with_config(fixture.run_dir(), client_config())
}

#[track_caller]
fn holds(cache: &SnapshotCache<Numbers>, generation: u64, bytes: &[u8]) {
    let current = cache.current().unwrap();
    assert_eq!(current.generation(), generation);
    assert!(current.bytes() == bytes, "generation {generation}");
}

#[test]
fn a_changed_snapshot_is_taken_though_the_provider_has_no_time() {
    // Without workers a handler holds the reactor up.
    let fixture = TestServer::with(ServerConfig::default().workers(0));
    let mut cache = reader(&fixture);
    fixture.numbers.publish(&numbers(1, 3)).unwrap();
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
    let mut hold = fixture.client::<Hold>();
    thread::scope(|scope| {
        scope.spawn(|| hold.call(&7).unwrap());
        assert_eq!(fixture.arrivals.next(), 7);
        for generation in 2..500 {
            fixture.numbers.publish(&numbers(generation, 30)).unwrap();
            assert_eq!(cache.refresh().unwrap(), Refreshed::Changed);
            holds(&cache, generation, &numbers(generation, 30));
            assert_eq!(cache.refresh().unwrap(), Refreshed::Unchanged);
        }
        fixture.release();
    });
    drop(hold);
    drop(cache);
    let stats = fixture.close();
    assert_eq!((stats.lost, stats.attaches_sent), (0, 1), "the ring");
}

#[test]
fn a_reader_that_skips_generations_takes_the_newest() {
    let fixture = TestServer::open();
    let mut cache = reader(&fixture);
    let mut generation = 0;
    for burst in [1, 3, 10_000, 2] {
        for _ in 0..burst {
            generation = fixture.numbers.publish(&numbers(generation, 9)).unwrap();
        }
        assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
        holds(&cache, generation, &numbers(generation - 1, 9));
        assert_eq!(cache.refresh().unwrap(), Refreshed::Unchanged);
    }
}

#[test]
fn snapshots_of_any_length_arrive_in_any_order_and_the_ring_grows_for_them() {
    let fixture = TestServer::open();
    let (mut cache, mut late) = (reader(&fixture), reader(&fixture));
    let lengths = [1, IN_RING, 0, IN_RING + 1, 5, 2_100, IN_RING - 1, 90_000, IN_RING, 3_000];
    for (generation, count) in (1..).zip(lengths) {
        fixture.numbers.publish(&numbers(generation, count)).unwrap();
        assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed, "{count}");
        holds(&cache, generation, &numbers(generation, count));
        assert_eq!(cache.refresh().unwrap(), Refreshed::Unchanged);
        if generation % 3 == 0 {
            assert_eq!(late.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed, "{count}");
            holds(&late, generation, &numbers(generation, count));
        }
    }
    drop((cache, late));
    assert_eq!(fixture.close().lost, 0);
}

#[test]
fn a_reader_that_joins_after_a_long_snapshot_takes_it_and_then_follows_the_ring() {
    let fixture = TestServer::open();
    fixture.numbers.publish(&numbers(1, 5)).unwrap();
    fixture.numbers.publish(&numbers(2, IN_RING + 1)).unwrap();
    let mut cache = reader(&fixture);
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
    holds(&cache, 2, &numbers(2, IN_RING + 1));
    fixture.numbers.publish(&numbers(3, 5)).unwrap();
    assert_eq!(cache.refresh().unwrap(), Refreshed::Changed, "without a request");
    holds(&cache, 3, &numbers(3, 5));
}

#[test]
fn a_fetch_that_a_short_snapshot_overtakes_is_neither_waited_for_nor_taken() {
    let fixture = TestServer::open();
    let mut cache = reader(&fixture);
    fixture.numbers.publish(&numbers(1, 3)).unwrap();
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
    let mut overtaken = 0;
    for generation in (2..100).step_by(2) {
        fixture.numbers.publish(&numbers(generation, IN_RING + 1)).unwrap();
        let sent = fixture.stats().attaches_sent;
        // Most often the answer comes between this look and the next one.
        if cache.refresh().unwrap() == Refreshed::Pending {
            until("the answer is sent", || fixture.stats().attaches_sent > sent);
            overtaken += 1;
        }
        fixture.numbers.publish(&numbers(generation + 1, 3)).unwrap();
        let began = Instant::now();
        assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
        holds(&cache, generation + 1, &numbers(generation + 1, 3));
        assert!(began.elapsed() < TEST_TIMEOUT / 2, "{:?}", began.elapsed());
        assert_eq!(cache.state(), ProviderState::Ready);
        assert_eq!(cache.wait_for_change(Some(Duration::ZERO)).unwrap(), Refreshed::Unchanged);
    }
    // The answers that came late are not taken in place of the one that is asked for now.
    fixture.numbers.publish(&numbers(100, IN_RING + 1)).unwrap();
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
    holds(&cache, 100, &numbers(100, IN_RING + 1));
    assert!(overtaken > 0);
}
