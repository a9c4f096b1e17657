use std::sync::mpsc::channel;
use std::thread;

use bellwire::{AsyncSubscriber, Delivery, Doorbell, Start, State, Subscriber};
use bellwire_memfd::{clock, poll};
use tokio::runtime::Builder;

use super::{News, dir, provider, text};
use crate::support::guard::{PATIENCE, patience};
use crate::support::test_server::patient;

/// Takes the next delivery as an event loop does, and counts how often it slept.
fn next(subscriber: &mut Subscriber<News>, sleeps: &mut u32) -> Delivery<Vec<u8>> {
    loop {
        if let Some(delivery) = subscriber.try_next().unwrap() {
            return delivery;
        }
        if !subscriber.arm().unwrap() {
            *sleeps += 1;
            let fd = subscriber.as_fd().unwrap();
            assert!(poll::wait_readable(&[fd], Some(patience())).unwrap().any(), "nobody rings");
        }
    }
}

#[test]
fn an_event_loop_sleeps_on_one_descriptor_and_misses_no_event() {
    for doorbell in [Doorbell::Eventfd, Doorbell::Socket] {
        let dir = dir();
        let config = patient().doorbell(doorbell);
        let mut subscriber = Subscriber::<News>::with_config(&dir.run_dir, Start::Oldest, config);
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
            let fd = subscriber.as_fd().unwrap();
            let now = Some(clock::now());
            assert!(!poll::wait_readable(&[fd], now).unwrap().any(), "nothing is new");
            let stats = server.stop();
            assert_eq!(stats.lost, 0);
        });
        assert!(sleeps > 1, "{doorbell:?}: it never slept");
        // The end of the provider rings as well.
        let fd = subscriber.as_fd().unwrap();
        assert!(poll::wait_readable(&[fd], Some(patience())).unwrap().any());
        assert_eq!(subscriber.try_next().unwrap(), None);
        assert_ne!(subscriber.state(), State::Ready);
    }
}

#[test]
fn a_subscriber_with_a_futex_says_that_it_has_no_descriptor() {
    let dir = dir();
    let (_server, publisher) = provider(&dir.run_dir);
    publisher.send(&text(1, 1)).unwrap();
    let mut subscriber = Subscriber::<News>::with_config(&dir.run_dir, Start::Oldest, patient());
    assert!(subscriber.next(Some(PATIENCE)).unwrap().is_some());
    let error = subscriber.as_fd().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
}

#[test]
fn tasks_await_events_over_the_end_of_their_provider() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let dir = dir();
        let mut subscribers =
            [(); 3].map(|()| AsyncSubscriber::<News>::new(&dir.run_dir, Start::Oldest));
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
                let found = tokio::time::timeout(PATIENCE, subscriber.next()).await.unwrap();
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
            let found = tokio::time::timeout(PATIENCE, subscriber.next()).await.unwrap();
            assert_eq!(found.unwrap(), Delivery::Restarted);
            let found = tokio::time::timeout(PATIENCE, subscriber.next()).await.unwrap();
            assert_eq!(found.unwrap(), Delivery::Event { sequence: 1, event: text(1, 2) });
            assert_eq!(subscriber.state(), State::Ready);
        }
        publishing.join().unwrap().0.stop();
    });
}
