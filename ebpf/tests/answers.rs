//! What the tracer says when it has nothing to show.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::process::{Process, copy_of_program, pair};
use crate::support::tracer::{SKIPPED, TRACER, recorded, run, skip};

fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether this process may trace; says why not.
fn may_trace() -> bool {
    let output = run(&["doctor"]);
    let may = output.status.success();
    if !may {
        skip(&String::from_utf8_lossy(&output.stdout));
    }
    may
}

#[test]
fn a_kernel_without_types_is_named_with_the_status_of_a_skip() {
    let hidden = "mount -t tmpfs none /sys/kernel/btf && exec \"$0\" breakdown 0.1 1";
    let output =
        Command::new("unshare").args(["--mount", "sh", "-c", hidden, TRACER]).output().unwrap();
    if message(&output).contains("unshare failed") {
        return skip(&message(&output));
    }
    assert_eq!(output.status.code(), Some(SKIPPED), "{}", message(&output));
    assert!(message(&output).contains("CONFIG_DEBUG_INFO_BTF=y"), "{}", message(&output));
}

#[test]
fn a_file_without_probes_is_named() {
    if !may_trace() {
        return;
    }
    let output = run(&["breakdown", "--exe", "/bin/true", "0.1", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(message(&output).contains("/bin/true has no probes of Bellwire"), "{output:?}");
}

#[test]
fn a_process_without_a_session_is_named_after_two_seconds() {
    if !may_trace() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start("server", dir.path());
    let pid = server.pid().to_string();
    let output = run(&["breakdown", "-p", &pid, "2.5", "1"]);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("process {pid} has no session");
    assert_eq!(message(&output).matches(&expected).count(), 2, "{output:?}");
    assert!(message(&output).contains("no call was sampled yet"), "{output:?}");
}

#[test]
fn a_session_without_a_call_is_named() {
    if !may_trace() {
        return;
    }
    let (_dir, server, mut client) = pair();
    client.ask("calls 1 0");
    let output = run(&["hist", "-p", &server.pid().to_string(), "0.3", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(message(&output).contains("1 sessions are open, and none made a call"), "{output:?}");
}

/// Strips the notes of a copy of this program, as llvm-strip does.
fn without_notes(dir: &Path) -> std::path::PathBuf {
    let file = copy_of_program(dir);
    let stripped = dir.join("stripped");
    let status = Command::new("objcopy")
        .args(["--remove-section", ".note.stapsdt"])
        .arg(&file)
        .arg(&stripped)
        .status()
        .unwrap();
    assert!(status.success());
    stripped
}

#[test]
fn an_end_without_probes_is_named() {
    if !may_trace() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start("server", dir.path());
    let stripped = without_notes(dir.path());
    let mut client = Process::start_by(Command::new(stripped), "client", dir.path());
    client.ask("calls 1 0");
    let output = run(&["breakdown", "-p", &server.pid().to_string(), "0.3", "1"]);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("process {}", client.pid());
    assert!(message(&output).contains(&expected), "{output:?}");
    assert!(message(&output).contains("lacks the probe reply"), "{output:?}");
}

#[test]
fn a_request_that_would_block_is_no_failed_call() {
    let (_dir, _server, mut client) = pair();
    // It fills the lane until a request would block.
    let calls = || drop(client.ask("full 3 100"));
    let Some((events, _)) = recorded(&[], calls) else { return };
    let is_seen = |name: &str| {
        events.iter().any(|event| event["name"] == name && event["pid"] == client.pid())
    };
    assert!(is_seen("lane_full") && !is_seen("call_failed"), "{events:#?}");
}
