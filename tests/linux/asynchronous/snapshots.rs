//! Snapshots for tasks and for event loops.

use std::sync::Mutex;
use std::time::Duration;

use bellwire::{
    AsyncSnapshotCache, Doorbell, ProviderState, Publisher, Refreshed, Server, Snapshot,
    SnapshotCache,
};
use bellwire_memfd::{clock, poll};
use tokio::time::timeout;

use super::in_each_runtime;
use crate::processes::stopped::Stopped;
use crate::support::child::Process;
use crate::support::guard::{TEST_TIMEOUT, scaled, test_deadline};
use crate::support::services::{Numbers, numbers};
use crate::support::test_server::{Dir, TestServer, client_config};

/// More bytes than are copied out of the ring: they come in memory of their own.
const LONG: u64 = 40_000;

fn cache(dir: &Dir) -> AsyncSnapshotCache<Numbers> {
    AsyncSnapshotCache::with_config(&dir.run_dir, client_config())
}

/// Waits for a change, which is this snapshot.
async fn finds(cache: &mut AsyncSnapshotCache<Numbers>, generation: u64, first: u64, count: u64) {
    assert_eq!(cache.wait_for_change().await.unwrap(), Refreshed::Changed);
    let current = cache.current().unwrap();
    assert_eq!(current.generation(), generation);
    assert!(current.bytes() == numbers(first, count), "generation {generation}");
}

#[test]
fn tasks_await_snapshots_over_the_death_of_their_provider() {
    in_each_runtime(async || {
        let dir = Dir::new();
        // They are first, and wait for the provider, too.
        let watchers = [(); 3].map(|()| {
            let mut cache = cache(&dir);
            tokio::spawn(async move {
                finds(&mut cache, 1, 1, 10).await;
                cache
            })
        });
        let mut server = Process::start("server", &dir.run_dir);
        server.ask("publish 1 10");
        let mut caches = Vec::new();
        for watcher in watchers {
            caches.push(watcher.await.unwrap());
        }
        for (generation, count) in (2..40).zip([10, LONG].into_iter().cycle()) {
            server.ask(&format!("publish {generation} {count}"));
            for cache in &mut caches {
                finds(cache, generation, generation, count).await;
            }
        }
        server.kill();
        for cache in &mut caches {
            assert_eq!(cache.wait_for_change().await.unwrap(), Refreshed::Unavailable);
            assert_eq!(cache.current().unwrap().generation(), 39, "the last good one stays");
        }
        let mut successor = Process::start("server", &dir.run_dir);
        // The same generation of another provider is another snapshot.
        successor.ask("publish 500 3");
        for cache in &mut caches {
            finds(cache, 1, 500, 3).await;
            assert_eq!(cache.state(), ProviderState::Ready);
        }
        successor.ask("stop");
        for cache in &mut caches {
            assert_eq!(cache.wait_for_change().await.unwrap(), Refreshed::Unavailable);
        }
    });
}

#[test]
fn a_wait_that_is_dropped_misses_nothing() {
    in_each_runtime(async || {
        let fixture = TestServer::open();
        let mut cache =
            AsyncSnapshotCache::<Numbers>::with_config(fixture.run_dir(), client_config());
        assert_eq!(cache.refresh_within(TEST_TIMEOUT).await.unwrap(), Refreshed::Empty);
        for generation in 1..50 {
            let dropped = timeout(Duration::ZERO, cache.wait_for_change()).await;
            assert!(dropped.is_err(), "{dropped:?}");
            let count = if generation % 2 == 0 { LONG } else { 7 };
            fixture.numbers.publish(&numbers(generation, count)).unwrap();
            finds(&mut cache, generation, generation, count).await;
            assert_eq!(cache.refresh().unwrap(), Refreshed::Unchanged);
        }
        fixture.numbers.publish(&[1; 20]).unwrap();
        let malformed = cache.wait_for_change().await.unwrap_err().to_string();
        assert!(malformed.contains("generation 50 is malformed"), "{malformed}");
        assert_eq!(cache.current().unwrap().generation(), 49);
        fixture.numbers.publish(&numbers(9, 9)).unwrap();
        finds(&mut cache, 51, 9, 9).await;
    });
}

#[test]
fn a_provider_that_does_not_answer_is_reported_once_and_its_answer_is_taken_later() {
    in_each_runtime(async || {
        let dir = Dir::new();
        let mut server = Process::start("server", &dir.run_dir);
        server.ask("publish 1 10");
        let config = client_config().timeout(Duration::from_millis(300));
        let mut cache = AsyncSnapshotCache::<Numbers>::with_config(&dir.run_dir, config);
        let mut absent = AsyncSnapshotCache::<Numbers>::new(&Dir::new().run_dir);
        assert_eq!(absent.refresh_within(TEST_TIMEOUT).await.unwrap(), Refreshed::Unavailable);
        assert_eq!(cache.refresh_within(TEST_TIMEOUT).await.unwrap(), Refreshed::Changed);
        server.ask(&format!("publish 2 {LONG}"));
        let stopped = Stopped::new(&server);
        let short = Duration::from_millis(5);
        assert_eq!(cache.refresh_within(short).await.unwrap(), Refreshed::Pending);
        assert_eq!(cache.wait_for_change().await.unwrap(), Refreshed::Unavailable);
        assert!(matches!(cache.state(), ProviderState::Unresponsive { .. }));
        let again = timeout(Duration::from_millis(50), cache.wait_for_change()).await;
        assert!(again.is_err(), "it is reported once: {again:?}");
        drop(stopped);
        finds(&mut cache, 2, 2, LONG).await;
    });
}

#[test]
fn an_event_loop_sleeps_on_one_descriptor_until_there_is_a_snapshot() {
    for doorbell in [Doorbell::Eventfd, Doorbell::Socket] {
        let fixture = TestServer::open();
        let config = client_config().doorbell(doorbell);
        let mut cache = SnapshotCache::<Numbers>::with_config(fixture.run_dir(), config);
        let next = |cache: &mut SnapshotCache<Numbers>| loop {
            if cache.refresh().unwrap() == Refreshed::Changed {
                return;
            }
            if !cache.arm().unwrap() {
                assert!(cache.poll_timeout().is_none_or(|due| due < scaled(TEST_TIMEOUT)));
                let fd = cache.pollable().unwrap();
                assert!(
                    poll::wait_readable(&[fd], Some(test_deadline())).unwrap().any(),
                    "nobody rings"
                );
            }
        };
        for generation in 1..20 {
            let count = if generation % 2 == 0 { LONG } else { 7 };
            fixture.numbers.publish(&numbers(generation, count)).unwrap();
            if generation > 1 {
                // It is armed, as at the end of the last turn.
                let fd = cache.pollable().unwrap();
                assert!(
                    poll::wait_readable(&[fd], Some(test_deadline())).unwrap().any(),
                    "{doorbell:?}: nobody rings for a new snapshot"
                );
            }
            next(&mut cache);
            assert!(cache.current().unwrap().bytes() == numbers(generation, count));
            // What the provider says besides, such as where its ring is, may come later.
            let is_quiet = (0..100).any(|_| {
                assert_eq!(cache.refresh().unwrap(), Refreshed::Unchanged);
                !cache.arm().unwrap()
            });
            assert!(is_quiet, "nothing is new");
            assert_eq!(cache.poll_timeout(), None, "and nothing is due");
            let (fd, now) = (cache.pollable().unwrap(), Some(clock::now()));
            assert!(!poll::wait_readable(&[fd], now).unwrap().any(), "nothing is new");
        }
        fixture.close();
        // The end of the provider rings as well.
        let fd = cache.pollable().unwrap();
        assert!(poll::wait_readable(&[fd], Some(test_deadline())).unwrap().any());
        assert_eq!(cache.refresh().unwrap(), Refreshed::Unavailable);
    }
}

/// A snapshot after which there is another one as soon as it is taken.
struct Endless;

static ENDLESS: Mutex<Option<Publisher<Endless>>> = Mutex::new(None);

impl Snapshot for Endless {
    const NAME: &'static str = "endless";
    type Index = ();
    type Error = std::convert::Infallible;

    fn validate(bytes: &[u8]) -> Result<(), Self::Error> {
        if let Some(publisher) = &*ENDLESS.lock().unwrap() {
            publisher.publish(bytes).unwrap();
        }
        Ok(())
    }
}

#[test]
fn a_provider_that_publishes_without_a_pause_leaves_other_tasks_their_turns() {
    in_each_runtime(async || {
        let dir = Dir::new();
        let mut builder = Server::builder(&dir.run_dir);
        let publisher = builder.publish::<Endless>().unwrap();
        publisher.publish(b"another").unwrap();
        *ENDLESS.lock().unwrap() = Some(publisher);
        let _server = builder.start().unwrap();
        let mut cache = AsyncSnapshotCache::<Endless>::with_config(&dir.run_dir, client_config());
        let short = Duration::from_millis(50);
        assert_eq!(cache.refresh_within(short).await.unwrap(), Refreshed::Changed);
        let follows = tokio::spawn(async move {
            loop {
                assert_eq!(cache.wait_for_change().await.unwrap(), Refreshed::Changed);
            }
        });
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        follows.abort();
        assert!(follows.await.unwrap_err().is_cancelled());
        ENDLESS.lock().unwrap().take();
    });
}
