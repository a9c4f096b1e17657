//! A reader that keeps up is passed the next snapshot before it refreshes.

use std::thread;

use bellwire::{Refreshed, RunDir, ServerConfig, SnapshotCache, State};

use crate::support::guard::{PATIENCE, until};
use crate::support::services::{Hold, Numbers, numbers};
use crate::support::test_server::{TestServer, patient};

/// A reader that has taken two successive snapshots, and has requested the third.
fn keeps_up(fixture: &TestServer) -> SnapshotCache<Numbers> {
    let mut cache = SnapshotCache::with_config(fixture.run_dir(), patient());
    for generation in 1..=2 {
        fixture.numbers.publish(&numbers(generation, 3)).unwrap();
        assert_eq!(cache.refresh_within(PATIENCE).unwrap(), Refreshed::Changed);
    }
    cache
}

/// Publishes another one and waits until it was passed.
fn publish(fixture: &TestServer) -> u64 {
    let passed = fixture.stats().attaches_sent;
    let generation = fixture.numbers.generation() + 1;
    assert_eq!(fixture.numbers.publish(&numbers(generation, 3)).unwrap(), generation);
    until("it is passed", || fixture.stats().attaches_sent > passed);
    generation
}

#[track_caller]
fn holds(cache: &SnapshotCache<Numbers>, generation: u64) {
    let current = cache.current().unwrap();
    assert_eq!(current.generation(), generation);
    assert_eq!(current.bytes(), numbers(generation, 3));
}

#[test]
fn whoever_keeps_up_finds_the_next_one_though_the_provider_has_no_time() {
    // Without workers a handler holds the reactor up.
    let fixture = TestServer::with(ServerConfig::default().workers(0));
    let mut cache = keeps_up(&fixture);
    let generation = publish(&fixture);
    let mut hold = fixture.client::<Hold>();
    let found = thread::scope(|scope| {
        scope.spawn(|| hold.call(&7).unwrap());
        assert_eq!(fixture.arrivals.next(), 7);
        let found = cache.refresh();
        fixture.release();
        found
    });
    assert_eq!(found.unwrap(), Refreshed::Changed);
    holds(&cache, generation);
    drop(hold);
    drop(cache);
    let stats = fixture.close();
    assert_eq!((stats.lost, stats.attaches_sent), (0, 3));
}

#[test]
fn what_was_passed_ahead_is_left_for_a_newer_one_and_the_reader_asks_again() {
    let fixture = TestServer::open();
    let mut cache = keeps_up(&fixture);
    publish(&fixture);
    for generation in 4..=6 {
        fixture.numbers.publish(&numbers(generation, 3)).unwrap();
    }
    assert_eq!(cache.refresh_within(PATIENCE).unwrap(), Refreshed::Changed);
    holds(&cache, 6);
    assert_eq!(cache.refresh_within(PATIENCE).unwrap(), Refreshed::Unchanged);
    // It has missed some, so it sends a request when it refreshes; then it keeps up again.
    fixture.numbers.publish(&numbers(7, 3)).unwrap();
    assert_eq!(cache.refresh_within(PATIENCE).unwrap(), Refreshed::Changed);
    let generation = publish(&fixture);
    assert_eq!(cache.refresh_within(PATIENCE).unwrap(), Refreshed::Changed);
    holds(&cache, generation);
    drop(cache);
    assert_eq!(fixture.close().lost, 0);
}

#[test]
fn a_reader_that_comes_before_it_is_passed_wakes_the_provider() {
    let fixture = TestServer::open();
    let mut cache = keeps_up(&fixture);
    for generation in 3..200 {
        fixture.numbers.publish(&numbers(generation, 3)).unwrap();
        assert_eq!(cache.refresh_within(PATIENCE).unwrap(), Refreshed::Changed);
        holds(&cache, generation);
    }
    drop(cache);
    assert_eq!(fixture.close().lost, 0);
}

#[test]
fn a_provider_that_stops_owes_nothing_to_whoever_has_asked_ahead() {
    let fixture = TestServer::open();
    let mut cache = keeps_up(&fixture);
    let run_dir = fixture.run_dir().clone();
    let (server, dir) = fixture.into_server();
    let stats = server.stop();
    assert_eq!((stats.accepted, stats.answered, stats.refused, stats.lost), (3, 2, 1, 0));
    assert_eq!(cache.refresh_within(PATIENCE).unwrap(), Refreshed::Unavailable);
    holds(&cache, 2);
    let fixture = TestServer::in_dir(dir, ServerConfig::default());
    fixture.numbers.publish(&numbers(1, 3)).unwrap();
    let mut cache_of_its_successor = fresh(&run_dir);
    assert_eq!(cache_of_its_successor.refresh_within(PATIENCE).unwrap(), Refreshed::Changed);
    until("it finds the successor", || {
        cache.refresh_within(PATIENCE).unwrap() == Refreshed::Changed
    });
    assert_eq!(cache.state(), State::Ready);
    holds(&cache, 1);
}

fn fresh(run_dir: &RunDir) -> SnapshotCache<Numbers> {
    SnapshotCache::with_config(run_dir, patient().timeout(PATIENCE))
}

#[test]
fn a_provider_that_takes_one_request_at_a_time_serves_whoever_asks_ahead() {
    let fixture = TestServer::with(ServerConfig::default().max_in_flight(1));
    let mut cache = keeps_up(&fixture);
    for generation in 3..20 {
        fixture.numbers.publish(&numbers(generation, 3)).unwrap();
        assert_eq!(cache.refresh_within(PATIENCE).unwrap(), Refreshed::Changed);
        holds(&cache, generation);
    }
    drop(cache);
    assert_eq!(fixture.close().lost, 0);
}
