//! A provider that lacks something to pass its ring.

use bellwire::{Backoff, Delivery, Doorbell, ProviderState, RunDir, StartAt, Subscriber};
use bellwire_memfd::poll;

use super::{News, dir, provider, text};
use crate::support::child::{Parent, Process};
use crate::support::guard::{TEST_TIMEOUT, test_deadline, until};
use crate::support::limiter::ResourceLimiter;
use crate::support::test_server::client_config;

/// Publishes as its commands say, and lacks the resources that they take.
pub(crate) fn publish(mut parent: Parent, mut limiter: ResourceLimiter) {
    let (_server, publisher) = provider(&RunDir::from_environment());
    parent.send_line("ready");
    while let Some(line) = parent.next_line() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["send"] => {
                let number = publisher.sent() + 1;
                publisher.send(&text(number, 2)).unwrap();
            }
            ["set_depth"] => publisher.set_depth(16 * super::DEPTH).unwrap(),
            ref words => limiter.apply(words),
        }
        parent.send_line("ok");
    }
}

/// Before its first ring, and before the one that follows.
#[test]
fn a_ring_that_could_not_be_passed_is_passed_later() {
    for is_first in [true, false] {
        let dir = dir();
        let mut provider = Process::start("news", &dir.run_dir);
        let mut ask = |line| assert_eq!(provider.ask(line), "ok");
        let backoff = Backoff::default().initial(TEST_TIMEOUT / 60_000).max(TEST_TIMEOUT / 6_000);
        let config = client_config().doorbell(Doorbell::Eventfd).backoff(backoff);
        let mut subscriber = Subscriber::<News>::with_config(&dir.run_dir, StartAt::Oldest, config);
        let next = |subscriber: &mut Subscriber<News>, number| {
            let event = Delivery::Event { sequence: number, event: text(number, 2) };
            assert_eq!(subscriber.next(Some(TEST_TIMEOUT)).unwrap(), Some(event));
        };
        let begun = if is_first { ProviderState::Connecting } else { ProviderState::Ready };
        ask("send");
        if is_first {
            // Its ring is not asked for before the handshake is over.
            assert_eq!(subscriber.try_next().unwrap(), None);
            let welcome = [subscriber.pollable().unwrap()];
            assert!(poll::wait_readable(&welcome, Some(test_deadline())).unwrap().any());
        } else {
            next(&mut subscriber, 1);
        }
        assert_eq!(subscriber.state(), begun);
        ask("in-flight");
        if !is_first {
            ask("set_depth");
            ask("send");
        }
        until("the ring is not passed, nor is a session opened", || {
            assert_eq!(subscriber.next(Some(TEST_TIMEOUT / 6_000)).unwrap(), None);
            subscriber.state() != ProviderState::Ready
                && subscriber.state() != ProviderState::Connecting
        });
        ask("nothing-in-flight");
        next(&mut subscriber, if is_first { 1 } else { 2 });
        ask("send");
        next(&mut subscriber, if is_first { 2 } else { 3 });
    }
}
