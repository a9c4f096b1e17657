//! Providers that close during the handshake: they leave, and another one comes, or they listen still.

use std::thread;
use std::time::Duration;

use bellwire::{Backoff, Client};

use crate::processes::stopped::Stopped;
use crate::support::child::Process;
use crate::support::guard::TEST_TIMEOUT;
use crate::support::parked::park;
use crate::support::rogue::RogueListener;
use crate::support::services::Echo;
use crate::support::test_server::{Dir, client_config};

/// Nothing appears in the run dir when the same listener accepts again.
#[test]
fn a_wait_for_a_provider_tries_again_after_one_that_closed_and_listens_still() {
    let dir = Dir::new();
    let listener = RogueListener::bind(&dir.run_dir, "echo");
    let config = client_config().backoff(
        Backoff::default().initial(Duration::from_millis(1)).max(Duration::from_millis(5)),
    );
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut client = Client::<Echo>::with_config(&dir.run_dir, config);
            client.wait_available(TEST_TIMEOUT).map(|_| ()).unwrap();
        });
        for _ in 0..3 {
            drop(listener.accept());
            drop(listener.accept_without_hello());
        }
        let _session = listener.open(7);
        waiting.join().unwrap();
    });
}

/// Its successor may listen already, as at a socket of systemd.
#[test]
fn a_client_dials_once_more_at_once_when_a_provider_closes_during_the_handshake() {
    let dir = Dir::new();
    let listener = RogueListener::bind(&dir.run_dir, "echo");
    let connect =
        || Client::<Echo>::with_config(&dir.run_dir, client_config()).connect().map(|_| ());
    thread::scope(|scope| {
        let connecting = scope.spawn(connect);
        drop(listener.accept());
        let _session = listener.open(7);
        connecting.join().unwrap().unwrap();
        let connecting = scope.spawn(connect);
        drop(listener.accept());
        drop(listener.accept());
        connecting.join().unwrap().unwrap_err();
        assert!(!listener.has_caller(), "it pauses before a third time");
    });
}

#[test]
fn a_wait_for_a_provider_outlives_one_that_is_killed_during_the_handshake() {
    let dir = Dir::new();
    let mut dying = Process::start("server", &dir.run_dir);
    // It is killed as it is.
    std::mem::forget(Stopped::new(&dying));
    let run_dir = dir.run_dir.clone();
    // It waits for a WELCOME.
    let waiting = park(move || {
        let mut client = Client::<Echo>::with_config(&run_dir, client_config());
        client.wait_available(TEST_TIMEOUT).unwrap().call(&vec![7]).unwrap()
    });
    dying.kill();
    let _server = Process::start("server", &dir.run_dir);
    assert_eq!(waiting.join().unwrap(), [7]);
}

/// The same, of a task.
#[cfg(feature = "tokio")]
#[test]
fn a_task_that_waits_for_a_provider_tries_again_after_one_that_closed() {
    let dir = Dir::new();
    let listener = RogueListener::bind(&dir.run_dir, "echo");
    let config = client_config().backoff(
        Backoff::default().initial(Duration::from_millis(1)).max(Duration::from_millis(5)),
    );
    let client = bellwire::AsyncClient::<Echo>::with_config(&dir.run_dir, config);
    thread::scope(|scope| {
        let honest = scope.spawn(|| {
            for _ in 0..3 {
                drop(listener.accept());
            }
            listener.open(7)
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { client.wait_available(TEST_TIMEOUT).await.map(|_| ()).unwrap() });
        honest.join().unwrap();
    });
}
