use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{Place, Signal, has_proc, is_empty};

/// That it passes when all is well is shown by `ci/soak`, and that it finds every other planted defect.
#[test]
fn a_planted_defect_fails_the_soak_and_it_says_what_to_do() {
    if !has_proc() {
        return;
    }
    let place = Place::new();
    let args = ["soak", "--seconds", "10", "--sessions", "2", "--seed", "1", "--json"];
    let ended = place.run(&[&args[..], &["--plant", "wrong-answer"]].concat());
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let report = ended.json();
    assert_eq!((&report["ok"], &report["checks"]["answers_right"]), (&false.into(), &false.into()));
    assert!(report["failed"]["answers_right"]["next"].as_str().unwrap().contains("same seed"));
    for check in ["calls_accounted", "counters_reconcile", "ended_in_order"] {
        assert_eq!(report["checks"][check], true, "{check}: {report:#}");
    }
    assert!(report["faults"]["providers_killed"].as_u64() > Some(0), "{report:#}");
    assert!(is_empty(&place.temp()), "the run dir is removed");
}

#[test]
fn a_signal_ends_a_soak_early_and_cleanly() {
    if !has_proc() {
        return;
    }
    let place = Place::new();
    let mut soak = place.start(&["soak", "--seconds", "1000", "--sessions", "2"]);
    soak.stdout_until("Soak of 1000 s");
    assert_eq!(soak.end_by(Signal::Int).code(), Some(130));
    let (stdout, stderr) = soak.rest();
    assert!(stdout.contains("Interrupted") && !stdout.contains('✗'), "{stdout}");
    assert_eq!(stderr, "");
    assert!(is_empty(&place.temp()), "the run dir is removed");
}

#[test]
fn a_killed_soak_takes_its_processes_along() {
    if !has_proc() {
        return;
    }
    let place = Place::new();
    let mut soak = place.start(&["soak", "--seconds", "1000", "--sessions", "2"]);
    soak.stdout_until("Soak of 1000 s");
    let task = format!("/proc/{0}/task/{0}/children", soak.pid());
    let limit = Instant::now() + Duration::from_secs(60);
    let children: Vec<String> = loop {
        let children = fs::read_to_string(&task).unwrap();
        let children: Vec<_> = children.split_whitespace().map(str::to_owned).collect();
        if children.len() == 5 {
            break children;
        }
        assert!(Instant::now() < limit, "{children:?}");
        std::thread::yield_now();
    };
    soak.end_by(Signal::Kill);
    for child in children {
        while is_running(&child) {
            assert!(Instant::now() < limit, "one outlives it");
            std::thread::yield_now();
        }
    }
}

/// Whether there is such a process, and it is no zombie that nobody has waited for yet.
fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn where_no_process_can_be_stopped_the_soak_says_so() {
    if has_proc() {
        return eprintln!("skipped: processes can be stopped here");
    }
    let ended = Place::new().run(&["soak"]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("Linux"), "{ended:?}");
}
