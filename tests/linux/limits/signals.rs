#![allow(unsafe_code, reason = "a signal handler without SA_RESTART")]
//! Signals during every wait that blocks: each returns `EINTR`, with no visible effect.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bellwire::{
    CallError, Client, Doorbell, Payload, Refreshed, RunDir, Server, ServerConfig, SnapshotCache,
};
use bellwire_core::sync::{AtomicBool, AtomicU64, Ordering};

use crate::support::child::{Parent, Process};
use crate::support::gate::Gate;
use crate::support::services::{Echo, Hold, Numbers, numbers};
use crate::support::test_server::{Dir, client_config, serve_all, server_config};

static TAKEN: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: libc::c_int) {
    TAKEN.fetch_add(1, Ordering::Relaxed);
}

/// Every system call that sleeps returns `EINTR` after this one.
fn handle_without_restart() {
    // SAFETY: all zeroes is a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = count as *const () as usize;
    // SAFETY: the handler does only what is async-signal-safe.
    let done = unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
    assert_eq!(done, 0);
}

/// Sends a signal to each other thread of this process, repeatedly, until stopped. Returns the numbers of the calls
/// in which they slept.
fn bombard(over: &AtomicBool) -> BTreeMap<i64, u64> {
    let (process, own) = (std::process::id() as i32, crate::support::kernel::thread_id());
    let mut calls = BTreeMap::new();
    while !over.load(Ordering::Relaxed) {
        for task in fs::read_dir("/proc/self/task").unwrap() {
            let name = task.unwrap().file_name();
            let thread: i32 = name.to_str().unwrap().parse().unwrap();
            if thread == own {
                continue;
            }
            let call = fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
            if let Some(call) = call.ok().and_then(|call| call.split(' ').next()?.parse().ok()) {
                *calls.entry(call).or_default() += 1;
            }
            // SAFETY: the handler is installed; a thread that ended meanwhile is not found.
            unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1) };
        }
    }
    calls
}

/// A provider and its clients in one process, all of whose threads are bombarded.
pub(super) fn play(mut parent: Parent, has_workers: bool) {
    handle_without_restart();
    let run_dir = RunDir::from_environment();
    let gate = Gate::new(|_| {});
    let config = server_config(ServerConfig::default().workers(usize::from(has_workers)));
    let mut builder = Server::builder_with_config(&run_dir, config);
    let publisher = serve_all(&mut builder, &gate);
    let over = Arc::new(AtomicBool::new(false));
    let bombarded = {
        let over = Arc::clone(&over);
        thread::spawn(move || bombard(&over))
    };
    let server = builder.start().unwrap();
    parent.send_line("ready");
    parent.next_line().unwrap();
    for doorbell in [Doorbell::Futex, Doorbell::Eventfd, Doorbell::Socket] {
        calls(&run_dir, doorbell);
    }
    deadlines(&run_dir, has_workers);
    changes(&run_dir, &publisher);
    gate.open();
    let stats = server.stop();
    assert_eq!(stats.poisoned, 0, "{stats:?}");
    over.store(true, Ordering::Relaxed);
    let slept = bombarded.join().unwrap();
    parent.send_line(&format!("{} {slept:?}", TAKEN.load(Ordering::Relaxed)));
}

/// Connects, and calls in every size that travels in another way.
fn calls(run_dir: &RunDir, doorbell: Doorbell) {
    for _ in 0..10 {
        let mut client = Client::<Echo>::with_config(run_dir, client_config().doorbell(doorbell));
        for len in [1, 5000, 100_000, 1_000_000] {
            let request = vec![7; len];
            assert_eq!(client.call(&request).unwrap(), request);
        }
        client.session().unwrap().trim().unwrap();
    }
    let sealed = Payload::build_from(0, 1 << 20, |bytes| bytes.fill(3)).unwrap();
    assert_eq!(sealed.len(), 1 << 20);
}

/// A signal does not end a wait early, and does not make it longer than its deadline for ever.
fn deadlines(run_dir: &RunDir, has_workers: bool) {
    if !has_workers {
        // The handler would hold the reactor.
        return;
    }
    let mut client = Client::<Hold>::with_config(run_dir, client_config());
    let wait = Duration::from_millis(100);
    let start = std::time::Instant::now();
    let error = client.call_within(&1, wait).unwrap_err();
    assert!(matches!(error, CallError::Deadline { .. }), "{error}");
    assert!(start.elapsed() >= wait, "it ended early");
}

/// Watches while generations are published.
fn changes(run_dir: &RunDir, publisher: &bellwire::Publisher<Numbers>) {
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut cache = SnapshotCache::<Numbers>::with_config(run_dir, client_config());
            let mut last = 0;
            while last < 20 {
                if cache.wait_for_change(None).unwrap() == Refreshed::Changed {
                    let current = cache.current().unwrap();
                    last = u64::from_le_bytes(current.bytes()[..8].try_into().unwrap());
                }
            }
        });
        for first in 1..=20 {
            publisher.publish(&numbers(first, 3)).unwrap();
            thread::yield_now();
        }
    });
}

#[track_caller]
fn interrupts_no_wait(role: &str) {
    let dir = Dir::new();
    let mut bombarded = Process::start(role, &dir.run_dir);
    bombarded.send_line("go");
    let reply = bombarded.try_next_line().expect("a signal ended something");
    println!("{reply}");
    let (taken, slept) = reply.split_once(' ').unwrap();
    assert!(taken.parse::<u64>().unwrap() > 100, "{reply}");
    // Otherwise the test would prove nothing: threads slept in these calls when the signal came.
    for call in [libc::SYS_epoll_pwait2, libc::SYS_futex_waitv] {
        let known = [call, libc::SYS_epoll_pwait, libc::SYS_futex];
        assert!(known.iter().any(|call| slept.contains(&format!("{call}: "))), "{reply}");
    }
}

#[test]
fn signals_during_every_wait_go_unnoticed() {
    interrupts_no_wait("limits signals");
}

#[test]
fn signals_during_every_wait_go_unnoticed_with_workers() {
    interrupts_no_wait("limits signals workers");
}
