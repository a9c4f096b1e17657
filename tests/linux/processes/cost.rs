//! What a session costs.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use bellwire::Client;

use crate::support::child::Process;
use crate::support::guard::{scaled, until};
use crate::support::kernel;
use crate::support::roles::parse_stats;
use crate::support::services::Echo;
use crate::support::test_server::{Dir, client_config};

/// A server and a client in processes of their own, with one session open.
struct Pair {
    _dir: Dir,
    server: Process,
    client: Process,
}

impl Pair {
    fn open() -> Self {
        let dir = Dir::new();
        let server = Process::start("server", &dir.run_dir);
        let mut client = Process::start("client", &dir.run_dir);
        assert_eq!(client.ask("open"), "opened");
        Self { _dir: dir, server, client }
    }

    fn pids(&self) -> [u32; 2] {
        [self.server.pid(), self.client.pid()]
    }
}

fn mapped(memory: &BTreeMap<u64, (String, u64)>) -> u64 {
    memory.values().map(|(_, size)| size).sum()
}

#[test]
fn an_idle_session_wakes_neither_end() {
    let pair = Pair::open();
    for pid in pair.pids() {
        until("both ends sleep", || kernel::is_asleep(pid));
    }
    kernel::assert_no_wake_ups(|| pair.pids().map(kernel::sleeps).iter().sum());
}

#[test]
fn a_session_costs_five_descriptors_and_48_kib_and_gives_all_of_it_back() {
    let mut pair = Pair::open();
    let fds = pair.pids().map(kernel::fds);
    let memory = pair.pids().map(kernel::memory);
    assert_eq!(pair.client.ask("open"), "opened");
    for (at, pid) in pair.pids().into_iter().enumerate() {
        // Another thread closes what was refused or sent. Two of the server's descriptors detect released memory.
        until("no descriptor is on its way", || kernel::fds(pid) <= fds[at] + 5);
        let now = kernel::memory(pid);
        let new: BTreeMap<_, _> =
            now.iter().filter(|(inode, _)| !memory[at].contains_key(inode)).collect();
        assert_eq!(new.len(), 4, "two pages and two lanes: {new:?}");
        let bytes = mapped(&now) - mapped(&memory[at]);
        assert!((1..=48 << 10).contains(&bytes), "{bytes} bytes: {new:?}");
    }
    assert_eq!(pair.client.ask("close"), "closed");
    for (at, pid) in pair.pids().into_iter().enumerate() {
        until("every descriptor is given back", || kernel::fds(pid) == fds[at]);
        until("every map is given back", || kernel::memory(pid) == memory[at]);
    }
}

#[test]
fn a_session_is_mapped_by_its_two_ends_alone_and_by_no_descriptor() {
    let pair = Pair::open();
    let [server, client] = pair.pids().map(kernel::memory);
    let of_sessions = |memory: &BTreeMap<u64, (String, u64)>| {
        memory
            .iter()
            .filter(|(_, (name, _))| name.starts_with("page-") || name.starts_with("lane-"))
            .map(|(inode, _)| *inode)
            .collect::<Vec<_>>()
    };
    assert_eq!(of_sessions(&server), of_sessions(&client));
    assert_eq!(of_sessions(&client).len(), 4);
    let links = fs::read_dir(format!("/proc/{}/fd", pair.client.pid())).unwrap();
    for link in links {
        let target = fs::read_link(link.unwrap().path()).unwrap();
        assert!(!target.to_string_lossy().contains("memfd:bellwire"), "{}", target.display());
    }
}

#[test]
fn twenty_thousand_hot_calls_ring_less_than_once_in_a_thousand() {
    /// Stretches of a thousand undisturbed calls.
    const STRETCHES: usize = 20;
    /// Other tests keep every processor busy for a while, on a usual machine.
    const LIMIT: Duration = Duration::from_secs(180);
    let cpus = kernel::cpus();
    let [first, second, ..] = cpus[..] else {
        println!("skipped: two ends that spin need two processors, and there is {}", cpus.len());
        return;
    };
    let dir = Dir::new();
    let mut server = Process::start(&format!("pinned-server {second}"), &dir.run_dir);
    kernel::pin(&[first]);
    let mut client = Client::<Echo>::with_config(&dir.run_dir, client_config());
    let session = client.connect().unwrap();
    let (mut good, mut seen) = (0, Vec::new());
    // Others use the machine too, and a preempted end has to be rung: such thousands do not count.
    let end = Instant::now() + scaled(LIMIT);
    while good < STRETCHES && Instant::now() < end {
        let before = (session.stats().rings, session.stats().parks);
        for call in 0..1000_u64 {
            let request = call.to_le_bytes().to_vec();
            assert_eq!(session.call(&request).unwrap(), request);
        }
        let slept = (session.stats().rings - before.0, session.stats().parks - before.1);
        if slept == (0, 0) { good += 1 } else { seen.push(slept) }
    }
    seen.truncate(1000);
    assert_eq!(good, STRETCHES, "rings and parks of the client in thousands of calls: {seen:?}");
    // The server rings a client that parks, or that was about to: where others use the machine, some in a hundred.
    let (parks, rings) = (session.stats().parks, parse_stats(&server.ask("stats")).rings);
    let most = parks + parks / 10 + STRETCHES as u64;
    assert!(rings < most, "the server rang {rings} times for {parks} parks");
}
