//! What remains after the tracer or the traced process exits.

use std::fs;
use std::process::Command;

use crate::support::process::{Process, copy_of_program, pair};
use crate::support::semaphore::{self, Semaphore};
use crate::support::tracer::Tracer;
use crate::support::wait_until;

#[test]
fn a_tracer_that_is_killed_leaves_its_target_as_it_was() {
    let (_dir, server, mut client) = pair();
    let Some(tracer) = Tracer::start_at(&server, &["breakdown"]) else { return };
    client.ask("calls 10 0");
    tracer.kill();
    client.ask("calls 10 0");
    // The next tracer works as well.
    let Some(tracer) = Tracer::start_at(&server, &["breakdown"]) else { return };
    client.ask("calls 10 0");
    let tables = tracer.tables();
    assert_eq!(tables.first().map(|table| &table["calls"]), Some(&10.into()), "{tables:#?}");
}

#[test]
fn a_target_that_is_killed_leaves_the_tracer_working() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start("server", dir.path());
    let mut clients = [Process::start("client", dir.path()), Process::start("client", dir.path())];
    let Some(tracer) = Tracer::start_at(&server, &["breakdown", "--by-session"]) else { return };
    clients[0].ask("calls 5 0");
    clients[0].kill();
    clients[1].ask("calls 6 0");
    let tables = tracer.tables();
    let mut calls: Vec<_> = tables.iter().map(|table| table["calls"].as_u64().unwrap()).collect();
    calls.sort_unstable();
    assert_eq!(calls, [5, 6]);
}

#[test]
fn opening_and_closing_sessions_costs_the_tracer_no_resources() {
    let (_dir, server, mut client) = pair();
    let Some(tracer) = Tracer::start_at(&server, &["breakdown"]) else { return };
    client.ask("churn 10 0");
    let before = descriptors_and_maps(tracer.pid());
    // As many as one per second for an hour.
    client.ask("churn 3600 0");
    assert_eq!(descriptors_and_maps(tracer.pid()), before);
    let tables = tracer.tables();
    let calls: u64 = tables.iter().map(|table| table["calls"].as_u64().unwrap()).sum();
    assert_eq!(calls, 3610, "{tables:#?}");
}

/// The number of descriptors and of maps of a process.
fn descriptors_and_maps(pid: u32) -> (usize, usize) {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().lines().count();
    (descriptors, maps)
}

#[test]
fn a_new_session_reuses_the_slot_of_a_closed_one() {
    let (_dir, server, mut client) = pair();
    let Some(tracer) = Tracer::start_at(&server, &["breakdown", "--by-session"]) else { return };
    // More than the tracer has slots for.
    client.ask("churn 600 0");
    client.ask("calls 7 0");
    let tables = tracer.tables();
    assert!(tables.iter().all(|table| table["service"] == "nap"), "{tables:#?}");
    let last = tables.iter().max_by_key(|table| table["session"].as_u64()).unwrap();
    assert_eq!(last["calls"], 7, "{last:#}");
}

/// However the tracer exits, it leaves no program, link, map or event in `uprobe_events`, and no count in a semaphore.
fn leaves_nothing(stop: impl FnOnce(Tracer)) {
    let dir = tempfile::tempdir().unwrap();
    let file = copy_of_program(dir.path());
    let mut server = Process::start_by(Command::new(&file), "server", dir.path());
    let mut client = Process::start_by(Command::new(&file), "client", dir.path());
    let words = [server.pid(), client.pid()].map(|pid| semaphore::of(pid, &file, "message"));
    assert_eq!(words.each_ref().map(Semaphore::count), [0, 0]);
    let args = ["record", "--output", "/dev/null"];
    let Some(tracer) = Tracer::start_on(&file, &args) else { return };
    client.ask("calls 10 0");
    // Four probes share a semaphore, and the tracer attaches to all.
    assert_eq!(words.each_ref().map(Semaphore::count), [4, 4]);
    let held = kernel_objects(tracer.pid());
    for kind in ["prog_id", "link_id", "map_id"] {
        assert!(held.iter().any(|(of, _)| of == kind), "{kind}: {held:?}");
    }
    stop(tracer);
    // The kernel releases the objects after a grace period.
    wait_until(|| held.iter().all(|(kind, id)| !exists(kind, *id)));
    wait_until(|| words.each_ref().map(Semaphore::count) == [0, 0]);
    let events = fs::read_to_string("/sys/kernel/tracing/uprobe_events").unwrap_or_default();
    assert!(!events.contains(file.to_str().unwrap()), "{events}");
    client.ask("calls 10 0");
    server.ask("admitted");
}

#[test]
fn a_tracer_that_is_killed_or_interrupted_leaves_nothing_in_the_kernel() {
    leaves_nothing(Tracer::kill);
    leaves_nothing(|tracer| drop(tracer.tables()));
}

/// The BPF objects of which a process has descriptors: kinds and ids.
fn kernel_objects(pid: u32) -> Vec<(String, u32)> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    let mut held = Vec::new();
    for info in descriptors.filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok()) {
        let fields = info.lines().filter_map(|line| line.split_once(':'));
        held.extend(
            fields
                .filter(|(name, _)| ["prog_id", "link_id", "map_id"].contains(name))
                .map(|(name, id)| (name.to_owned(), id.trim().parse().unwrap())),
        );
    }
    held
}

fn exists(kind: &str, id: u32) -> bool {
    use libbpf_rs::query::{LinkInfoIter, MapInfoIter, ProgInfoIter};
    match kind {
        "prog_id" => ProgInfoIter::default().any(|info| info.id == id),
        "link_id" => LinkInfoIter::default().any(|info| info.id == id),
        _ => MapInfoIter::default().any(|info| info.id == id),
    }
}
