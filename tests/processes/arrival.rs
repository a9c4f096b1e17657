//! Clients that wait for a provider which is not there yet.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use bellwire::{CallError, Client, Executed, ProviderState};

use crate::support::child::Process;
use crate::support::guard::{TEST_TIMEOUT, test_deadline};
use crate::support::parked::{Thread, once_parked};
use crate::support::services::Echo;
use crate::support::test_server::{Dir, client_config};
use crate::support::transport::{Os, prelude::*};

fn client(dir: &Dir) -> Client<Echo> {
    Client::with_config(&dir.run_dir, client_config())
}

#[test]
fn every_client_that_waits_is_served_once_a_provider_listens() {
    let dir = Dir::new();
    // The provider creates it.
    std::fs::remove_dir(dir.run_dir.path()).unwrap();
    let mut server = None;
    for _ in 0..3 {
        thread::scope(|scope| {
            let (begins, begun) = channel();
            let waiting: Vec<_> = (0..4)
                .map(|_| {
                    let (begins, dir) = (begins.clone(), &dir);
                    scope.spawn(move || {
                        let mut client = client(dir);
                        begins.send(Thread::this()).unwrap();
                        let session = client.wait_available(TEST_TIMEOUT).unwrap();
                        assert_eq!(session.call(&vec![7]).unwrap(), [7]);
                        Instant::now()
                    })
                })
                .collect();
            begun.iter().take(waiting.len()).for_each(|thread| thread.wait_until_parked());
            // The one before was killed: what it left is in the way of nobody.
            server = Some(Process::start("server", &dir.run_dir));
            let listened = Instant::now();
            for client in waiting {
                let late = client.join().unwrap().saturating_duration_since(listened);
                println!("served {late:?} after the provider said that it listens");
            }
        });
        server.take().unwrap().kill();
    }
    let mut late = client(&dir);
    let none = late.wait_available(Duration::from_millis(20)).unwrap_err();
    assert!(matches!(none, CallError::Deadline { executed: Executed::No }), "{none}");
    let _server = Process::start("server", &dir.run_dir);
    assert!(late.wait_available(TEST_TIMEOUT).is_ok());
    assert!(late.wait_available(Duration::ZERO).is_ok(), "it has a session");
}

#[test]
fn a_wait_for_a_provider_ends_when_it_is_cancelled() {
    let dir = Dir::new();
    let mut client = client(&dir);
    let canceller = client.canceller().unwrap();
    let from_elsewhere = once_parked(move || canceller.cancel());
    let cancelled = client.wait_available(TEST_TIMEOUT).unwrap_err();
    assert!(matches!(cancelled, CallError::Cancelled { executed: Executed::No }), "{cancelled}");
    from_elsewhere.join().unwrap();
}

#[test]
fn an_event_loop_learns_of_a_provider_that_arrived_between_check_and_watch() {
    let dir = Dir::new();
    let mut client = client(&dir);
    assert_eq!(client.refresh(), ProviderState::Absent);
    let _server = Process::start("server", &dir.run_dir);
    let guard = Instant::now();
    loop {
        // It answers the handshake without being asked again, so there may be a session already.
        if let Ok(fd) = client.pollable_arrival() {
            assert!(Os::wait_any(&[fd], Some(test_deadline())).unwrap(), "no client is notified");
        }
        if client.refresh() == ProviderState::Ready {
            break;
        }
        assert!(guard.elapsed() < TEST_TIMEOUT, "no session");
    }
    assert_eq!(client.call(&vec![1]).unwrap(), [1]);
}

#[test]
fn an_event_loop_learns_of_each_start_of_a_provider() {
    let dir = Dir::new();
    let mut client = client(&dir);
    for round in 0..5 {
        assert_eq!(client.refresh(), ProviderState::Absent, "round {round}");
        client.pollable_arrival().unwrap();
        let mut server = Process::start("server", &dir.run_dir);
        let guard = Instant::now();
        while client.refresh() != ProviderState::Ready {
            assert!(guard.elapsed() < TEST_TIMEOUT, "no client is notified");
            let waited = Os::wait_any(&[client.pollable_arrival().unwrap()], Some(test_deadline()));
            assert!(waited.unwrap(), "nothing comes");
        }
        assert!(client.pollable_arrival().is_err(), "there is a session");
        assert_eq!(client.call(&vec![1]).unwrap(), [1]);
        server.kill();
    }
}
