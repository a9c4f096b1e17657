//! `snoop --all-slower-than`: every slow call, at any rate.

use std::process::Command;

use serde_json::Value;

use crate::support::process::{Process, pair, program};
use crate::support::tracer::{TRACER, Tracer};

/// The tracer for calls slower than this, at the default sampling.
fn trace_slow(time: &str, more: &[&str]) -> Option<Tracer> {
    let mut command = Command::new(TRACER);
    command.args(["snoop", "--json", "--all-slower-than", time, "--exe"]).arg(program()).args(more);
    Tracer::start_by(command)
}

fn of(calls: &[Value], pid: u32) -> Vec<&Value> {
    calls.iter().filter(|call| call["client"] == pid).collect()
}

#[test]
fn every_slow_call_among_many_is_found() {
    let (dir, server, mut client) = pair();
    client.ask("calls 1 0");
    let flame = dir.path().join("flame.svg");
    let Some(tracer) = trace_slow("10ms", &["--flame", flame.to_str().unwrap()]) else { return };
    for _ in 0..10 {
        client.ask("calls 500 0");
        // The server waits for long before each.
        client.ask("call-after-idle 4 25000");
    }
    let (calls, status, messages) = tracer.finish_with_messages();
    assert!(status.success(), "{messages}");
    let ours = of(&calls, client.pid());
    // The handler slept in 40 of 5040; the machine may have delayed others.
    let slept = |call: &&&Value| {
        let waits = call["waits"].as_array().unwrap();
        waits.iter().any(|wait| {
            wait["end"] == "server"
                && wait["why"] == "sleeping"
                && wait["off_cpu_ns"].as_u64().unwrap() >= 20_000_000
        })
    };
    assert!(ours.len() >= 40, "{}: {messages}", ours.len());
    // One that waited ten times as long for a processor does not show it.
    assert!(ours.iter().filter(slept).count() >= 38, "{ours:#?}");
    let mut unwound = 0;
    for call in ours.iter().filter(slept) {
        assert!(call["waited_ns"].as_u64().unwrap() >= 20_000_000, "{call:#}");
        assert_eq!(call["server"], server.pid());
        assert!(call["cgroup"].as_str().unwrap().starts_with('/'), "{call:#}");
        let waits = call["waits"].as_array().unwrap();
        // What the kernel did is in every stack; the program's functions are where it keeps frame pointers.
        let is_in = |wait: &Value, what: &str| {
            let stack = wait["stack"].as_array().unwrap();
            stack.iter().any(|name| name.as_str().unwrap().contains(what))
        };
        let naps = |wait: &&Value| wait["end"] == "server" && is_in(wait, "hrtimer_nanosleep");
        // The switch back may not have been seen: docs/tracing.md.
        if let Some(nap) = waits.iter().find(naps) {
            unwound += 1;
            assert!(!is_in(nap, "futex") && !is_in(nap, "epoll"), "{call:#}");
        }
        let client_waits = |wait: &&Value| wait["end"] == "client" && wait["why"] == "sleeping";
        let Some(wait) = waits.iter().find(client_waits) else { continue };
        assert!(wait["waker"].as_str().unwrap().starts_with("bellwire-reacto/"), "{call:#}");
        // As above.
        let is_unwound = is_in(wait, "entry_SYSCALL_64");
        assert!(!is_unwound || is_in(wait, "futex"), "{call:#}");
        assert!(!is_in(wait, "nanosleep"), "{call:#}");
    }
    assert!(unwound >= 30, "{ours:#?}");
    let flame = std::fs::read_to_string(flame).unwrap();
    assert!(flame.contains("<svg") && flame.contains("bellwire-reacto"), "{flame}");
}

#[test]
fn a_fast_call_is_not_found() {
    let (_dir, _server, mut client) = pair();
    client.ask("calls 1 0");
    let Some(tracer) = trace_slow("10s", &[]) else { return };
    client.ask("calls 200 1000");
    let calls = tracer.tables();
    assert!(of(&calls, client.pid()).is_empty(), "{calls:#?}");
}

#[test]
fn a_thread_that_takes_no_message_is_not_reported() {
    let (_dir, _server, mut client) = pair();
    client.ask("calls 1 0");
    // More than there are processors: they lose theirs to each other.
    let hogs = 1 + std::thread::available_parallelism().unwrap().get();
    client.ask(&format!("hogs {hogs}"));
    let Some(tracer) = trace_slow("1ms", &[]) else { return };
    client.ask("calls 20 20000");
    let lines = tracer.tables();
    assert!(of(&lines, client.pid()).len() >= 20, "{lines:#?}");
    assert!(lines.iter().all(|line| line["preempted"] != "hog"), "{lines:#?}");
}

#[test]
fn every_slow_call_among_hot_ones_is_found() {
    const ROUNDS: u64 = 20;
    const FAST: u64 = 5_000;
    const SLOW: u64 = 20;
    let dir = tempfile::tempdir().unwrap();
    let _server = Process::start("clocked-server hot", dir.path());
    let mut client = Process::start("clocked-client hot", dir.path());
    client.ask("20 64 0");
    let Some(tracer) = trace_slow("250us", &[]) else { return };
    for _ in 0..ROUNDS {
        client.ask(&format!("{FAST} 64 0"));
        // The handler is busy for so long.
        client.ask(&format!("{SLOW} 64 400"));
    }
    let (calls, status, messages) = tracer.finish_with_messages();
    assert!(status.success(), "{messages}");
    let found: Vec<u64> =
        of(&calls, client.pid()).iter().map(|call| call["sequence"].as_u64().unwrap()).collect();
    let delayed = (0..ROUNDS).flat_map(|round| {
        let first = 20 + round * (FAST + SLOW) + FAST + 1;
        first..first + SLOW
    });
    let missing: Vec<u64> = delayed.filter(|sequence| !found.contains(sequence)).collect();
    // A client that lost its processor before it read the clock did not notice; that is reported.
    let lost =
        calls.iter().filter(|line| line["pid"] == client.pid() && line["preempted"].is_string());
    assert!(missing.len() <= lost.count(), "{missing:?}: {messages}");
    assert!(missing.len() < 5, "{missing:?}");
}
