//! The permissions of the tracer, and its messages without them.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::process::{Process, copy_of_program, copy_to, pair};
use crate::support::tracer::{SKIPPED, TRACER, Tracer, run, skip};

/// A user without rights: `nobody`.
const NOBODY: &str = "65534";

/// A directory that all users may access, with a copy of the tracer in it.
fn public() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let tracer = dir.path().join("bellwire-trace");
    copy_to(Path::new(TRACER), &tracer);
    (dir, tracer)
}

/// A command that runs a program as `nobody` with these capabilities; `None`, with a message, if that is not permitted.
fn as_nobody(capabilities: &str, program: &Path) -> Option<Command> {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
    if !capabilities.is_empty() {
        command.args(["--inh-caps", capabilities, "--ambient-caps", capabilities]);
    }
    let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let trial = Command::new("setpriv").args(args).arg("true").output().unwrap();
    if !trial.status.success() {
        skip(&String::from_utf8_lossy(&trial.stderr));
        return None;
    }
    command.arg(program);
    Some(command)
}

fn printed(output: &Output) -> Vec<Value> {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn check<'a>(checks: &'a [Value], name: &str) -> &'a Value {
    checks.iter().find(|check| check["name"] == name).unwrap()
}

#[test]
fn a_user_without_permission_is_refused_with_advice() {
    let (dir, tracer) = public();
    let file = copy_of_program(dir.path());
    let earlier = dir.path().join("bellwire-trace.json");
    std::fs::write(&earlier, "an earlier trace").unwrap();
    std::fs::set_permissions(&earlier, PermissionsExt::from_mode(0o666)).unwrap();
    for args in ["hist", "breakdown", "top", "snoop", "record", "export"] {
        let Some(mut command) = as_nobody("", &tracer) else { return };
        let output =
            command.current_dir(dir.path()).args([args, "--exe"]).arg(&file).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(SKIPPED), "{args}: {message}");
        assert!(message.contains("bellwire-trace doctor"), "{args}: {message}");
    }
    assert_eq!(std::fs::read_to_string(&earlier).unwrap(), "an earlier trace");
    let Some(mut command) = as_nobody("", &tracer) else { return };
    let output = command.args(["doctor", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(SKIPPED));
    let checks = printed(&output);
    let capabilities = check(&checks, "capabilities");
    assert_eq!(capabilities["ok"], false);
    let hint = format!("sudo setcap cap_bpf,cap_perfmon+ep {}", tracer.display());
    assert_eq!(capabilities["hint"], hint.as_str());
}

#[test]
fn one_of_two_capabilities_does_not_suffice() {
    let (_dir, tracer) = public();
    for (held, missing) in [("+bpf", "CAP_PERFMON missing"), ("+perfmon", "CAP_BPF missing")] {
        let Some(mut command) = as_nobody(held, &tracer) else { return };
        let output = command.args(["doctor", "--json"]).output().unwrap();
        assert_eq!(output.status.code(), Some(SKIPPED));
        assert_eq!(check(&printed(&output), "capabilities")["found"], missing);
    }
}

#[test]
fn two_capabilities_suffice_for_processes_of_the_same_user() {
    let (dir, tracer) = public();
    let file = copy_of_program(dir.path());
    let run_dir = dir.path().join("run");
    std::fs::create_dir(&run_dir).unwrap();
    std::os::unix::fs::chown(&run_dir, Some(65534), Some(65534)).unwrap();
    let start = |role| Some(Process::start_by(as_nobody("", &file)?, role, &run_dir));
    let Some(server) = start("server") else { return };
    let Some(mut client) = start("client") else { return };
    // Its session is opened: the tracer attaches to the ends that there are.
    client.ask("calls 1 0");
    let Some(mut command) = as_nobody("+bpf,+perfmon", &tracer) else { return };
    command.args(["breakdown", "--json", "--rate", "all", "--pid", &server.pid().to_string()]);
    let Some(tracer) = Tracer::start_by(command) else { return };
    client.ask("calls 8 0");
    let tables = tracer.tables();
    assert_eq!(tables.len(), 1, "{tables:#?}");
    assert_eq!(tables[0]["calls"], 8);
}

#[test]
fn a_process_without_probes_is_no_target() {
    let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
    let output = run(&["doctor", "--json", "-p", &other.id().to_string()]);
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(output.status.code(), Some(SKIPPED));
    assert_eq!(check(&printed(&output), "targets")["ok"], false);
}

#[test]
fn processes_and_their_sessions_are_listed() {
    let (_dir, server, mut client) = pair();
    client.ask("calls 1 0");
    let found = printed(&run(&["list", "--json", "-p", &server.pid().to_string()]));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0]["pid"], server.pid());
    assert_eq!(found[0]["probes"], 23);
    let session = &found[0]["sessions"][0];
    assert_eq!(session["service"], "nap");
    assert_eq!(
        (&session["server"], &session["client"]),
        (&server.pid().into(), &client.pid().into())
    );
}

#[test]
fn a_closed_pipe_ends_the_tracer_successfully() {
    let (_dir, server, mut client) = pair();
    let Some(tracer) = Tracer::start_at(&server, &["snoop", "--min-duration", "0s"]) else {
        return;
    };
    assert!(tracer.close_output(|| drop(client.ask("calls 2 0"))).success());
}
