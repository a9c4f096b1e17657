//! Memory for large messages is released.

use std::fs;

use crate::support::blobs::Storage;
use crate::support::guard::until;
use crate::support::kernel;
use crate::support::pair::{Pair, command};

const BURST: usize = 64 << 20;

/// The shared memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shared {
    /// Its part of the pages that it has touched, in bytes.
    touched: u64,
    /// What it has mapped of this library's memfds, in bytes.
    mapped: u64,
    /// How many memfds those are.
    maps: usize,
    /// How many memfds it holds descriptors of.
    held: usize,
    /// How many descriptors it holds.
    fds: usize,
}

impl Shared {
    fn of(pid: u32) -> Self {
        let memory = kernel::memory(pid);
        Self {
            touched: touched(pid),
            mapped: memory.values().map(|(_, size)| size).sum(),
            maps: memory.len(),
            held: kernel::memfds(pid, "bellwire").len(),
            fds: kernel::fds(pid),
        }
    }
}

fn touched(pid: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss_Shmem:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

/// The same traffic each time: it touches all of both lanes.
fn touch(pair: &mut Pair) {
    for _ in 0..8 {
        pair.call(8000, 8000, Storage::Private);
    }
}

/// How the burst travels.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// A lane of this size.
    Lane(u64),
    Attach,
    Parts,
}

/// After a burst of large messages both ways, and a trim, both processes have what they had before.
#[track_caller]
fn returns_all_memory(settings: &str, how: Storage, by: By) {
    let mut pair = Pair::open(settings, settings);
    touch(&mut pair);
    let pids = [pair.server.pid(), pair.client.pid()];
    let before = pids.map(Shared::of);
    // A page is shared by both.
    assert!(before.iter().all(|shared| shared.touched >= 16 << 10), "{before:?}");
    let way = if by == By::Parts { "call" } else { "submit" };
    for (request, answer) in [(BURST, 100), (100, BURST), (BURST, BURST)].repeat(3) {
        assert_eq!(pair.client.ask(&command(way, request, answer, how)), "ok");
    }
    let lanes = pair.lanes();
    let burst = pids.map(Shared::of);
    match by {
        By::Lane(size) => {
            assert!(lanes.iter().all(|lane| lane.size == size), "{lanes:?}");
            assert!(burst.iter().all(|shared| shared.mapped > 2 * size), "{burst:?}");
        }
        By::Attach => assert!(lanes.iter().all(|lane| lane.attaches >= 6), "{lanes:?}"),
        By::Parts => assert!(lanes.iter().all(|lane| lane.size < BURST as u64), "{lanes:?}"),
    }
    pair.trim();
    touch(&mut pair);
    for (pid, before) in pids.into_iter().zip(before) {
        // Another thread closes received descriptors.
        until("every descriptor is given back", || Shared::of(pid).fds == before.fds);
        let after = Shared::of(pid);
        let numbers = |shared: Shared| (shared.mapped, shared.maps, shared.held);
        assert_eq!(numbers(after), numbers(before));
        let off = after.touched.abs_diff(before.touched);
        assert!(off <= before.touched / 10, "{before:?} {burst:?} {after:?}");
    }
    pair.end();
}

#[test]
fn payloads_in_memfds_of_their_own_leave_nothing_behind() {
    returns_all_memory("stream=0", Storage::Sealed, By::Attach);
}

#[test]
fn messages_that_are_attached_as_configured_leave_nothing_behind() {
    returns_all_memory("stream=0 attach=1000000", Storage::Private, By::Attach);
}

#[test]
fn messages_in_parts_leave_nothing_behind() {
    returns_all_memory("", Storage::Private, By::Parts);
}

#[test]
fn lanes_of_256_mib_leave_nothing_behind() {
    let settings = "stream=0 max_lane=268435456 max_shared=1073741824";
    returns_all_memory(settings, Storage::Private, By::Lane(256 << 20));
}
