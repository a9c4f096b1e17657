//! A client's share beside another that demands more.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use bellwire::{Client, ServerConfig};

use crate::support::child::Process;
use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::services::Hold;
use crate::support::test_server::{Dir, TestServer, client_config, provide_with};

#[test]
fn workers_take_turns_by_client_however_many_sessions_one_has() {
    const SESSIONS: u64 = 10;
    const EACH: u64 = 5;
    const OWN: u64 = 1000;
    let fixture = TestServer::with(ServerConfig::default().workers(1));
    let mut own = fixture.client::<Hold>();
    let session = own.session().unwrap();
    session.submit(&OWN).unwrap();
    assert_eq!(fixture.arrivals.next(), OWN);
    let mut greedy = Process::start("client", fixture.run_dir());
    for _ in 0..SESSIONS {
        greedy.send_line(&format!("ask {EACH}"));
        assert_eq!(greedy.next_line(), "asked");
    }
    until("all of them are queued", || fixture.stats().accepted == 1 + SESSIONS * EACH);
    for request in 1..=EACH {
        session.submit(&(OWN + request)).unwrap();
    }
    until("so are the others", || fixture.stats().accepted == 1 + (1 + SESSIONS) * EACH);
    fixture.release();
    let order: Vec<u64> = (0..(1 + SESSIONS) * EACH).map(|_| fixture.arrivals.next()).collect();
    let last = order.iter().position(|&request| request == OWN + EACH).unwrap();
    assert!(last <= 2 * EACH as usize, "{order:?}");
}

#[test]
fn handlers_on_the_reactor_thread_run_for_clients_in_turns_however_many_sessions_one_has() {
    const SESSIONS: u64 = 20;
    const EACH: u64 = 5;
    const OWN: u64 = 1000;
    let dir = Dir::new();
    let (sender, handled) = channel();
    let (release, released) = channel();
    let released = Mutex::new(released);
    let server = provide_with::<Hold>(&dir.run_dir, ServerConfig::default(), move |_, who| {
        sender.send(who).unwrap();
        if who == OWN {
            released.lock().unwrap().recv_timeout(TEST_TIMEOUT).unwrap();
        }
        let until = Instant::now() + Duration::from_micros(200);
        while Instant::now() < until {}
        Ok(who)
    });
    let mut greedy = Process::start("client", &dir.run_dir);
    for _ in 0..SESSIONS {
        greedy.send_line("ask 0");
        assert_eq!(greedy.next_line(), "asked");
    }
    let mut own = Client::<Hold>::with_config(&dir.run_dir, client_config());
    let session = own.connect().unwrap();
    session.submit(&OWN).unwrap();
    assert_eq!(handled.recv_timeout(TEST_TIMEOUT), Ok(OWN));
    // All of these are there before the next handler runs.
    greedy.send_line(&format!("ask-all {EACH}"));
    assert_eq!(greedy.next_line(), "asked");
    for request in 1..=EACH {
        session.submit(&(OWN + request)).unwrap();
    }
    release.send(()).unwrap();
    let all = (1 + SESSIONS) * EACH;
    let order: Vec<u64> = (0..all).map(|_| handled.recv_timeout(TEST_TIMEOUT).unwrap()).collect();
    let last = order.iter().position(|&request| request == OWN + EACH).unwrap();
    // One of each, and what a turn and a share begin once more.
    assert!(last <= 4 * EACH as usize, "{order:?}");
    drop((own, greedy, server));
}
