use std::sync::mpsc::channel;
use std::thread;

use std::time::Duration;

use bellwire::{
    AsyncSubscriber, Client, Contract, Delivery, Doorbell, Event, ProviderState, Server,
    ServerConfig, StartAt, Subscriber,
};
use bellwire_memfd::{clock, poll};
use tokio::runtime::Builder;

use super::{News, dir, provider, text};
use crate::support::guard::{TEST_TIMEOUT, test_deadline, until};
use crate::support::kernel::{cpus, pin};
use crate::support::services::Echo;
use crate::support::test_server::{TestServer, client_config, server_config};

/// Takes the next delivery as an event loop does, and counts how often it slept.
fn next(subscriber: &mut Subscriber<News>, sleeps: &mut u32) -> Delivery<Vec<u8>> {
    loop {
        if let Some(delivery) = subscriber.try_next().unwrap() {
            return delivery;
        }
        if !subscriber.arm().unwrap() {
            *sleeps += 1;
            let fd = subscriber.pollable().unwrap();
            assert!(
                poll::wait_readable(&[fd], Some(test_deadline())).unwrap().any(),
                "nobody rings"
            );
        }
    }
}

#[test]
fn an_event_loop_sleeps_on_one_descriptor_and_misses_no_event() {
    for doorbell in [Doorbell::Eventfd, Doorbell::Socket] {
        let dir = dir();
        let config = client_config().doorbell(doorbell);
        let mut subscriber = Subscriber::<News>::with_config(&dir.run_dir, StartAt::Oldest, config);
        assert_eq!(subscriber.try_next().unwrap(), None);
        let run_dir = dir.run_dir.clone();
        let mut sleeps = 0;
        let (take, taken) = channel();
        thread::scope(|scope| {
            // It waits for the provider, too.
            let publishing = scope.spawn(move || {
                let (server, publisher) = provider(&run_dir);
                for number in 1..=300 {
                    publisher.send(&text(number, 3)).unwrap();
                    if number % 3 == 0 {
                        taken.recv().unwrap();
                    }
                }
                (server, publisher)
            });
            for number in 1..=300 {
                let event = Delivery::Event { sequence: number, event: text(number, 3) };
                assert_eq!(next(&mut subscriber, &mut sleeps), event, "{doorbell:?}");
                if number % 3 == 0 {
                    take.send(()).unwrap();
                }
            }
            let (server, _) = publishing.join().unwrap();
            assert!(!subscriber.arm().unwrap());
            let fd = subscriber.pollable().unwrap();
            let now = Some(clock::now());
            assert!(!poll::wait_readable(&[fd], now).unwrap().any(), "nothing is new");
            let stats = server.stop();
            assert_eq!(stats.lost, 0);
        });
        assert!(sleeps > 1, "{doorbell:?}: it never slept");
        // The end of the provider rings as well.
        let fd = subscriber.pollable().unwrap();
        assert!(poll::wait_readable(&[fd], Some(test_deadline())).unwrap().any());
        assert_eq!(subscriber.try_next().unwrap(), None);
        assert_ne!(subscriber.state(), ProviderState::Ready);
    }
}

#[test]
fn a_subscriber_with_a_futex_has_no_descriptor() {
    let dir = dir();
    let (_server, publisher) = provider(&dir.run_dir);
    publisher.send(&text(1, 1)).unwrap();
    let mut subscriber =
        Subscriber::<News>::with_config(&dir.run_dir, StartAt::Oldest, client_config());
    assert!(subscriber.next(Some(TEST_TIMEOUT)).unwrap().is_some());
    let error = subscriber.pollable().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
}

#[test]
fn tasks_await_events_over_the_end_of_their_provider() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let dir = dir();
        let mut subscribers =
            [(); 3].map(|()| AsyncSubscriber::<News>::new(&dir.run_dir, StartAt::Oldest));
        let run_dir = dir.run_dir.clone();
        let (take, taken) = channel();
        let publishing = thread::spawn(move || {
            let (server, publisher) = provider(&run_dir);
            for number in 1..=200 {
                publisher.send(&text(number, 2)).unwrap();
                if number % 2 == 0 {
                    taken.recv().unwrap();
                }
            }
            (server, publisher)
        });
        for number in 1..=200 {
            for subscriber in &mut subscribers {
                let found = tokio::time::timeout(TEST_TIMEOUT, subscriber.next()).await.unwrap();
                let event = Delivery::Event { sequence: number, event: text(number, 2) };
                assert_eq!(found.unwrap(), event);
            }
            if number % 2 == 0 {
                take.send(()).unwrap();
            }
        }
        let (server, publisher) = publishing.join().unwrap();
        server.stop();
        drop(publisher);
        let run_dir = dir.run_dir.clone();
        let publishing = thread::spawn(move || {
            let (server, publisher) = provider(&run_dir);
            publisher.send(&text(1, 2)).unwrap();
            (server, publisher)
        });
        for subscriber in &mut subscribers {
            let found = tokio::time::timeout(TEST_TIMEOUT, subscriber.next()).await.unwrap();
            assert_eq!(found.unwrap(), Delivery::Restarted);
            let found = tokio::time::timeout(TEST_TIMEOUT, subscriber.next()).await.unwrap();
            assert_eq!(found.unwrap(), Delivery::Event { sequence: 1, event: text(1, 2) });
            assert_eq!(subscriber.state(), ProviderState::Ready);
        }
        publishing.join().unwrap().0.stop();
    });
}

#[test]
fn a_task_awaits_events_of_a_service_known_at_run_time() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let dir = dir();
        let (_server, publisher) = provider(&dir.run_dir);
        publisher.send(&text(1, 2)).unwrap();
        let contract = Contract::new(News::NAME.parse().unwrap());
        let mut subscriber = AsyncSubscriber::with_contract(
            &dir.run_dir,
            contract,
            StartAt::Oldest,
            client_config(),
        );
        let event = |number| Delivery::Event { sequence: number, event: text(number, 2) };
        let found = tokio::time::timeout(TEST_TIMEOUT, subscriber.next()).await.unwrap();
        assert_eq!(found.unwrap(), event(1));
        let send = async { publisher.send(&text(2, 2)).unwrap() };
        let next = tokio::time::timeout(TEST_TIMEOUT, subscriber.next());
        let (found, _) = tokio::join!(next, send);
        assert_eq!(found.unwrap().unwrap(), event(2));
    });
}

/// The request for the next event is in flight as long as there is none: it took the only place, was refused for that,
/// and sent again, by a client and a server that never slept.
#[test]
fn a_provider_of_one_request_at_a_time_announces_the_next_event() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for most in [0, 1] {
            let dir = dir();
            let config = server_config(ServerConfig::default().max_in_flight(most));
            let mut builder = Server::builder_with_config(&dir.run_dir, config);
            let publisher = builder.events::<News>(super::DEPTH).unwrap();
            let server = builder.start().unwrap();
            let mut subscriber = AsyncSubscriber::<News>::new(&dir.run_dir, StartAt::Oldest);
            for number in 1..=3 {
                publisher.send(&text(number, 2)).unwrap();
                let found = tokio::time::timeout(TEST_TIMEOUT, subscriber.next()).await.unwrap();
                let event = Delivery::Event { sequence: number, event: text(number, 2) };
                assert_eq!(found.unwrap(), event);
                // None comes.
                let wait = Duration::from_millis(5);
                assert!(tokio::time::timeout(wait, subscriber.next()).await.is_err());
            }
            assert!(server.stop().refused <= 1, "only what waits at the end");
        }
    });
}

/// On one processor, a provider may run between each two steps of its client.
#[test]
fn a_waiting_client_gets_a_descriptor_even_if_its_provider_answers_at_once() {
    let looking = thread::spawn(|| {
        pin(&cpus()[..1]);
        let fixture = TestServer::open();
        for number in 1..=40 {
            let mut client = Client::<Echo>::with_config(fixture.run_dir(), client_config());
            client.pollable_arrival().unwrap();
            drop(client);
            // Until it sleeps.
            until("the client is gone", || {
                fixture.stats().admitted + fixture.stats().handshakes_failed == number
                    && fixture.stats().sessions == 0
            });
        }
    });
    looking.join().unwrap();
}
