//! Each stage, with a deliberate delay in it.

use std::process::Command;

use serde_json::Value;

use crate::support::process::{Process, pair, program};
use crate::support::tracer::{Tracer, number, stage};

const CALLS: u64 = 30;
const MILLISECOND: u64 = 1_000_000;

/// Traces calls between these two processes, and returns the only table that is printed.
#[track_caller]
fn traced(server: &mut Process, client: &mut Process, command: &str) -> Option<Value> {
    // The first sample of a thread has no wakeup.
    client.ask("calls 3 0");
    let tracer = Tracer::start_at(server, &["breakdown"])?;
    client.ask("calls 3 0");
    client.ask(command);
    let mut tables = tracer.tables();
    assert_eq!(tables.len(), 1, "{tables:?}");
    let table = tables.remove(0);
    assert_eq!(table["service"], "nap");
    assert_eq!(table["server"], server.pid());
    assert_eq!(table["client"], client.pid());
    Some(table)
}

#[test]
fn a_slow_handler_shows_in_receive() {
    let (_dir, mut server, mut client) = pair();
    let command = format!("calls {CALLS} 5000");
    let Some(table) = traced(&mut server, &mut client, &command) else { return };
    let [receive, call] = ["receive", "call"].map(|name| stage(&table, name));
    assert_eq!(number(call, "count"), CALLS + 3);
    assert!(number(receive, "p50_ns") > 4 * MILLISECOND, "{table:#}");
    // The handler slept for 5 ms in each call, by the same clock.
    assert!(number(receive, "total_ns") >= CALLS * 5 * MILLISECOND, "{table:#}");
}

#[test]
fn the_stages_add_up_to_the_call() {
    let (_dir, mut server, mut client) = pair();
    let command = format!("calls {CALLS} 200");
    let Some(table) = traced(&mut server, &mut client, &command) else { return };
    let total = |name| number(stage(&table, name), "total_ns");
    let parts: u64 =
        ["send", "publish", "wake", "on-cpu", "receive", "reply"].map(total).iter().sum();
    assert_eq!(parts, total("call"), "{table:#}");
    let back = ["reply-send", "reply-publish", "reply-wake", "reply-on-cpu"].map(total);
    assert_eq!(back.iter().sum::<u64>(), total("reply"), "{table:#}");
}

#[test]
fn a_full_lane_shows_in_send() {
    let (_dir, mut server, mut client) = pair();
    let Some(table) = traced(&mut server, &mut client, "full 10 3000") else { return };
    // There is no room until the server has slept for at least one request.
    let send = stage(&table, "send");
    assert!(number(send, "max_ns") > 2 * MILLISECOND, "{table:#}");
}

#[test]
fn a_busy_processor_shows_in_wake() {
    let dir = tempfile::tempdir().unwrap();
    // All on one CPU, and the server with the lowest priority.
    let mut pinned = Command::new("taskset");
    pinned.args(["--cpu-list", "0", "nice", "--adjustment=19"]).arg(program());
    let mut server = Process::start_by(pinned, "server", dir.path());
    let mut client = Process::start("client", dir.path());
    let _hogs = [(); 2].map(|()| {
        let mut pinned = Command::new("taskset");
        pinned.args(["--cpu-list", "0"]).arg(program());
        Process::start_by(pinned, "hog", dir.path())
    });
    // Some calls may get the CPU immediately nevertheless.
    let Some(table) = traced(&mut server, &mut client, "calls 60 1000") else { return };
    let wake = stage(&table, "wake");
    assert!(number(wake, "count") > 0, "{table:#}");
    assert!(number(wake, "max_ns") > MILLISECOND, "{table:#}");
}
