use std::fs;
use std::os::fd::AsFd;
use std::time::Duration;

use bellwire_memfd::{clock, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use crate::support::{Place, is_empty};

/// That it passes when all is well is shown by `ci/soak`, and that it finds every other planted defect.
#[test]
fn a_planted_defect_fails_the_soak_and_it_says_what_to_do() {
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
    let place = Place::new();
    let mut soak = place.start(&["soak", "--seconds", "1000", "--sessions", "2"]);
    soak.stdout_until("Soak of 1000 s");
    assert_eq!(soak.end_by(Signal::INT).code(), Some(130));
    let (stdout, stderr) = soak.rest();
    assert!(stdout.contains("Interrupted") && !stdout.contains('✗'), "{stdout}");
    assert_eq!(stderr, "");
    assert!(is_empty(&place.temp()), "the run dir is removed");
}

#[test]
fn a_killed_soak_takes_its_processes_along() {
    let place = Place::new();
    let mut soak = place.start(&["soak", "--seconds", "1000", "--sessions", "2"]);
    soak.stdout_until("Soak of 1000 s");
    let task = format!("/proc/{0}/task/{0}/children", soak.pid());
    let limit = clock::now().after(Duration::from_secs(60));
    let children = loop {
        let children = fs::read_to_string(&task).unwrap();
        let children: Vec<i32> =
            children.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        if children.len() == 5 {
            break children;
        }
        assert!(clock::now() < limit, "{children:?}");
        std::thread::yield_now();
    };
    let pidfds = children.iter().filter_map(|pid| {
        // One may have been killed by the soak meanwhile.
        pidfd_open(Pid::from_raw(*pid).unwrap(), PidfdFlags::empty()).ok()
    });
    let pidfds: Vec<_> = pidfds.collect();
    soak.end_by(Signal::KILL);
    for pidfd in pidfds {
        assert!(
            poll::wait_readable(&[pidfd.as_fd()], Some(limit)).unwrap().any(),
            "one outlives it"
        );
    }
}
