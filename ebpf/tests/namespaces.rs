//! Processes in their own namespaces.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::process::{Process, copy_of_program, program};
use crate::support::tracer::{TRACER, Tracer, number, skip, stage};

const SECOND: u64 = 1_000_000_000;

/// An `unshare` command with these options; `None`, with a message, if that is not permitted.
fn unshare(options: &[&str]) -> Option<Command> {
    let trial = Command::new("unshare").args(options).arg("true").output().unwrap();
    if !trial.status.success() {
        skip(&String::from_utf8_lossy(&trial.stderr));
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(options);
    Some(command)
}

/// A process whose program is invisible to others: in a file system that is mounted only in its mount namespace.
fn contained(role: &str, run_dir: &Path) -> Option<Process> {
    let mount_point = run_dir.join("place");
    std::fs::create_dir_all(&mount_point).unwrap();
    let options = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let mut command = unshare(&options)?;
    let enter = "mount -t tmpfs none \"$0\" && cp \"$1\" \"$0/plugin\" && plugin=\"$0/plugin\" && \
                 shift && exec \"$plugin\" \"$@\"";
    command.args(["sh", "-c", enter]).arg(&mount_point).arg(program());
    Some(Process::start_by(command, role, run_dir))
}

/// Traces calls to a server by the given tracer command.
fn traced(server: &Process, client: &mut Process, mut tracer: Command) -> Option<Vec<Value>> {
    // The session is open: the tracer attaches to its two ends.
    client.ask("calls 1 0");
    tracer.args(["breakdown", "--json", "--rate", "all", "--pid"]);
    tracer.arg(server.role_pid().to_string());
    let tracer = Tracer::start_by(tracer)?;
    client.ask("calls 20 0");
    Some(tracer.tables())
}

#[test]
fn a_server_in_a_container_is_seen_with_a_client_outside_or_in_one_of_its_own() {
    for is_contained in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let start = |role, is_contained| match is_contained {
            true => contained(role, dir.path()),
            false => Some(Process::start(role, dir.path())),
        };
        let Some(server) = start("server", true) else { return };
        let Some(mut client) = start("client", is_contained) else { return };
        let Some(tables) = traced(&server, &mut client, Command::new(TRACER)) else { return };
        assert_eq!(tables.len(), 1, "{tables:#?}");
        assert_eq!(tables[0]["calls"], 20);
        // Pids of the host.
        assert_eq!(tables[0]["server"], server.role_pid());
        assert_eq!(tables[0]["client"], client.role_pid());
    }
}

#[test]
fn a_tracer_in_a_container_reports_the_pids_of_its_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let file = copy_of_program(dir.path());
    let options = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let Some(mut command) = unshare(&options) else { return };
    command.arg(&file);
    let server = Process::start_by(command, "server", dir.path());
    let mut client = Process::start_by(Command::new(&file), "client", dir.path());
    let mut inside = Command::new("nsenter");
    inside.args(["--pid", "--mount", "--target"]).arg(server.role_pid().to_string());
    // The first process of its namespace.
    inside.args([TRACER, "breakdown", "--json", "--rate", "all", "--pid", "1", "--exe"]).arg(&file);
    let Some(tracer) = Tracer::start_by(inside) else { return };
    client.ask("calls 20 0");
    let tables = tracer.tables();
    assert_eq!(tables.len(), 1, "{tables:#?}");
    assert_eq!((&tables[0]["calls"], &tables[0]["server"]), (&20.into(), &1.into()));
}

#[test]
fn a_program_that_was_replaced_is_still_seen() {
    let dir = tempfile::tempdir().unwrap();
    let file = copy_of_program(dir.path());
    let server = Process::start_by(Command::new(&file), "server", dir.path());
    let mut client = Process::start_by(Command::new(&file), "client", dir.path());
    std::fs::remove_file(&file).unwrap();
    let Some(tables) = traced(&server, &mut client, Command::new(TRACER)) else { return };
    assert_eq!(tables.len(), 1, "{tables:#?}");
    assert_eq!(tables[0]["calls"], 20);
}

/// Traces calls between ends in the given time namespaces; an empty slice is the host's.
fn in_time(server: &[&str], client: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let start = |role: &str, options: &[&str]| {
        let mut command = Command::new(program());
        if !options.is_empty() {
            command = unshare(&[&["--fork", "--kill-child", "--time"], options].concat())?;
            command.arg(program());
        }
        Some(Process::start_by(command, role, dir.path()))
    };
    let Some(server) = start("server", server) else { return };
    let Some(mut client) = start("client", client) else { return };
    let Some(tracer) = Tracer::start_at(&server, &["breakdown"]) else { return };
    client.ask("call-after-idle 20 2000");
    let (tables, status, messages) = tracer.finish_with_messages();
    assert!(status.success());
    // The times of all calls are in order, and no call takes as long as the offset of the clocks.
    assert_eq!(tables.len(), 1, "{messages}");
    let call = stage(&tables[0], "call");
    assert_eq!(number(call, "count"), 20, "{messages}: {call}");
    assert!(number(call, "max_ns") < 500 * SECOND, "{call}");
    assert!(number(stage(&tables[0], "receive"), "total_ns") >= 20 * 2_000_000);
    // Both ends slept: the scheduler's times agree with the corrected times of both.
    assert!(number(stage(&tables[0], "wake"), "count") > 10, "{:#}", tables[0]);
    assert!(number(stage(&tables[0], "reply-wake"), "count") > 10, "{:#}", tables[0]);
}

#[test]
fn clocks_that_are_apart_are_corrected() {
    let ahead = ["--monotonic", "1000", "--boottime", "7"];
    in_time(&ahead, &[]);
    in_time(&[], &ahead);
    in_time(&["--monotonic", "-1000"], &ahead);
}
