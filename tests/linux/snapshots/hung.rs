//! A provider that is there and does not answer: a refresh does not wait for it.

use std::time::{Duration, Instant};

use bellwire::{Client, ProviderState, Refreshed, SnapshotCache};

use crate::processes::stopped::Stopped;
use crate::support::child::Process;
use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::rogue::RogueListener;
use crate::support::services::{Echo, Numbers, numbers};
use crate::support::test_server::{Dir, client_config};

/// More looks than a process makes in which one of them waits.
const REFRESHES: u32 = 200;
/// Each wait would take this long.
const LONG: Duration = Duration::from_secs(60);

fn cache(dir: &Dir) -> SnapshotCache<Numbers> {
    let config = client_config().timeout(LONG).connect_timeout(LONG);
    SnapshotCache::with_config(&dir.run_dir, config)
}

/// Refreshes many times: all of it takes less than one wait would.
#[track_caller]
fn refreshes(cache: &mut SnapshotCache<Numbers>, finds: Refreshed) {
    let begun = Instant::now();
    for _ in 0..REFRESHES {
        assert_eq!(cache.refresh().unwrap(), finds);
    }
    assert!(begun.elapsed() < LONG, "it waits");
}

#[test]
fn a_refresh_does_not_wait_for_a_stopped_provider_and_takes_its_answer_when_resumed() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    server.ask("publish 1 10");
    let mut cache = cache(&dir);
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
    server.ask("publish 2 40000");
    let stopped = Stopped::new(&server);
    refreshes(&mut cache, Refreshed::Pending);
    assert_eq!(cache.state(), ProviderState::Ready);
    let current = cache.current().unwrap();
    assert_eq!((current.generation(), current.bytes()), (1, &*numbers(1, 10)), "it stays");
    let age = current.age();
    // A reader with a timeout gets the result at the end of it.
    let short = Duration::from_millis(5);
    assert_eq!(cache.refresh_within(short).unwrap(), Refreshed::Pending);
    assert_eq!(cache.wait_for_change(Some(short)).unwrap(), Refreshed::Pending);
    assert!(cache.current().unwrap().age() > age);
    drop(stopped);
    // The answer to the earlier request comes now.
    until("it is answered", || cache.refresh().unwrap() == Refreshed::Changed);
    assert!(cache.current().unwrap().bytes() == numbers(2, 40_000));
}

#[test]
fn a_short_snapshot_of_a_stopped_provider_is_still_taken() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    server.ask("publish 1 10");
    let mut cache = cache(&dir);
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
    server.ask("publish 2 20");
    let _stopped = Stopped::new(&server);
    assert_eq!(cache.refresh().unwrap(), Refreshed::Changed);
    assert_eq!(cache.current().unwrap().bytes(), numbers(2, 20));
    refreshes(&mut cache, Refreshed::Unchanged);
}

#[test]
fn a_provider_that_has_not_answered_in_time_is_unavailable_in_the_state() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    server.ask("publish 1 10");
    let timeout = Duration::from_millis(20);
    let config = client_config().timeout(timeout);
    let mut cache = SnapshotCache::<Numbers>::with_config(&dir.run_dir, config);
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
    server.ask("publish 2 40000");
    let stopped = Stopped::new(&server);
    // A watcher is notified once.
    assert_eq!(cache.wait_for_change(Some(TEST_TIMEOUT)).unwrap(), Refreshed::Unavailable);
    let ProviderState::Unresponsive { waited } = cache.state() else {
        panic!("{:?}", cache.state())
    };
    assert!(waited >= timeout);
    for _ in 0..REFRESHES {
        assert_eq!(cache.refresh().unwrap(), Refreshed::Unavailable);
    }
    assert_eq!(cache.current().unwrap().bytes(), numbers(1, 10));
    drop(stopped);
    assert_eq!(cache.wait_for_change(Some(TEST_TIMEOUT)).unwrap(), Refreshed::Changed);
    assert_eq!((cache.state(), cache.current().unwrap().generation()), (ProviderState::Ready, 2));
}

#[test]
fn a_refresh_does_not_wait_for_a_provider_that_neither_accepts_nor_welcomes() {
    let dir = Dir::new();
    let listener = RogueListener::bind(&dir.run_dir, "numbers");
    let mut unaccepted = cache(&dir);
    refreshes(&mut unaccepted, Refreshed::Pending);
    assert_eq!(unaccepted.state(), ProviderState::Connecting);
    let _silent = listener.accept();
    refreshes(&mut unaccepted, Refreshed::Pending);
    let _echo = RogueListener::bind(&dir.run_dir, "echo");
    let config = client_config().connect_timeout(LONG);
    let mut client = Client::<Echo>::with_config(&dir.run_dir, config);
    let begun = Instant::now();
    for _ in 0..REFRESHES {
        assert_eq!(client.refresh(), ProviderState::Connecting);
    }
    assert!(begun.elapsed() < LONG, "it waits");
}

#[test]
fn a_refresh_does_not_wait_for_a_provider_that_announces_a_snapshot_and_never_passes_it() {
    let dir = Dir::new();
    let listener = RogueListener::bind(&dir.run_dir, "numbers");
    let mut cache = cache(&dir);
    let rogue = listener.meet(|| {
        until("a session", || {
            cache.refresh().unwrap();
            cache.state() == ProviderState::Ready
        });
    });
    rogue.announce(1);
    refreshes(&mut cache, Refreshed::Pending);
}

#[test]
fn a_wait_for_an_answer_can_be_cancelled() {
    let dir = Dir::new();
    let _listener = RogueListener::bind(&dir.run_dir, "numbers");
    let mut cache = cache(&dir);
    let canceller = cache.canceller().unwrap();
    assert_eq!(cache.refresh().unwrap(), Refreshed::Pending);
    canceller.cancel();
    assert!(cache.refresh_within(LONG).unwrap_err().to_string().contains("cancelled"));
    canceller.cancel();
    assert!(cache.wait_for_change(None).unwrap_err().to_string().contains("cancelled"));
}
