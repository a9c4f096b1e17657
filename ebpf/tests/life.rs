//! What is left behind when either side goes.

use std::fs;

use crate::support::process::Process;
use crate::support::tracer::Tracer;

#[test]
fn a_tracer_that_is_killed_leaves_its_target_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start("server", dir.path());
    let mut client = Process::start("client", dir.path());
    let pid = server.pid().to_string();
    let Some(tracer) = Tracer::start(&["breakdown", "-p", &pid]) else { return };
    client.ask("calls 10 0");
    tracer.kill();
    client.ask("calls 10 0");
    // The next one finds nothing in its way.
    let Some(tracer) = Tracer::start(&["breakdown", "-p", &pid]) else { return };
    client.ask("calls 10 0");
    let (tables, status) = tracer.finish();
    assert!(status.success());
    assert_eq!(tables.first().map(|table| &table["calls"]), Some(&10.into()), "{tables:#?}");
}

#[test]
fn a_target_that_is_killed_leaves_the_tracer_working() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start("server", dir.path());
    let mut clients = [Process::start("client", dir.path()), Process::start("client", dir.path())];
    let pid = server.pid().to_string();
    let args = ["breakdown", "--by-session", "-p", &pid];
    let Some(tracer) = Tracer::start(&args) else { return };
    clients[0].ask("calls 5 0");
    clients[0].kill();
    clients[1].ask("calls 6 0");
    let (tables, status) = tracer.finish();
    assert!(status.success());
    let mut calls: Vec<_> = tables.iter().map(|table| table["calls"].as_u64().unwrap()).collect();
    calls.sort_unstable();
    assert_eq!(calls, [5, 6]);
}

#[test]
fn sessions_that_come_and_go_cost_the_tracer_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start("server", dir.path());
    let mut client = Process::start("client", dir.path());
    let Some(tracer) = Tracer::start(&["breakdown", "-p", &server.pid().to_string()]) else {
        return;
    };
    client.ask("churn 10 0");
    let before = held(tracer.pid());
    // More than there are places for.
    client.ask("churn 600 0");
    assert_eq!(held(tracer.pid()), before);
    let (tables, status) = tracer.finish();
    assert!(status.success());
    let calls: u64 = tables.iter().map(|table| table["calls"].as_u64().unwrap()).sum();
    assert_eq!(calls, 610, "{tables:#?}");
}

/// Descriptors and maps of a process.
fn held(pid: u32) -> (usize, usize) {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().lines().count();
    (descriptors, maps)
}
