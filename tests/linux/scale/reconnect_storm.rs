//! A thousand clients whose provider is killed and comes back.

use std::time::Duration;

use bellwire::{Client, ClientConfig, ProviderState, RunDir};
use bellwire_memfd::clock;
use rustix::thread::{ClockId, Timespec, clock_nanosleep_relative};

use super::many_clients;
use crate::support::child::{Parent, Process};
use crate::support::guard::{scaled, until};
use crate::support::services::Echo;
use crate::support::test_server::{Dir, client_config};

const PROCESSES: usize = 4;
const EACH: usize = 250;
/// Far longer than it takes: the test asserts that all come back, and none is forgotten. On an idle machine with two
/// processors it is less than 2 s.
const SOON: Duration = Duration::from_secs(30);

/// A client, and how far it has come since the provider was there last.
struct StormClient {
    client: Client<Echo>,
    is_lost: bool,
    is_served: bool,
}

impl StormClient {
    fn new(run_dir: &RunDir) -> Self {
        let backoff = ClientConfig::default().backoff;
        let config = client_config().backoff(backoff);
        let mut client = Client::with_config(run_dir, config);
        assert_eq!(client.call(&vec![1]).unwrap(), [1]);
        Self { client, is_lost: false, is_served: false }
    }

    /// One look, as an embedding program has it once in a while.
    fn look(&mut self) {
        let state = self.client.refresh();
        self.is_lost |= state != ProviderState::Ready;
        if self.is_lost && state == ProviderState::Ready {
            let answer = self.client.session().unwrap().call(&vec![2]);
            self.is_served = answer.is_ok_and(|answer| answer == [2]);
        }
    }
}

/// The role of one program with many clients, which all try to reach their provider every other millisecond.
pub(super) fn play(mut parent: Parent, clients: usize) {
    let run_dir = RunDir::from_environment();
    let mut clients: Vec<StormClient> = (0..clients).map(|_| StormClient::new(&run_dir)).collect();
    parent.send_line("ready");
    assert_eq!(parent.next_line().unwrap(), "watch");
    parent.send_line("watching");
    while clients.iter().any(|client| !client.is_served) {
        clients.iter_mut().filter(|client| !client.is_served).for_each(StormClient::look);
        let pause = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let _ = clock_nanosleep_relative(ClockId::Monotonic, &pause);
    }
    let backlog_rejections: u64 =
        clients.iter().map(|client| client.client.backlog_rejections()).sum();
    parent.send_line(&format!("{} {backlog_rejections}", clock::now().as_nanos()));
    // The sessions stay open until all were counted.
    parent.next_line();
}

#[test]
fn a_thousand_clients_of_a_provider_that_is_killed_are_all_served_again() {
    let dir = Dir::new();
    let provider = || Process::start("scale server 20000 0", &dir.run_dir);
    let mut first = provider();
    let role = format!("scale reconnect-storm {EACH}");
    let mut processes: Vec<Process> =
        (0..PROCESSES).map(|_| Process::start(&role, &dir.run_dir)).collect();
    assert_eq!(many_clients::sessions(&mut first).0, PROCESSES * EACH);
    processes.iter_mut().for_each(|process| assert_eq!(process.ask("watch"), "watching"));

    let killed = clock::now();
    first.kill();
    let mut second = provider();
    let back = clock::now();
    let mut backlog_rejections = 0;
    let mut last = 0;
    for process in &mut processes {
        let reply = process.next_line();
        let (at, times) = reply.split_once(' ').unwrap();
        last = last.max(at.parse().unwrap());
        backlog_rejections += times.parse::<u64>().unwrap();
    }
    let served = bellwire_core::Instant::from_nanos(last);
    let (after_kill, after_start) = (served.since(killed), served.since(back));
    until("all are counted", || many_clients::sessions(&mut second).0 == PROCESSES * EACH);
    println!(
        "all served {after_kill:?} after the kill, {after_start:?} after the provider was back; {backlog_rejections} found the queue full"
    );
    assert_eq!(backlog_rejections, 0, "the accept queue overflowed");
    assert!(after_start < scaled(SOON), "{after_start:?}");
}
