//! Subscribers wait without polling, outlive their providers, and can be cancelled.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use bellwire::{
    Backoff, CallError, Delivery, ProviderState, Refreshed, Server, SnapshotCache, StartAt,
    SubscribeError, Subscriber,
};

use super::{News, Provider, next, subscriber, text};
use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::parked::park;
use crate::support::services::{Numbers, numbers};
use crate::support::test_server::{Dir, client_config};

#[test]
fn a_parked_subscriber_is_woken_by_an_event() {
    let provider = Provider::open();
    let mut subscriber = provider.following();
    for sequence in 1..20 {
        let waiter = park(move || (next(&mut subscriber), subscriber));
        provider.send(1, 30);
        let found = waiter.join().unwrap();
        assert_eq!(found.0, sequence);
        subscriber = found.1;
    }
}

#[test]
fn a_publication_that_panics_still_rings_for_the_events_before_it() {
    let provider = Provider::open();
    let mut subscriber = provider.following();
    let waiter = park(move || [(); 2].map(|()| next(&mut subscriber)));
    let texts = [text(1, 1), text(2, 1), Vec::new()];
    let texts = texts.iter().inspect(|text| assert_ne!(text.len(), 0));
    catch_unwind(AssertUnwindSafe(|| provider.publisher.send_all(texts))).unwrap_err();
    let since = Instant::now();
    assert_eq!(waiter.join().unwrap(), [1, 2]);
    assert!(since.elapsed() < TEST_TIMEOUT / 2, "found them when the wait ended");
}

#[test]
fn a_wait_takes_nothing_and_ends_in_time() {
    let provider = Provider::open();
    let mut subscriber = provider.following();
    let short = Some(Duration::from_millis(2));
    assert!(!subscriber.wait(short).unwrap());
    assert_eq!(subscriber.next(short).unwrap(), None);
    provider.send(2, 10);
    for _ in 0..3 {
        assert!(subscriber.wait(Some(TEST_TIMEOUT)).unwrap());
    }
    assert_eq!([next(&mut subscriber), next(&mut subscriber)], [1, 2]);
    assert!(!subscriber.wait(short).unwrap());
}

#[test]
fn a_subscriber_waits_for_its_provider_and_outlives_it() {
    let dir = Dir::new();
    let mut subscriber: Subscriber<News> = subscriber(&dir.run_dir, StartAt::Now);
    assert_eq!(subscriber.try_next().unwrap(), None);
    assert_eq!(subscriber.state(), ProviderState::Absent);
    let provider = Provider::in_dir(dir);
    until("it finds the provider", || {
        assert_eq!(subscriber.try_next().unwrap(), None);
        subscriber.is_following()
    });
    provider.send(2, 10);
    assert_eq!(next(&mut subscriber), 1);
    let Provider { dir, server, publisher } = provider;
    server.stop();
    drop(publisher);
    // What was published before the end is not lost.
    assert_eq!(next(&mut subscriber), 2);
    assert_eq!(subscriber.next(Some(Duration::from_millis(2))).unwrap(), None);
    assert_ne!(subscriber.state(), ProviderState::Ready);
    let provider = Provider::in_dir(dir);
    provider.send(3, 10);
    assert_eq!(subscriber.next(Some(TEST_TIMEOUT)).unwrap(), Some(Delivery::Restarted));
    assert_eq!([(); 3].map(|()| next(&mut subscriber)), [1, 2, 3], "from the oldest on");
}

/// No retry is due for an hour.
#[test]
fn waits_for_an_absent_provider_end_when_one_starts() {
    let dir = Dir::new();
    let hour = Duration::from_secs(3600);
    let config = client_config().backoff(Backoff::default().initial(hour).max(hour));
    let mut subscriber =
        Subscriber::<News>::with_config(&dir.run_dir, StartAt::Oldest, config.clone());
    let mut cache = SnapshotCache::<Numbers>::with_config(&dir.run_dir, config);
    let follower = park(move || next(&mut subscriber));
    let watcher = park(move || cache.wait_for_change(Some(TEST_TIMEOUT)).unwrap());
    let mut builder = Server::builder(&dir.run_dir);
    let events = builder.events::<News>(1 << 16).unwrap();
    let snapshots = builder.publish::<Numbers>().unwrap();
    let _server = builder.start().unwrap();
    events.send(&text(1, 10)).unwrap();
    snapshots.publish(&numbers(1, 10)).unwrap();
    assert_eq!(follower.join().unwrap(), 1);
    assert_eq!(watcher.join().unwrap(), Refreshed::Changed);
}

#[test]
fn another_thread_cancels_a_parked_subscriber_and_one_that_waits_for_a_provider() {
    let provider = Provider::open();
    let mut subscriber = provider.following();
    let canceller = subscriber.canceller().unwrap();
    let Provider { dir, server, publisher } = provider;
    let mut server = Some(server);
    for _ in ["with a provider", "without one"] {
        let waiter = park(move || (subscriber.next(None), subscriber));
        canceller.cancel();
        let (found, back) = waiter.join().unwrap();
        let error = found.unwrap_err();
        let cancelled = matches!(error, SubscribeError::Call(CallError::Cancelled { .. }));
        assert!(cancelled, "{error}");
        subscriber = back;
        drop(server.take());
    }
    drop((dir, publisher));
}
