//! A publisher that is killed while it publishes: what a subscriber takes is whole, and nothing is counted twice.

use bellwire::{Backoff, Delivery, Refreshed, RunDir, SnapshotCache, StartAt, Subscriber};

use super::{News, dir, provider, text};
use crate::support::child::{Parent, Process};
use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::services::{Numbers, numbers};
use crate::support::test_server::client_config;

/// Publishes events and snapshots as fast as it can, until it is killed.
pub(crate) fn publish_for_ever(parent: &Parent) {
    let run_dir = RunDir::from_environment();
    let (_server, publisher) = provider(&run_dir);
    let mut builder = bellwire::Server::builder(&run_dir);
    let snapshots = builder.publish::<Numbers>().unwrap();
    let _snapshots = builder.start().unwrap();
    parent.send_line("ready");
    for number in 1.. {
        let words = 1 + usize::try_from(number % 37).unwrap();
        publisher.send(&text(number, words)).unwrap();
        snapshots.publish(&numbers(number, 1 + number % 900)).unwrap();
    }
}

#[test]
fn a_subscriber_of_a_publisher_that_is_killed_takes_only_whole_events_and_counts_the_others() {
    let dir = dir();
    let backoff = Backoff::default().initial(TEST_TIMEOUT / 60_000).max(TEST_TIMEOUT / 6_000);
    let config = || client_config().backoff(backoff);
    let mut subscriber = Subscriber::<News>::with_config(&dir.run_dir, StartAt::Oldest, config());
    let mut cache = SnapshotCache::<Numbers>::with_config(&dir.run_dir, config());
    let mut restarts = 0;
    for round in 0_u64..40 {
        let mut publisher = Process::start("publisher", &dir.run_dir);
        // The first event is the oldest that this publisher keeps: whatever came before is not missed.
        let (mut last, mut got) = (None, 0);
        let mut is_killed = false;
        loop {
            match subscriber.next(Some(TEST_TIMEOUT)).unwrap() {
                Some(Delivery::Event { sequence, event }) => {
                    let words = 1 + usize::try_from(sequence % 37).unwrap();
                    assert!(event == text(sequence, words), "event {sequence} is not whole");
                    assert!(
                        last.is_none_or(|last: u64| sequence == last + 1),
                        "{last:?}, {sequence}"
                    );
                    last = Some(sequence);
                    got += 1;
                }
                Some(Delivery::Missed { events }) => last = last.map(|last| last + events),
                Some(Delivery::Restarted) => {
                    assert_eq!(got, 0, "of the same publisher");
                    restarts += 1;
                    last = None;
                }
                None => panic!("nothing comes"),
            }
            // A torn snapshot would be out of order.
            if cache.refresh().unwrap() == Refreshed::Changed {
                let current = cache.current().unwrap();
                assert_eq!(
                    u64::try_from(*current.index()).unwrap(),
                    1 + first(current.bytes()) % 900
                );
            }
            if !is_killed && got >= 20 + round * 7 {
                publisher.kill();
                is_killed = true;
            }
            if is_killed && subscriber.state() != bellwire::ProviderState::Ready {
                break;
            }
            if is_killed && !subscriber.wait(Some(TEST_TIMEOUT / 600)).unwrap() {
                break;
            }
        }
        until("its end is noticed", || {
            cache.refresh().unwrap();
            cache.state() != bellwire::ProviderState::Ready
        });
    }
    assert_eq!(restarts, 39);
}

fn first(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}
