//! The bpftrace scripts, as shipped.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::process::{pair, program};
use crate::support::semaphore::{self, Semaphore};
use crate::support::tracer::{Tracer, skip};
use crate::support::wait_until;

/// How long bpftrace may take to print its maps after a signal.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait for a line of bpftrace.
const LINE_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs a script on a server, waits until it is attached to these probes, and sends `command` to the client. Returns what
/// the script prints. Waits for `expected` in the output first, since bpftrace may lose events if it is interrupted early.
fn run(script: &str, probes: [&str; 2], command: &str, expected: Option<&str>) -> Option<String> {
    let (_dir, server, mut client) = pair();
    // Skips the test if tracing is not permitted.
    drop(Tracer::start(&["hist"])?);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(script);
    let child = Command::new("bpftrace")
        .args(["-p", &server.pid().to_string()])
        .arg(path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        skip("bpftrace is not installed");
        return None;
    };
    let semaphores = probes.map(|probe| semaphore::of(server.pid(), &program(), probe));
    let pid = child.id();
    let mut is_gone = || child.try_wait().unwrap().is_some();
    wait_until(|| semaphores.iter().all(Semaphore::is_armed) || is_gone());
    // The kernel sets the breakpoint before bpftrace attaches a program to it.
    wait_until(|| waits_for_events(pid) || is_gone());
    let (sender, lines) = channel::<String>();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        stdout.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
    });
    client.ask(command);
    let mut printed = String::new();
    while expected.is_some_and(|expected| !printed.contains(expected)) {
        let line = lines.recv_timeout(LINE_TIMEOUT);
        let line = line.unwrap_or_else(|_| panic!("not printed: {printed}"));
        printed.extend([line.as_str(), "\n"]);
    }
    // bpftrace ignores an early signal: send another one.
    let pid = Pid::from_child(&child);
    let mut signaled = None;
    wait_until(|| {
        if signaled.is_none_or(|signaled: Instant| signaled.elapsed() > SIGNAL_TIMEOUT) {
            signaled = Some(Instant::now());
            let _ = kill_process(pid, Signal::INT);
        }
        child.try_wait().unwrap().is_some()
    });
    let output = child.wait_with_output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    reader.join().unwrap();
    lines.iter().for_each(|line| printed.extend([line.as_str(), "\n"]));
    assert!(!printed.is_empty(), "{messages}");
    Some(printed)
}

/// Whether a process sleeps in `epoll_wait` or, on architectures without it, in `epoll_pwait`.
fn waits_for_events(pid: u32) -> bool {
    let call = if cfg!(target_arch = "x86_64") { "232 " } else { "22 " };
    let now = std::fs::read_to_string(format!("/proc/{pid}/syscall"));
    now.is_ok_and(|now| now.starts_with(call))
}

#[test]
fn lanes_that_change_their_size_are_printed() {
    let Some(printed) = run("lanes.bt", ["lane_full", "lane_resized"], "grow 6", Some("resized"))
    else {
        return;
    };
    let line = printed
        .lines()
        .find(|line| line.contains("resized"))
        .unwrap_or_else(|| panic!("{printed}"));
    assert!(line.starts_with("nap ") && line.split_whitespace().nth(3) == Some("2"), "{printed}");
}

#[test]
fn sessions_that_end_are_counted() {
    let Some(printed) = run("failures.bt", ["call_failed", "session_closed"], "churn 5", None)
    else {
        return;
    };
    // The last session may still be closing.
    let count = printed.lines().find_map(|line| line.strip_prefix("@closed[nap, 1]: ")).unwrap();
    assert!(count.parse::<u32>().unwrap() >= 4, "{printed}");
}

#[test]
fn rings_and_sleeps_are_counted() {
    // A server that answers at once may come before the client sleeps, and rings nobody.
    let naps = "call-after-idle 20 200";
    let Some(printed) = run("sleeps.bt", ["park_end", "ring"], naps, None) else { return };
    assert!(printed.contains("@rings[nap, 1]: "), "{printed}");
    assert!(printed.contains("@slept_us[bellwire-reacto, 1]: "), "{printed}");
}
