//! `bellwire bench`, with real processes and no judgement of how long anything takes.

use std::path::PathBuf;

use crate::support::{Place, Running};

#[test]
fn both_backends_and_a_plain_server_are_measured_under_each_load() {
    let place = Place::new();
    let args = ["bench", "reactor", "--sessions", "1,5", "--rounds", "2", "--window", "20ms"];
    let ended = place.exits(0, &[&args[..], &["--json"]].concat());
    let report = ended.json();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4, "{report:#}");
    for row in rows {
        let servers = row["servers"].as_array().unwrap();
        let names: Vec<_> = servers.iter().map(|server| &server["waits_with"]).collect();
        let left_out = report["notes"].to_string().contains("io_uring is left out");
        let expected: &[_] =
            if left_out { &["epoll", "SEQPACKET"] } else { &["epoll", "io_uring", "SEQPACKET"] };
        assert_eq!(names, expected, "{report:#}");
        for server in servers {
            for figure in ["calls_per_second", "cpu_ns_per_call", "p50_ns", "p99_ns", "rss_bytes"] {
                let spread = &server[figure];
                let [median, min, max] =
                    ["median", "min", "max"].map(|of| spread[of].as_f64().unwrap());
                assert!(0.0 < min && min <= median && median <= max, "{figure}: {server:#}");
            }
            assert!(server["p50_ns"]["median"].as_f64() <= server["p99_ns"]["median"].as_f64());
        }
        assert_eq!(row["ratios"].as_array().unwrap().len(), if left_out { 1 } else { 3 });
    }
    let table = place.exits(0, &args);
    for part in ["CPU/CALL", "SWITCHES/CALL", "1000/s each", "CPU of epoll / SEQPACKET"] {
        assert!(table.stdout.contains(part), "{part}: {}", table.stdout);
    }
    assert_eq!(table.stderr, "", "progress is for people only");
}

/// What benchmarks have made in this place, and not removed.
fn directories(place: &Place) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place.temp()).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn goes_on(running: &Running) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", running.pid())).unwrap();
    !stat.contains(") Z ")
}

/// A benchmark that goes on for long, whose first server listens, and its directory.
fn long(place: &Place) -> (Running, PathBuf) {
    let before = directories(place);
    let args = ["bench", "reactor", "--sessions", "1", "--rounds", "1000", "--window", "1s"];
    let running = place.start(&args);
    loop {
        assert!(goes_on(&running), "it ended before its server listened");
        for dir in directories(place) {
            if !before.contains(&dir) && dir.join("epoll").join("bench-mirror.sock").exists() {
                return (running, dir);
            }
        }
        std::thread::yield_now();
    }
}

#[test]
fn what_a_killed_benchmark_leaves_behind_is_removed_by_the_next_and_nothing_of_a_living_one() {
    let place = Place::new();
    let (_living, its) = long(&place);
    let (mut killed, left) = long(&place);
    killed.signal(crate::support::Signal::Kill);
    assert!(!killed.end().success());
    assert!(left.exists(), "nobody could remove it");
    let short = ["bench", "reactor", "--sessions", "1", "--rounds", "1", "--window", "1ms"];
    place.exits(0, &short);
    assert_eq!(directories(&place), [its], "the killed one's is gone, and so is its own");
}

#[test]
fn a_load_that_the_machine_cannot_make_is_left_out_and_it_says_why() {
    let place = Place::new();
    let args = ["bench", "reactor", "--sessions", "1,50", "--rounds", "1", "--window", "5ms"];
    // Five million calls a second at fifty sessions, a hundred thousand at one.
    let args = [&args[..], &["--rate", "100000"]].concat();
    let report = place.run(&[&args[..], &["--json"]].concat()).json();
    assert_eq!(report["rows"].as_array().unwrap().len(), 3, "{report:#}");
    let table = place.run(&args);
    for said in [report["notes"].to_string(), table.stdout] {
        assert!(said.contains("50 sessions, 100000/s each, is left out: 5"), "{said}");
        assert!(!said.contains("1 sessions, 100000/s each, is left out"), "{said}");
        assert!(said.contains("calls/s are wanted in all"), "{said}");
    }
}
