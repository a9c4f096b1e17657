use std::fs;

use serde_json::Value;

use crate::support::{Place, chmod};

/// What has to be tried: what nothing works without, and what is optional.
type ExpectedChecks = (&'static [&'static str], &'static [&'static str]);

const LINUX: ExpectedChecks = (
    &[
        "memfd_create",
        "F_SEAL_SHRINK",
        "F_SEAL_GROW",
        "F_SEAL_WRITE",
        "F_SEAL_FUTURE_WRITE",
        "F_SEAL_SEAL",
        "futex across two maps",
        "eventfd and epoll, edge",
        "SCM_RIGHTS over SEQPACKET",
        "SO_PEERCRED",
    ],
    &[
        "futex_waitv",
        "SO_PASSRIGHTS",
        "SO_PEERPIDFD",
        "io_uring",
        "io_uring futex wait",
        "eBPF tracer",
    ],
);

const WINDOWS: ExpectedChecks = (
    &[
        "unnamed section",
        "a handle only reads",
        "no handle gets more rights",
        "snapshot that nobody writes",
        "event",
        "thread pool waits",
        "named pipe, message mode",
        "DuplicateHandle through it",
        "identity by token",
        "end of a process",
    ],
    &["rights stay as they are", "first instance of a pipe", "committed memory"],
);

fn probe<'a>(report: &'a Value, name: &str) -> &'a Value {
    let probes = report["probes"].as_array().unwrap();
    probes.iter().find(|probe| probe["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn all_that_is_required_works_where_the_tests_run() {
    let place = Place::new();
    let ended = place.run(&["doctor", "--json"]);
    let report = ended.json();
    assert_eq!((ended.status, &report["ok"]), (Some(0), &true.into()), "{report:#}");
    let system = report["system"].as_str().unwrap();
    let (required, optional) = if system.starts_with("Linux") { LINUX } else { WINDOWS };
    for name in required.iter().chain(&["a session and a call", "a snapshot"]) {
        let probe = probe(&report, name);
        assert_eq!((&probe["required"], &probe["state"]), (&true.into(), &"ok".into()), "{probe}");
    }
    for name in optional {
        assert_eq!(probe(&report, name)["required"], false);
    }
}

#[test]
fn it_changes_nothing() {
    let place = Place::new();
    place.run(&["doctor"]);
    assert!(!place.run_dir().exists());
    assert!(crate::support::is_empty(&place.temp()));
}

#[test]
fn a_run_dir_that_others_may_write_is_reported_with_advice() {
    let Some(place) = Place::with_shell() else { return };
    fs::create_dir(place.run_dir()).unwrap();
    chmod("0777", &place.run_dir());
    let ended = place.run(&["doctor", "--json"]);
    let report = ended.json();
    let probe = probe(&report, "directory");
    assert_eq!((ended.status, &probe["state"]), (Some(0), &"limited".into()));
    assert!(probe["advice"].as_str().unwrap().contains("chmod go-w"), "{probe}");
}

#[test]
fn few_descriptors_are_reported_with_the_number_of_sessions() {
    let Some(place) = Place::with_shell() else { return };
    let bellwire = env!("CARGO_BIN_EXE_bellwire");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -S -n 64; exec \"$0\" doctor", bellwire]);
    let ended = crate::support::Ended::of(command.env("TMPDIR", place.temp()));
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let line = ended.stdout.lines().find(|line| line.contains("open files")).unwrap();
    assert!(line.contains("limited") && line.contains("about 10 sessions"), "{line}");
}
