use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Place, Signal, is_empty};

const CHECKS: [&str; 19] = [
    "answers_verified",
    "snapshot_received",
    "generations_grow",
    "snapshots_revalidate",
    "events_in_order",
    "lookups_verified",
    "absent_name_not_found",
    "cgroups_found",
    "cgroups_gone",
    "burst_snapshots",
    "burst_exact",
    "burst_ran_once",
    "burst_lanes_grew",
    "burst_lanes_trimmed",
    "burst_memory_returned",
    "ended_cleanly",
    "no_reconnects",
    "no_errors",
    "counters_reconcile",
];

/// The cgroups that the demo of this process has, where the demo says that it makes them.
fn left(place: &Value, pid: u32) -> Vec<PathBuf> {
    let Some(dir) = place.as_str() else { return Vec::new() };
    let ours = format!("bellwire-demo-{pid}-");
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_string_lossy().contains(&ours)).collect()
}

#[test]
fn every_check_holds_and_nothing_is_left_behind() {
    let place = Place::new();
    let ended = place.run(&["demo", "--seconds", "1", "--json"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    let report = ended.json();
    assert_eq!(report["ok"], true);
    let can = !report["cgroups"]["place"].is_null();
    for check in CHECKS {
        let expected = if check.starts_with("cgroups") && !can { Value::Null } else { true.into() };
        assert_eq!(report["checks"][check], expected, "{check}");
    }
    assert_eq!(report["checks"].as_object().unwrap().len(), CHECKS.len());
    assert_eq!(report["seconds"].as_array().unwrap().len(), 1);
    let calls = &report["consumer"]["calls"];
    assert!(calls["made"].as_u64() > Some(0) && calls["made"] == calls["verified"], "{calls}");
    if can {
        assert!(report["cgroups"]["made"].as_u64() > Some(0));
        assert!(report["consumer"]["refreshes"]["changed"].as_u64() > Some(2), "{report:#}");
    }
    assert!(is_empty(&place.temp()), "the run dir is removed");
}

#[test]
fn without_cgroups_to_make_the_burst_grows_lanes_and_shrinks_them_on_the_sessions_that_were_open() {
    let place = Place::new();
    let ended = place.run(&["demo", "--seconds", "1", "--json", "--cgroups", "0"]);
    let report = ended.json();
    assert_eq!((ended.status, &report["ok"]), (Some(0), &true.into()), "{report:#}");
    // The real ones are served.
    assert_eq!(report["checks"]["cgroups_found"], Value::Null);
    assert_eq!(report["cgroups"]["made"], 0);
    assert!(report["consumer"]["lookups"]["made"].as_u64() > Some(0));
    let (burst, provider) = (&report["consumer"]["burst"], &report["provider"]);
    let shown = burst["snapshots"].as_array().unwrap().iter().map(|shown| &shown["cgroups"]);
    assert!(shown.eq([16, 100_000, 16].map(Value::from).iter()), "{burst:#}");
    let sent = &burst["sent"];
    assert_eq!((&sent["longest"], &sent["attached"]), (&(16 << 20).into(), &2.into()));
    for arrived in [&burst["answers"], &provider["burst"]] {
        assert_eq!(arrived["messages"], sent["messages"]);
        for fault in ["repeated", "reordered", "damaged"] {
            assert_eq!(arrived[fault], 0, "{arrived}");
        }
    }
    let shared = &burst["shared"];
    assert!(shared["most"]["bytes"].as_u64() > shared["before"]["bytes"].as_u64());
    assert_eq!(provider["sessions"], 6);
    check_lanes(&report);
}

/// What is told of each lane agrees with itself.
fn check_lanes(report: &Value) {
    let changes = report["lane_changes"].as_array().unwrap();
    let sessions = report["consumer"]["sessions"].as_array().unwrap();
    let names = sessions.iter().map(|session| session["session"].as_str().unwrap());
    assert!(names.eq(["calls", "burst", "burst 2", "workload"]));
    for span in report["consumer"]["burst"]["lanes"].as_array().unwrap() {
        let of = |change: &&Value| ["session", "lane"].iter().all(|key| change[*key] == span[*key]);
        let of_lane: Vec<_> = changes.iter().filter(of).collect();
        let mut size = &span["first"];
        for change in &of_lane {
            assert_eq!(&change["from"], size, "{changes:#?}");
            size = &change["to"];
        }
        assert_eq!((size, size), (&span["last"], &span["first"]), "{changes:#?}");
        assert_eq!(of_lane.last().unwrap()["why"], "trimmed");
        let session = sessions.iter().find(|session| session["session"] == span["session"]);
        let lane = &session.unwrap()[span["lane"].as_str().unwrap()];
        assert_eq!((&lane["size"], &lane["attaches"]), (&span["last"], &1.into()), "{lane}");
        let resizes = lane["grows"].as_u64().unwrap() + lane["shrinks"].as_u64().unwrap();
        assert_eq!(lane["epoch"].as_u64(), Some(1 + resizes), "{lane}");
        assert!(lane["high_water"].as_u64() > span["first"].as_u64(), "{lane}");
        assert!(lane["bytes"].as_u64() > lane["high_water"].as_u64(), "{lane}");
    }
}

#[test]
fn it_prints_each_second_and_each_check_in_plain_lines() {
    let place = Place::new();
    let ended = place.exits(0, &["demo", "--seconds", "1"]);
    let second = ended.stdout.lines().find(|line| line.starts_with("time ")).unwrap();
    for figure in ["generation", "cgroups", "look-ups/s", "RTT p99", "rings/call", "errors 0"] {
        assert!(second.contains(figure), "{second}");
    }
    for change in ["↑ burst requests 16 KiB → ", "↓ burst answers ", "snapshot of 100 000 cgroups"]
    {
        assert!(ended.stdout.contains(change), "{}", ended.stdout);
    }
    for lane in ["LANE ", "burst requests", "burst answers", "workload answers"] {
        assert!(ended.stdout.lines().any(|line| line.starts_with(lane)), "{}", ended.stdout);
    }
    let skipped = ended.stdout.matches("  – ").count();
    assert_eq!(ended.stdout.matches("  ✓ ").count() + skipped, CHECKS.len(), "{}", ended.stdout);
    assert!(!ended.stdout.contains('\x1b') && !ended.stdout.contains('✗'));
}

#[test]
fn a_signal_ends_it_early_and_cleanly() {
    for (signal, status) in [(Signal::Int, 130), (Signal::Term, 143)] {
        let Some(place) = Place::with_shell() else { return };
        let mut demo = place.start(&["demo", "--seconds", "1000"]);
        let pid = demo.pid();
        demo.stdout_until("time 1 s");
        assert_eq!(demo.end_by(signal).code(), Some(status));
        let (stdout, stderr) = demo.rest();
        assert!(stdout.contains("Interrupted") && stdout.contains("the provider process ended"));
        assert_eq!(stderr, "");
        nothing_is_left(&place, pid);
    }
}

#[test]
fn a_signal_in_the_burst_ends_it_before_the_rest_of_the_burst() {
    for (signal, status) in [(Signal::Int, 130), (Signal::Term, 143)] {
        let Some(place) = Place::with_shell() else { return };
        let mut demo = place.start(&["demo", "--seconds", "1"]);
        let pid = demo.pid();
        demo.stdout_until("snapshot of 16 cgroups");
        assert_eq!(demo.end_by(signal).code(), Some(status));
        demo.all_ended();
        let (stdout, _) = demo.rest();
        assert!(stdout.contains("Interrupted") && stdout.contains("it ended in the burst"));
        assert!(!stdout.contains("snapshot of ") && !stdout.contains('✗'), "{stdout}");
        nothing_is_left(&place, pid);
    }
}

/// An ended demo has removed its run dir, and its cgroups wherever it may have made them.
fn nothing_is_left(place: &Place, pid: u32) {
    assert!(is_empty(&place.temp()), "the run dir is removed");
    let hierarchies = ["", "unified", "cpuacct", "cpu", "memory", "pids", "systemd"];
    for name in hierarchies.map(|name| Path::new("/sys/fs/cgroup").join(name)) {
        if name.is_dir() {
            assert_eq!(left(&name.to_string_lossy().into(), pid).len(), 0);
        }
    }
}

#[test]
fn a_killed_demo_takes_its_processes_along_and_the_next_one_cleans_up() {
    let place = Place::new();
    let mut demo = place.start(&["demo", "--seconds", "1000"]);
    let pid = demo.pid();
    demo.stdout_until("time 1 s");
    demo.end_by(Signal::Kill);
    demo.all_ended();
    let report = place.run(&["demo", "--seconds", "1", "--json"]).json();
    assert_eq!(report["ok"], true, "{report:#}");
    assert_eq!(left(&report["cgroups"]["place"], pid).len(), 0);
}
