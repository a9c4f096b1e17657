use std::thread;
use std::time::Duration;

use bellwire::{Backoff, CallError, RefreshError, Refreshed, SnapshotCache};

use crate::support::child::Process;
use crate::support::guard::TEST_TIMEOUT;
use crate::support::parked::park;
use crate::support::services::{Numbers, numbers};
use crate::support::test_server::{Dir, TestServer, client_config};

#[test]
fn one_publication_wakes_the_watchers_of_two_processes() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    server.ask("publish 1 10");
    let mut watchers = [(); 2].map(|()| Process::start("watcher", &dir.run_dir));
    for generation in 2..12 {
        assert_eq!(server.ask(&format!("publish {} 7", generation * 10)), generation.to_string());
        for watcher in &mut watchers {
            assert_eq!(watcher.next_line(), format!("Changed {generation} {} 7", generation * 10));
        }
    }
}

#[test]
fn watchers_outlive_their_providers_end_and_see_the_successors_first_snapshot() {
    let ends: [fn(&mut Process); 2] = [Process::kill, |server| drop(server.ask("stop"))];
    for end in ends {
        let dir = Dir::new();
        let mut server = Process::start("server", &dir.run_dir);
        server.ask("publish 1 10");
        let mut watchers = [(); 2].map(|()| Process::start("watcher", &dir.run_dir));
        end(&mut server);
        for watcher in &mut watchers {
            assert_eq!(watcher.next_line(), "Unavailable 1 1 10", "the last good one stays");
        }
        let mut successor = Process::start("server", &dir.run_dir);
        // The same generation of another provider is another snapshot.
        assert_eq!(successor.ask("publish 500 3"), "1");
        for watcher in &mut watchers {
            assert_eq!(watcher.next_line(), "Changed 1 500 3");
        }
    }
}

/// A thread that waits for a change, once it is parked, and what it finds.
fn watch(
    mut cache: SnapshotCache<Numbers>,
) -> thread::JoinHandle<(Result<Refreshed, String>, SnapshotCache<Numbers>)> {
    park(move || {
        let found = cache.wait_for_change(Some(TEST_TIMEOUT));
        (found.map_err(|error| error.to_string()), cache)
    })
}

#[test]
fn a_parked_watcher_is_woken_by_a_publication() {
    let fixture = TestServer::open();
    let mut cache = SnapshotCache::<Numbers>::with_config(fixture.run_dir(), client_config());
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Empty);
    let watcher = watch(cache);
    fixture.numbers.publish(&numbers(1, 10)).unwrap();
    let (found, cache) = watcher.join().unwrap();
    assert_eq!(found.unwrap(), Refreshed::Changed);
    assert_eq!(cache.current().unwrap().bytes(), numbers(1, 10));
}

#[test]
fn a_parked_watcher_learns_at_once_of_a_malformed_snapshot() {
    let fixture = TestServer::open();
    let mut cache = SnapshotCache::<Numbers>::with_config(fixture.run_dir(), client_config());
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Empty);
    let watcher = watch(cache);
    fixture.numbers.publish(&[1; 20]).unwrap();
    let (found, mut cache) = watcher.join().unwrap();
    assert!(found.unwrap_err().contains("generation 1 is malformed"));
    // The next wait is for the next generation.
    let unchanged = cache.wait_for_change(Some(Duration::from_millis(1))).unwrap();
    assert_ne!(unchanged, Refreshed::Changed);
}

#[test]
fn a_watch_ends_at_its_timeout_with_the_current_state() {
    let fixture = TestServer::open();
    let mut cache = SnapshotCache::<Numbers>::with_config(fixture.run_dir(), client_config());
    let short = Some(Duration::from_millis(500));
    assert_eq!(cache.wait_for_change(short).unwrap(), Refreshed::Empty);
    fixture.numbers.publish(&numbers(1, 1)).unwrap();
    assert_eq!(cache.wait_for_change(short).unwrap(), Refreshed::Changed);
    assert_eq!(cache.wait_for_change(short).unwrap(), Refreshed::Unchanged);
    fixture.close();
    assert_eq!(cache.wait_for_change(short).unwrap(), Refreshed::Unavailable);
}

#[test]
fn another_thread_cancels_a_parked_watcher_and_one_that_waits_for_a_provider() {
    let fixture = TestServer::open();
    let backoff = Backoff::default().initial(TEST_TIMEOUT).max(TEST_TIMEOUT);
    let config = client_config().backoff(backoff);
    let mut cache = SnapshotCache::<Numbers>::with_config(fixture.run_dir(), config);
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Empty);
    let canceller = cache.canceller().unwrap();
    let watcher = watch(cache);
    canceller.cancel();
    let (found, mut cache) = watcher.join().unwrap();
    assert!(found.unwrap_err().contains("cancelled"));
    fixture.close();
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Unavailable);
    let watcher = watch(cache);
    canceller.cancel();
    let (found, mut cache) = watcher.join().unwrap();
    assert!(found.unwrap_err().contains("cancelled"));
    canceller.cancel();
    let cancelled = cache.wait_for_change(None).unwrap_err();
    assert!(matches!(cancelled, RefreshError::Call(CallError::Cancelled { .. })), "{cancelled}");
}
