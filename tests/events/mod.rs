//! Every event in order, or the exact count of those that a subscriber missed.

mod wait;

use bellwire::{
    Backoff, Delivery, Event, EventPublisher, ProviderState, RunDir, Server, ServerConfig, StartAt,
    SubscribeError, Subscriber,
};

use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::test_server::{Dir, client_config, server_config};

/// Numbered texts.
struct News;

impl Event for News {
    const NAME: &'static str = "news";
    type Message = Vec<u8>;
}

/// The same service, misunderstood.
struct Numbers;

impl Event for Numbers {
    const NAME: &'static str = "news";
    type Message = u64;
}

const DEPTH: u64 = 64 << 10;

struct Provider {
    dir: Dir,
    server: Server,
    publisher: EventPublisher<News>,
}

impl Provider {
    fn open() -> Self {
        Self::in_dir(Dir::new())
    }

    fn in_dir(dir: Dir) -> Self {
        let mut builder =
            Server::builder_with_config(&dir.run_dir, server_config(ServerConfig::default()));
        let publisher = builder.events::<News>(DEPTH).unwrap();
        let server = builder.start().unwrap();
        Self { dir, server, publisher }
    }

    fn run_dir(&self) -> &RunDir {
        &self.dir.run_dir
    }

    fn subscriber(&self, start: StartAt) -> Subscriber<News> {
        subscriber(self.run_dir(), start)
    }

    /// A subscriber that has found the provider.
    fn following(&self) -> Subscriber<News> {
        let mut subscriber = self.subscriber(StartAt::Now);
        until("it follows", || {
            assert_eq!(subscriber.try_next().unwrap(), None);
            subscriber.is_following()
        });
        assert_eq!(subscriber.state(), ProviderState::Ready);
        subscriber
    }

    /// Publishes so many events of this length, whose first bytes are their numbers.
    fn send(&self, events: u64, len: usize) {
        for _ in 0..events {
            let sequence = self.publisher.sent() + 1;
            assert_eq!(self.publisher.send(&text(sequence, len)).unwrap(), sequence);
        }
    }
}

fn subscriber<E: Event>(run_dir: &RunDir, start: StartAt) -> Subscriber<E> {
    Subscriber::with_config(
        run_dir,
        start,
        client_config()
            .backoff(Backoff::default().initial(TEST_TIMEOUT / 60_000).max(TEST_TIMEOUT / 6_000)),
    )
}

fn text(sequence: u64, len: usize) -> Vec<u8> {
    let mut text = vec![sequence.to_le_bytes()[0]; len.max(8)];
    text[..8].copy_from_slice(&sequence.to_le_bytes());
    text
}

/// The next event's number, once it is there.
#[track_caller]
fn next(subscriber: &mut Subscriber<News>) -> u64 {
    match subscriber.next(Some(TEST_TIMEOUT)).unwrap() {
        Some(Delivery::Event { sequence, event }) => {
            assert!(event == text(sequence, event.len()), "event {sequence}");
            sequence
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_subscriber_receives_every_event_in_order_from_its_own_start() {
    let provider = Provider::open();
    provider.send(3, 20);
    let mut oldest = provider.subscriber(StartAt::Oldest);
    assert_eq!([(); 3].map(|()| next(&mut oldest)), [1, 2, 3]);
    let mut now = provider.following();
    provider.send(500, 100);
    for sequence in 4..=503 {
        assert_eq!((next(&mut oldest), next(&mut now)), (sequence, sequence));
    }
    assert_eq!((oldest.try_next().unwrap(), now.try_next().unwrap()), (None, None));
    drop((oldest, now));
    let stats = provider.server.stop();
    assert_eq!((stats.accepted, stats.attaches_sent, stats.lost), (2, 2, 0), "a ring each");
}

#[test]
fn a_slow_subscriber_learns_exactly_how_many_it_missed() {
    let provider = Provider::open();
    let mut subscriber = provider.following();
    let (mut got, mut missed) = (0, 0);
    for burst in [10, 5_000, 1, 100_000, 700] {
        provider.send(burst, 40);
        loop {
            match subscriber.try_next().unwrap() {
                Some(Delivery::Event { sequence, event }) => {
                    got += 1;
                    assert_eq!((sequence, event), (got + missed, text(sequence, 40)));
                }
                Some(Delivery::Missed { events }) => {
                    assert!(events > 0);
                    missed += events;
                }
                Some(Delivery::Restarted) => panic!("it did not"),
                None => break,
            }
        }
        assert_eq!(got + missed, provider.publisher.sent());
    }
    assert!(missed > 90_000, "{missed}");
}

#[test]
fn subscribers_follow_to_a_larger_ring_without_missing_anything() {
    let provider = Provider::open();
    let mut subscriber = provider.following();
    provider.send(10, 100);
    provider.publisher.set_depth(1 << 20).unwrap();
    provider.send(5, 100);
    // This event is above a quarter of that.
    provider.send(1, 700_000);
    provider.send(2_000, 100);
    for sequence in 1..=2_016 {
        assert_eq!(next(&mut subscriber), sequence);
    }
    assert_eq!(subscriber.try_next().unwrap(), None);
}

#[test]
fn a_subscriber_overrun_before_a_ring_was_replaced_counts_missed_events_of_both_rings() {
    let provider = Provider::open();
    let mut subscriber = provider.following();
    provider.send(10_000, 100);
    provider.publisher.set_depth(128 << 10).unwrap();
    provider.send(50_000, 100);
    let mut missed = 0;
    let mut last = 0;
    while last < 60_000 {
        match subscriber.next(Some(TEST_TIMEOUT)).unwrap() {
            Some(Delivery::Event { sequence, .. }) => {
                assert_eq!(sequence, last + missed + 1);
                (last, missed) = (sequence, 0);
            }
            Some(Delivery::Missed { events }) => missed = events,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn events_of_any_length_up_to_the_largest_ring_are_sent_and_a_longer_one_is_refused() {
    let provider = Provider::open();
    let mut subscriber = provider.following();
    for len in [8, 9, 15, 16, 17, 16 << 10, (16 << 10) + 1, 3 << 20] {
        provider.send(1, len);
        next(&mut subscriber);
    }
    let long = vec![0; (1 << 28) + 1];
    let refused = provider.publisher.send(&long).unwrap_err().to_string();
    assert!(refused.contains("268435457") && refused.contains("above the limit"), "{refused}");
    provider.send(1, 8);
    next(&mut subscriber);
}

#[test]
fn a_malformed_event_is_reported_with_its_sequence_and_the_next_one_arrives() {
    let provider = Provider::open();
    let mut subscriber = subscriber::<Numbers>(provider.run_dir(), StartAt::Oldest);
    provider.send(1, 9);
    provider.send(1, 8);
    let error = subscriber.next(Some(TEST_TIMEOUT)).unwrap_err();
    assert!(matches!(error, SubscribeError::Malformed { sequence: 1, .. }), "{error}");
    let found = subscriber.next(Some(TEST_TIMEOUT)).unwrap();
    assert_eq!(found, Some(Delivery::Event { sequence: 2, event: 2 }));
}

#[test]
fn many_threads_publish_and_every_event_has_its_own_number() {
    let provider = Provider::open();
    provider.publisher.set_depth(4 << 20).unwrap();
    let mut subscriber = provider.subscriber(StartAt::Oldest);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let publisher = &provider.publisher;
            scope.spawn(move || {
                for _ in 0..1_000 {
                    publisher.send_all(&[vec![thread; 24], vec![thread; 8]]).unwrap();
                }
            });
        }
        for expected in 1..=8_000 {
            match subscriber.next(Some(TEST_TIMEOUT)).unwrap() {
                Some(Delivery::Event { sequence, event }) => {
                    assert_eq!(sequence, expected);
                    assert!(event.iter().all(|byte| *byte == event[0]));
                }
                other => panic!("{other:?}"),
            }
        }
    });
}
