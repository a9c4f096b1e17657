use std::time::Duration;

use bellwire::{
    Backoff, CallError, ProviderState, RefreshError, Refreshed, RunDir, ServerConfig, SnapshotCache,
};

use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::services::{Numbers, OutOfOrder, numbers};
use crate::support::test_server::{Dir, TestServer, client_config};

fn cache(run_dir: &RunDir) -> SnapshotCache<Numbers> {
    let backoff =
        Backoff::default().initial(Duration::from_micros(10)).max(Duration::from_micros(100));
    SnapshotCache::with_config(run_dir, client_config().backoff(backoff))
}

#[test]
fn a_snapshot_is_taken_once_and_then_unchanged() {
    let fixture = TestServer::open();
    assert_eq!(fixture.numbers.generation(), 0);
    assert_eq!(fixture.numbers.publish(&numbers(1, 10)).unwrap(), 1);
    let mut cache = cache(fixture.run_dir());
    assert!(cache.current().is_none());
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
    for _ in 0..100 {
        assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Unchanged);
    }
    let current = cache.current().unwrap();
    assert_eq!((current.generation(), *current.index()), (1, 10));
    assert_eq!(current.bytes(), numbers(1, 10));
    assert_eq!(cache.state(), ProviderState::Ready);
    drop(cache);
    assert_eq!(fixture.close().accepted, 1, "it was asked for once");
}

#[test]
fn snapshots_of_sizes_around_a_page_arrive_whole() {
    let fixture = TestServer::open();
    let mut cache = cache(fixture.run_dir());
    for count in [0, 1, 511, 512, 513, 1024, 20_000] {
        fixture
            .numbers
            .publish_with(count * 8, |into| {
                assert!(into.iter().all(|byte| *byte == 0), "it comes zeroed");
                into.copy_from_slice(&numbers(3, count as u64));
            })
            .unwrap();
        assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
        assert!(cache.current().unwrap().bytes() == numbers(3, count as u64), "{count} numbers");
    }
}

#[test]
fn before_the_first_snapshot_it_is_empty() {
    let fixture = TestServer::open();
    let mut cache = cache(fixture.run_dir());
    for _ in 0..3 {
        assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Empty);
    }
    assert!(cache.current().is_none());
    fixture.numbers.publish(&numbers(1, 1)).unwrap();
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
}

#[test]
fn without_a_provider_it_is_unavailable_and_no_error() {
    let dir = Dir::new();
    let mut cache = cache(&dir.run_dir);
    for _ in 0..3 {
        assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Unavailable);
        assert_eq!(cache.state(), ProviderState::Absent);
    }
}

#[test]
fn the_last_snapshot_is_kept_without_a_provider_until_a_successor_publishes() {
    let fixture = TestServer::open();
    fixture.numbers.publish(&numbers(1, 10)).unwrap();
    let mut cache = cache(fixture.run_dir());
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
    let young = cache.current().unwrap().age();
    let (server, dir) = fixture.into_server();
    let stats = server.stop();
    assert_eq!((stats.accepted, stats.answered, stats.lost), (1, 1, 0), "the ring");
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Unavailable);
    let current = cache.current().unwrap();
    assert_eq!((current.generation(), current.bytes()), (1, &*numbers(1, 10)));
    assert!(current.age() > young, "it grows old");
    let fixture = TestServer::in_dir(dir, ServerConfig::default());
    until("the successor is there, with nothing yet", || {
        let found = cache.refresh_within(TEST_TIMEOUT).unwrap();
        assert_ne!(found, Refreshed::Changed);
        cache.state() == ProviderState::Ready
    });
    assert_eq!(cache.current().unwrap().bytes(), numbers(1, 10), "still the last good one");
    // The successor counts from 1 again.
    assert_eq!(fixture.numbers.publish(&numbers(7, 3)).unwrap(), 1);
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
    assert_eq!(cache.current().unwrap().bytes(), numbers(7, 3));
}

#[test]
fn a_malformed_snapshot_is_reported_with_its_position_and_the_previous_one_stays() {
    let fixture = TestServer::open();
    fixture.numbers.publish(&numbers(1, 10)).unwrap();
    let mut cache = cache(fixture.run_dir());
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
    let mut garbage = numbers(1, 10);
    garbage[8 * 4] ^= 0x55;
    fixture.numbers.publish(&garbage).unwrap();
    match cache.refresh_within(TEST_TIMEOUT) {
        Err(RefreshError::Malformed { generation: 2, source }) => {
            assert_eq!(source, OutOfOrder { item: 4, offset: 32 });
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(cache.current().unwrap().generation(), 1);
    assert_eq!(cache.current().unwrap().bytes(), numbers(1, 10));
    assert_eq!(
        cache.refresh_within(TEST_TIMEOUT).unwrap(),
        Refreshed::Unchanged,
        "it is not fetched again"
    );
    // A tail that is no number.
    fixture.numbers.publish(&[0; 9]).unwrap();
    let error = cache.refresh_within(TEST_TIMEOUT).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("item 1 at byte 8") && text.contains("generation 3"), "{text}");
    fixture.numbers.publish(&numbers(2, 2)).unwrap();
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
    drop(cache);
    assert_eq!(fixture.close().answered, 1, "the ring");
}

#[test]
fn a_snapshot_above_the_readers_limit_is_not_mapped() {
    let fixture = TestServer::open();
    fixture.numbers.publish(&numbers(1, 10)).unwrap();
    let mut cache = cache(fixture.run_dir());
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
    fixture.numbers.publish_with((1 << 20) + 8, |_| {}).unwrap();
    let error = cache.refresh_within(TEST_TIMEOUT).unwrap_err();
    assert!(matches!(error, RefreshError::Call(CallError::Malformed(_))), "{error}");
    assert_eq!(cache.current().unwrap().bytes(), numbers(1, 10));
    fixture.numbers.publish(&numbers(2, 2)).unwrap();
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
}

#[test]
fn a_publisher_outlives_its_server_and_has_no_readers() {
    let fixture = TestServer::open();
    let (server, _dir, publisher) = fixture.into_publisher();
    server.stop();
    assert!(publisher.publish(&numbers(1, 1)).is_ok());
}

#[test]
fn many_threads_publish_and_each_generation_is_one_of_theirs() {
    let fixture = TestServer::open();
    let mut cache = cache(fixture.run_dir());
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let publisher = &fixture.numbers;
            scope.spawn(move || {
                for round in 0..25 {
                    publisher.publish(&numbers(thread * 1000 + round, 64)).unwrap();
                }
            });
        }
        let mut last = 0;
        until("the last generation is there", || {
            // A torn or mixed list would be out of order.
            if cache.refresh_within(TEST_TIMEOUT).unwrap() == Refreshed::Changed {
                let generation = cache.current().unwrap().generation();
                assert!(generation > last);
                last = generation;
            }
            last == 100
        });
    });
}
