//! Snapshots, events and one-way requests: each reader's table, with delays that were injected.

use std::process::Command;

use serde_json::Value;

use crate::support::deliveries::CHECK;
use crate::support::process::{Process, copy_of_program};
use crate::support::tracer::{TRACER, Tracer, number, recorded, stage};

const EVENTS: u64 = 30;

/// Has the publisher publish by `command` while each reader takes everything up to number `last`.
fn exchange(publisher: &mut Process, readers: &mut [Process], command: &str, last: u64) {
    std::thread::scope(|scope| {
        for reader in readers {
            scope.spawn(move || reader.ask(&last.to_string()));
        }
        publisher.ask(command);
    });
}

/// The table of a reader, or of a pattern.
#[track_caller]
fn table(tables: &[Value], pattern: &str, client: u32) -> Value {
    let is_it = |table: &&Value| table["pattern"] == pattern && table["client"] == client;
    tables.iter().find(is_it).unwrap_or_else(|| panic!("{pattern} {client}: {tables:#?}")).clone()
}

#[track_caller]
fn assert_adds_up(table: &Value) {
    let stages = table["stages"].as_array().unwrap();
    let is_part = |stage: &&Value| stage["stage"] != "call";
    let parts: u64 = stages.iter().filter(is_part).map(|stage| number(stage, "total_ns")).sum();
    assert_eq!(parts, number(stage(table, "call"), "total_ns"), "{table:#}");
}

#[test]
fn each_subscriber_has_the_stages_of_its_events() {
    let dir = tempfile::tempdir().unwrap();
    let mut publisher = Process::start("publisher", dir.path());
    let mut readers = [(); 2].map(|()| Process::start("subscriber", dir.path()));
    let Some(tracer) = Tracer::start(&["breakdown", "-s", "ticks"]) else { return };
    exchange(&mut publisher, &mut readers, &format!("events {EVENTS} 10000"), EVENTS);
    let tables = tracer.tables();
    for reader in &readers {
        let table = table(&tables, "delivery", reader.pid());
        assert_eq!(table["server"], publisher.pid());
        // The last of a reader may have been taken before its publisher reported it.
        assert!((EVENTS - 1..=EVENTS).contains(&table["calls"].as_u64().unwrap()), "{table:#}");
        assert!(number(stage(&table, "copy"), "count") >= EVENTS - 1, "{table:#}");
        assert_eq!(number(stage(&table, "map"), "count"), 0, "{table:#}");
        let check = u64::try_from(CHECK.as_nanos()).unwrap();
        assert!(number(stage(&table, "validate"), "total_ns") >= (EVENTS - 1) * check, "{table:#}");
        // A reader sleeps before an event, unless the machine is busy with other work.
        assert!(number(stage(&table, "wake"), "count") >= EVENTS / 6, "{table:#}");
        assert_adds_up(&table);
    }
}

#[test]
fn a_snapshot_is_copied_or_mapped_and_then_validated() {
    let dir = tempfile::tempdir().unwrap();
    let mut publisher = Process::start("publisher", dir.path());
    let mut readers = [Process::start("cache", dir.path())];
    let Some(tracer) = Tracer::start(&["breakdown", "-s", "pages"]) else { return };
    exchange(&mut publisher, &mut readers, "snapshots 20 10000", 20);
    exchange(&mut publisher, &mut readers, "snapshots 20 400000", 40);
    let tables = tracer.tables();
    let table = table(&tables, "delivery", readers[0].pid());
    // It may skip some; the first is in the memory that comes with the ring.
    for how in ["copy", "map"] {
        assert!(number(stage(&table, how), "count") >= 10, "{how}: {table:#}");
    }
    let validate = stage(&table, "validate");
    let check = u64::try_from(CHECK.as_nanos()).unwrap();
    assert!(number(validate, "total_ns") >= 20 * check, "{table:#}");
    // Mapping is a message to the publisher and back.
    assert!(number(stage(&table, "map"), "p50_ns") > number(stage(&table, "copy"), "p50_ns"));
    assert_adds_up(&table);
}

#[test]
fn a_stream_of_events_is_sampled_and_weighted() {
    let dir = tempfile::tempdir().unwrap();
    // Tracers of other tests want all of them.
    let copy = copy_of_program(dir.path());
    let start = |role| Process::start_by(Command::new(&copy), role, dir.path());
    let mut publisher = start("publisher");
    let mut readers = [start("subscriber")];
    let mut command = Command::new(TRACER);
    command.args(["breakdown", "-s", "ticks", "--json", "--exe"]).arg(&copy);
    let Some(tracer) = Tracer::start_by(command) else { return };
    const MANY: u64 = 300_000;
    exchange(&mut publisher, &mut readers, &format!("many {MANY}"), MANY);
    let tables = tracer.tables();
    let table = table(&tables, "delivery", readers[0].pid());
    let (all, samples) = (table["calls"].as_u64().unwrap(), table["samples"].as_u64().unwrap());
    assert!((MANY / 2..=MANY).contains(&all), "{table:#}");
    assert!(samples < MANY / 20, "{table:#}");
}

fn posts(server: &str) {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(server, dir.path());
    let mut client = Process::start("client", dir.path());
    let Some(tracer) = Tracer::start_at(&server, &["breakdown"]) else { return };
    client.ask("calls 5 0");
    client.ask("posts 30 1000");
    let tables = tracer.tables();
    let table = table(&tables, "post", client.pid());
    assert_eq!(table["server"], server.pid());
    // Workers end in another order, which may count one twice.
    assert!((30..=33).contains(&table["calls"].as_u64().unwrap()), "{table:#}");
    // Each slept for a millisecond.
    let handler = stage(&table, "handler");
    assert!(number(handler, "p50_ns") >= 1_000_000, "{table:#}");
    // A return to the CPU that the tracer is not told of leaves a handler without its parts.
    let sleeping = stage(&table, "handler-sleeping");
    assert!(number(sleeping, "count") >= 20, "{table:#}");
    assert!(number(sleeping, "total_ns") >= number(sleeping, "count") * 1_000_000, "{table:#}");
    // They were written at once, and waited for those before: for room, in the lane, or for a worker.
    assert!(number(stage(&table, "call"), "max_ns") >= 2_000_000, "{table:#}");
    let calls = tables.iter().find(|table| table["pattern"] == "call").unwrap();
    assert_eq!(calls["calls"], 8);
}

#[test]
fn posts_have_a_table_of_their_own_with_workers_or_without() {
    posts("server");
    posts("server workers");
}

#[test]
fn arrows_lead_from_a_publisher_to_its_readers() {
    let dir = tempfile::tempdir().unwrap();
    let mut publisher = Process::start("publisher", dir.path());
    let mut readers = [(); 2].map(|()| Process::start("subscriber", dir.path()));
    let command = format!("events {EVENTS} 10000");
    let calls = || exchange(&mut publisher, &mut readers, &command, EVENTS);
    let Some((events, summary)) = recorded(&["-s", "ticks"], calls) else { return };
    assert!(summary["deliveries"].as_u64().unwrap() >= 2 * (EVENTS - 1), "{summary:?}");
    let of = |pid: u32, ph: &str, name: &str| {
        let is_it =
            move |event: &&Value| event["pid"] == pid && event["ph"] == ph && event["name"] == name;
        events.iter().filter(is_it).collect::<Vec<_>>()
    };
    // Published once, however many readers.
    let published = of(publisher.pid(), "X", "publish ticks").len() as u64;
    assert!((EVENTS - 1..=EVENTS).contains(&published), "{published}");
    for reader in &readers {
        let taken = of(reader.pid(), "X", "take ticks");
        assert!(taken.len() as u64 >= EVENTS - 1);
        for arrow in of(reader.pid(), "f", "call") {
            let begins = of(publisher.pid(), "s", "call");
            let begin = begins.iter().find(|begin| begin["id"] == arrow["id"]).unwrap();
            assert!(begin["ts"].as_f64() <= arrow["ts"].as_f64(), "{begin} {arrow}");
            assert!(taken.iter().any(|part| part["ts"] == arrow["ts"]), "{arrow}");
        }
    }
}
