use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Ended, bench, listed};

/// Several times as long as all scenarios take, unoptimized, on a busy machine.
const HANGS: Duration = Duration::from_secs(600);

#[test]
fn every_contender_is_measured_in_every_scenario_or_gives_a_reason() {
    let all = listed("scenarios");
    // So many processes of each contender, or sessions, unoptimized, take minutes: two contenders have to do.
    let large = ["reactor-10000", "unpinned-c64"];
    let rest: Vec<_> =
        all.iter().map(String::as_str).filter(|name| !large.contains(name)).collect();
    let args = [&rest[..], &["--quick", "--json", "-"]].concat();
    let mut ended = bench_within(HANGS, &args).unwrap();
    // One of its events was lost once, on a busy machine: that is no fault of this harness.
    if ended.stderr.starts_with("error: iceoryx2-event") {
        ended = bench_within(HANGS, &args).unwrap();
    }
    let scenarios = measured(&ended);
    let names: Vec<_> =
        scenarios.iter().map(|scenario| scenario["name"].as_str().unwrap()).collect();
    assert_eq!(names, rest);
    for large in large {
        let args = [large, "--against", "seqpacket", "--quick", "--json", "-"];
        let ended = bench_within(HANGS, &args).unwrap();
        assert_eq!(measured(&ended)[0]["rows"].as_array().unwrap().len(), 2, "{ended:?}");
    }
    for scenario in &scenarios {
        for contender in listed("contenders") {
            measured_or_refused(scenario, &contender);
        }
        assert_eq!(scenario["missing"].as_object().unwrap().len(), 0, "{scenario:#}");
        let floor = scenario["floor"].as_str().unwrap();
        let spins = floor.starts_with("two processes spin, and copy");
        let least = if floor.contains("futex") { 500.0 } else { 10.0 };
        let others = scenario["other_floors"].as_object().unwrap();
        assert_eq!(others.len(), if spins || least > 10.0 { 2 } else { 0 }, "{scenario:#}");
        assert!(others.values().all(|ns| ns["median"].as_f64().unwrap() > least), "{others:#?}");
    }
}

#[test]
fn a_run_that_hangs_is_killed_and_its_contender_named() {
    // A sample without end is as good as a hang. The other contender is stopped meanwhile.
    let args = ["ping-pong-8", "--against", "seqpacket", "--quick", "--duration", "1m"];
    let hung = bench_within(Duration::from_secs(10), &args).unwrap_err();
    assert!(hung.contains("bellwire (") && !hung.contains("seqpacket"), "{hung}");
}

/// As [`bench`], but kills a run that takes longer than `limit`: its processes end with it. The error names the contenders
/// that ran then.
fn bench_within(limit: Duration, args: &[&str]) -> Result<Ended, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwire-bench"));
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = child.id();
    let (sender, ended) = mpsc::channel::<()>();
    let watch = thread::spawn(move || {
        let late = ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
        late.then(|| {
            let running = running_contenders(pid);
            kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
            running
        })
    });
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    drop(sender);
    if let Some(running) = watch.join().unwrap() {
        return Err(format!("killed after {limit:?}, in which these did not end: {running:?}"));
    }
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    Ok(Ended { status: status.code(), stdout, stderr })
}

/// The contenders of a run, each with its load, that are not stopped: all others are.
fn running_contenders(run: u32) -> BTreeSet<String> {
    let mut running = BTreeSet::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let read = |file| fs::read_to_string(process.path().join(file)).unwrap_or_default();
        let (command, stat) = (read("cmdline"), read("stat"));
        let words: Vec<_> = command.split('\0').collect();
        let [_, "--bellwire-peer", "client" | "server", parent, _, contender, _, load, ..] =
            words[..]
        else {
            continue;
        };
        let is_stopped = stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"));
        if parent == run.to_string() && !is_stopped {
            running.insert(format!("{contender} ({load})"));
        }
    }
    running
}

fn measured(ended: &Ended) -> Vec<Value> {
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert_eq!(ended.stderr, "", "progress is for people only");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    report["scenarios"].as_array().unwrap().clone()
}

fn measured_or_refused(scenario: &Value, contender: &str) {
    let rows = scenario["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["contender"] == contender);
    let refused = scenario["refused"].get(contender);
    let Some(row) = row else {
        assert!(refused.is_some_and(|why| why.as_str().unwrap().len() > 10), "{scenario:#}");
        assert_ne!(contender, "bellwire", "{scenario:#}");
        return;
    };
    assert!(refused.is_none(), "{scenario:#}");
    let ns = &row["ns"];
    assert!(ns["min"].as_f64().unwrap() > 0.0, "{row:#}");
    assert!(
        ns["min"].as_f64() <= ns["median"].as_f64() && ns["median"].as_f64() <= ns["max"].as_f64()
    );
    let group = scenario["group"].as_str().unwrap();
    assert!(row["to_floor"]["median"].as_f64().unwrap() > 0.0, "{row:#}");
    assert!(scenario["floor"].as_str().unwrap().len() > 10, "{scenario:#}");
    if ["ping-pong", "one-way", "connect", "parked", "same-cpu", "rate"].contains(&group) {
        let latency = &row["latency"];
        let at = |name: &str| latency[name].as_u64().unwrap();
        assert!(0 < at("p50") && at("p50") <= at("p99") && at("p99") <= at("max"), "{row:#}");
    }
    if contender == "bellwire" && group == "same-cpu" {
        assert!(
            row["parks"].as_f64().unwrap() > 0.0,
            "both ends of one processor have to sleep: {row:#}"
        );
    }
}

#[test]
fn a_size_and_a_rate_take_the_place_of_the_usual_ones() {
    let ended = bench(&["ping-pong", "stream", "--quick", "--size", "300", "--json", "-"]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let names: Vec<_> =
        report["scenarios"].as_array().unwrap().iter().map(|scenario| &scenario["name"]).collect();
    assert_eq!(names, ["ping-pong-300", "stream-300"]);

    let ended = bench(&[
        "ping-pong-64",
        "--quick",
        "--rate",
        "2000",
        "--against",
        "bellwire",
        "--json",
        "-",
    ]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["scenarios"][0]["rate"], 2_000, "{report:#}");
    assert_eq!(report["contenders"].as_object().unwrap().len(), 1, "{report:#}");
}

#[test]
fn every_scenario_is_defined_in_the_documentation() {
    let page = include_str!("../../../docs/benchmarks.md");
    let mut groups: Vec<String> = Vec::new();
    for name in listed("scenarios") {
        // The table names groups, and what tells their members apart.
        let found = page.lines().any(|line| {
            line.strip_prefix("| `").and_then(|line| line.split('`').next()).is_some_and(|group| {
                name.strip_prefix(group)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            })
        });
        if !found {
            groups.push(name);
        }
    }
    assert!(groups.is_empty(), "docs/benchmarks.md does not define {groups:?}");
}
