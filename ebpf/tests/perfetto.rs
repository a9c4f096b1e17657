//! `record`, as Perfetto's own trace processor reads it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::process::Process;
use crate::support::programs::Build;
use crate::support::tracer::{TRACER, Tracer};

/// The directory with Perfetto's built page, which ci/trace fetches.
const PERFETTO: &str = "BELLWIRE_PERFETTO";

/// The rows of a query of a trace.
#[track_caller]
fn rows(perfetto: &Path, trace: &Path, query: &str) -> Vec<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/perfetto.mjs");
    let output = Command::new("node")
        .arg(script)
        .args([perfetto, trace])
        .arg(query)
        .output()
        .expect("node is not installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = String::from_utf8(output.stdout).unwrap();
    rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect()
}

fn perfetto() -> Option<PathBuf> {
    let directory = std::env::var_os(PERFETTO);
    if directory.is_none() {
        eprintln!("skipped: {PERFETTO} names no directory with Perfetto's page");
    }
    directory.map(Into::into)
}

/// What the processor could not read or place.
const FAULTS: &str =
    "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0";

/// The arrows: names and processes of the slices at both ends.
const ARROWS: &str =
    "SELECT source.name AS tail, tail.pid AS tail_pid, sink.name AS head, head.pid AS head_pid,
        sink.ts - source.ts AS later
    FROM flow
    JOIN slice AS source ON source.id = slice_out JOIN slice AS sink ON sink.id = slice_in
    JOIN thread_track AS source_track ON source_track.id = source.track_id
    JOIN thread AS source_thread ON source_thread.utid = source_track.utid
    JOIN process AS tail ON tail.upid = source_thread.upid
    JOIN thread_track AS sink_track ON sink_track.id = sink.track_id
    JOIN thread AS sink_thread ON sink_thread.utid = sink_track.utid
    JOIN process AS head ON head.upid = sink_thread.upid";

/// The slices of the tracks beside threads.
const SCHEDULER: &str = "SELECT pid, thread.name AS thread, slice.name AS state, count() AS times, sum(dur) AS dur
    FROM slice JOIN thread_track ON thread_track.id = track_id JOIN thread USING (utid) JOIN process USING (upid)
    WHERE thread.name GLOB '*(scheduler)' GROUP BY pid, thread.name, slice.name";

/// The calls of a process, and how many stages each has inside.
const CALLS: &str = "SELECT pid, process.name AS process, slice.name AS name, slice.depth AS depth,
        (SELECT group_concat(inside.name) FROM slice AS inside WHERE inside.parent_id = slice.id) AS stages
    FROM slice JOIN process_track ON process_track.id = track_id JOIN process USING (upid)
    WHERE slice.name = 'nap'";

#[track_caller]
fn count(rows: &[Value], fields: &[(&str, Value)]) -> usize {
    rows.iter().filter(|row| fields.iter().all(|(name, value)| row[name] == *value)).count()
}

#[test]
fn perfetto_shows_the_calls_of_two_programs() {
    let Some(perfetto) = perfetto() else { return };
    let files = ["traced-server", "traced-client"].map(|name| Build::Plain.file(name).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_program(&files[0], None, dir.path());
    let mut client = Process::start_program(&files[1], None, dir.path());
    let trace = dir.path().join("trace.json");
    let mut command = Command::new(TRACER);
    let pid = server.pid().to_string();
    command.args(["record", "--json", "--rate", "all", "-p", &pid, "--output"]).arg(&trace);
    let Some(tracer) = Tracer::start_by(command) else { return };
    client.ask("20");
    tracer.tables();

    let faults = rows(&perfetto, &trace, FAULTS);
    assert!(faults.is_empty(), "{faults:#?}");
    let arrows = rows(&perfetto, &trace, ARROWS);
    let (client_pid, server_pid) = (Value::from(client.pid()), Value::from(server.pid()));
    let there = [
        ("tail", "send nap".into()),
        ("tail_pid", client_pid.clone()),
        ("head", "handle nap".into()),
        ("head_pid", server_pid.clone()),
    ];
    let back = [
        ("tail", "handle nap".into()),
        ("tail_pid", server_pid.clone()),
        ("head", "receive nap".into()),
        ("head_pid", client_pid.clone()),
    ];
    assert_eq!((count(&arrows, &there), count(&arrows, &back)), (20, 20), "{arrows:#?}");
    // The handler sleeps for a millisecond before it answers.
    let slept =
        |row: &&Value| row["tail"] == "handle nap" && row["later"].as_u64() >= Some(1_000_000);
    assert_eq!(arrows.iter().filter(slept).count(), 20, "{arrows:#?}");

    let scheduler = rows(&perfetto, &trace, SCHEDULER);
    for (pid, thread) in [(&client_pid, "traced-client"), (&server_pid, "bellwire-reacto")] {
        for state in ["runnable", "running"] {
            let is_it = |row: &&Value| {
                let is_of = row["thread"].as_str().unwrap().starts_with(thread);
                is_of && row["pid"] == *pid && row["state"] == state
            };
            // It slept before most messages, and spun for the others: a reactor that shares its processor often has the next one.
            let times =
                scheduler.iter().find(is_it).map_or(0, |row| row["times"].as_u64().unwrap());
            assert!(times >= 1, "{thread} {state}: {scheduler:#?}");
        }
    }

    let calls = rows(&perfetto, &trace, CALLS);
    assert_eq!(
        count(&calls, &[("pid", client_pid.clone()), ("depth", 0.into())]),
        20,
        "{calls:#?}"
    );
    assert_eq!(count(&calls, &[("pid", server_pid), ("depth", 0.into())]), 20, "{calls:#?}");
    for call in calls.iter().filter(|call| call["pid"] == client_pid) {
        assert!(call["process"].as_str().unwrap().contains("traced-client"), "{call:#}");
        let stages: Vec<&str> = call["stages"].as_str().unwrap().split(',').collect();
        for stage in ["send", "publish", "receive", "reply/send", "reply/publish"] {
            assert!(stages.contains(&stage), "{call:#}");
        }
    }
}

#[test]
fn perfetto_shows_an_arrow_to_each_reader_of_an_event() {
    let Some(perfetto) = perfetto() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut publisher = Process::start("publisher", dir.path());
    let mut reader = Process::start("subscriber", dir.path());
    let trace = dir.path().join("trace.json");
    let args = ["record", "-s", "ticks", "--output", trace.to_str().unwrap()];
    let Some(tracer) = Tracer::start(&args) else { return };
    std::thread::scope(|scope| {
        scope.spawn(|| reader.ask("30"));
        publisher.ask("events 30 10000");
    });
    tracer.tables();

    let faults = rows(&perfetto, &trace, FAULTS);
    assert!(faults.is_empty(), "{faults:#?}");
    let arrows = rows(&perfetto, &trace, ARROWS);
    let arrow = [
        ("tail", "publish ticks".into()),
        ("tail_pid", publisher.pid().into()),
        ("head", "take ticks".into()),
        ("head_pid", reader.pid().into()),
    ];
    // The last may have been taken before its publisher reported it.
    assert!((29..=30).contains(&count(&arrows, &arrow)), "{arrows:#?}");
}
