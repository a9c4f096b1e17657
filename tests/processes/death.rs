use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use bellwire::{
    CallError, Client, ClientConfig, Executed, Refreshed, ServerConfig, SnapshotCache, State,
};

use crate::support::child::Process;
use crate::support::guard::{PATIENCE, until};
use crate::support::house::{Dir, House, patient};
use crate::support::kernel;
use crate::support::services::{Echo, Hold, Numbers};

#[test]
fn a_provider_killed_in_mid_call_ends_the_parked_call_which_may_have_run() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    let run_dir = dir.run_dir.clone();
    let (tell, told) = channel();
    let caller = thread::spawn(move || {
        let mut client = Client::<Hold>::with_config(&run_dir, patient());
        tell.send(kernel::thread_id()).unwrap();
        let failed = client.call(&7);
        // Its last thread dies before its listening socket is closed.
        until("it is absent", || client.refresh() == State::Absent);
        failed
    });
    assert_eq!(server.hear(), "came 7");
    kernel::wait_until_parked(told.recv().unwrap());
    // Not waited for: a zombie is dead enough.
    server.kill_unwaited();
    let failed = caller.join().unwrap();
    let executed = Executed::Maybe;
    assert!(
        matches!(failed, Err(CallError::PeerGone { executed: e }) if e == executed),
        "{failed:?}"
    );
}

#[test]
fn a_provider_killed_before_it_took_a_request_has_not_run_it() {
    let dir = Dir::new();
    // Without workers a held handler holds the reactor: nothing else is taken.
    let mut server = Process::start("server", &dir.run_dir);
    let mut echo = Client::<Echo>::with_config(&dir.run_dir, patient());
    echo.call(&vec![1]).unwrap();
    let mut hold = Client::<Hold>::with_config(&dir.run_dir, patient());
    let ticket = hold.connect().unwrap().submit(&7).unwrap();
    assert_eq!(server.hear(), "came 7");
    let (tell, told) = channel();
    let caller = thread::spawn(move || {
        tell.send(kernel::thread_id()).unwrap();
        echo.call(&vec![2])
    });
    kernel::wait_until_parked(told.recv().unwrap());
    server.kill();
    let failed = caller.join().unwrap();
    let executed = Executed::No;
    assert!(
        matches!(failed, Err(CallError::PeerGone { executed: e }) if e == executed),
        "{failed:?}"
    );
    let session = hold.session().unwrap();
    assert!(!session.is_alive());
    assert_eq!(session.stats().in_flight, 1, "{ticket:?} never ends by itself");
}

#[test]
fn a_provider_that_comes_back_is_found_by_refresh() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    let backoff = (Duration::from_micros(10), Duration::from_micros(100));
    let config = ClientConfig { backoff, ..patient() };
    let mut client = Client::<Echo>::with_config(&dir.run_dir, config);
    assert_eq!(client.call(&vec![1]).unwrap(), [1]);
    assert_eq!(client.refresh(), State::Ready);
    server.kill();
    assert_eq!(client.refresh(), State::Absent);
    assert!(client.session().is_none());
    // What the crash left behind keeps nobody out.
    let _successor = Process::start("server", &dir.run_dir);
    until("the successor is found", || client.refresh() == State::Ready);
    assert_eq!(client.call(&vec![2]).unwrap(), [2]);
}

#[test]
fn a_watcher_is_told_of_a_death_though_the_endpoint_still_accepts() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    let config = ClientConfig { connect_timeout: PATIENCE * 2, ..patient() };
    let mut cache = SnapshotCache::<Numbers>::with_config(&dir.run_dir, config);
    until("a board", || matches!(cache.refresh().unwrap(), Refreshed::Empty));
    // As while a process dies slowly: whoever connects finds a socket that nobody answers.
    let copies = kernel::copies(server.pid());
    server.kill();
    let begun = Instant::now();
    assert_eq!(cache.wait_for_change(None).unwrap(), Refreshed::Unavailable);
    assert!(begun.elapsed() < PATIENCE, "it waited for an answer of the dead");
    drop(copies);
    assert_eq!(cache.wait_for_change(Some(Duration::ZERO)).unwrap(), Refreshed::Unavailable);
}

#[test]
fn a_client_killed_in_mid_call_frees_its_seat_and_disturbs_nobody() {
    let house = House::with(ServerConfig { workers: 2, ..ServerConfig::default() });
    let mut other = house.client::<Echo>();
    let mut victim = Process::start("client", house.run_dir());
    victim.tell("hold 5");
    assert_eq!(house.arrivals.next(), 5);
    assert_eq!(other.call(&vec![1]).unwrap(), [1]);
    until("two sessions", || house.stats().sessions == 2);
    victim.kill();
    until("the seat is free", || house.stats().sessions == 1);
    for at in 0..100 {
        assert_eq!(other.call(&vec![at]).unwrap(), [at]);
    }
    let stats = house.close();
    assert_eq!((stats.admitted, stats.answered, stats.lost, stats.poisoned), (2, 101, 1, 0));
}
