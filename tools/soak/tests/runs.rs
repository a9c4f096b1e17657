//! That it passes when all is well is shown by `ci/soak`, and that it finds every injected defect.
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

fn soak(temp: &TempDir, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwire-soak"));
    command.args(args).env("TMPDIR", temp.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts a long one, and returns once it runs.
fn start(temp: &TempDir) -> (Child, impl BufRead) {
    let mut soak = soak(temp, &["--seconds", "1000", "--sessions", "2"]).spawn().unwrap();
    let mut stdout = BufReader::new(soak.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("Soak of 1000 s") {
        line.clear();
        assert!(stdout.read_line(&mut line).unwrap() > 0, "it ended");
    }
    (soak, stdout)
}

fn is_empty(temp: &TempDir) -> bool {
    fs::read_dir(temp.path()).unwrap().next().is_none()
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn an_injected_defect_fails_the_soak_with_advice() {
    let temp = TempDir::new().unwrap();
    let args = ["--seconds", "10", "--sessions", "2", "--seed", "1", "--json"];
    let args = [&args[..], &["--defect", "wrong-answer"]].concat();
    let ended = soak(&temp, &args).output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let report: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((&report["ok"], &report["checks"]["answers_right"]), (&false.into(), &false.into()));
    assert!(report["failed"]["answers_right"]["next"].as_str().unwrap().contains("same seed"));
    for check in ["calls_accounted", "counters_reconcile", "ended_in_order"] {
        assert_eq!(report["checks"][check], true, "{check}: {report:#}");
    }
    assert!(report["faults"]["providers_killed"].as_u64() > Some(0), "{report:#}");
    assert!(is_empty(&temp), "the run dir is removed");
}

#[test]
fn a_signal_ends_a_soak_early_and_cleanly() {
    let temp = TempDir::new().unwrap();
    let (mut soak, mut stdout) = start(&temp);
    send(&soak, Signal::INT);
    let (mut rest, mut errors) = (String::new(), String::new());
    stdout.read_to_string(&mut rest).unwrap();
    soak.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(soak.wait().unwrap().code(), Some(130));
    assert!(rest.contains("Interrupted") && !rest.contains('✗'), "{rest}");
    assert_eq!(errors, "");
    assert!(is_empty(&temp), "the run dir is removed");
}

#[test]
fn a_killed_soak_takes_its_processes_along() {
    let temp = TempDir::new().unwrap();
    let (mut soak, _stdout) = start(&temp);
    let task = format!("/proc/{0}/task/{0}/children", soak.id());
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
    soak.kill().unwrap();
    soak.wait().unwrap();
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
