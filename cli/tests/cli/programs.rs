//! `bellwire trace` is `bellwire-trace`, and `bellwire bench` is `bellwire-bench`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Ended, has_shell};

/// The command, alone in a directory: where this test's own lies, a tracer may have been built too. `None` without a shell: a
/// program may not even start there without its search path.
fn alone() -> Option<(tempfile::TempDir, PathBuf)> {
    if !has_shell() {
        return None;
    }
    let whole = Path::new(env!("CARGO_BIN_EXE_bellwire"));
    let dir = tempfile::tempdir_in(whole.parent().unwrap()).unwrap();
    let program = dir.path().join("bellwire").with_extension(std::env::consts::EXE_EXTENSION);
    // Not a copy: a process that another test starts meanwhile holds a file that is being written open for a moment, and
    // that file cannot be run (ETXTBSY).
    fs::hard_link(whole, &program).unwrap();
    Some((dir, program))
}

/// A program in its place, written by a process of its own, for the same reason.
fn script(path: &Path, text: &str) {
    let write = "printf '%s' \"$1\" > \"$0\" && chmod +x \"$0\"";
    let wrote = Command::new("sh").arg("-c").arg(write).arg(path).arg(text).status().unwrap();
    assert!(wrote.success());
}

/// What the command calls each, and what it says of how to get it.
const PROGRAMS: [(&str, &str, &str); 2] = [
    ("trace", "bellwire-trace", "cargo install --path ebpf"),
    ("bench", "bellwire-bench", "cargo install --path benches/compare"),
];

#[test]
fn a_program_gets_all_arguments_and_its_exit_code_is_returned() {
    for (word, name, _) in PROGRAMS {
        let Some((dir, program)) = alone() else { return };
        script(&dir.path().join(name), "#!/bin/sh\necho \"$@\"\nexit 77\n");
        let words = [word, "--quick", "hist", "-p", "7", "--json", "1", "--help"];
        let ended = Ended::of(Command::new(program).args(words));
        assert_eq!(ended.stdout, "--quick hist -p 7 --json 1 --help\n");
        assert_eq!(ended.status, Some(77));
    }
}

#[test]
fn a_missing_program_is_reported_with_how_to_install_it() {
    for (word, _, advice) in PROGRAMS {
        let Some((dir, program)) = alone() else { return };
        let ended = Ended::of(Command::new(program).args([word, "list"]).env("PATH", dir.path()));
        assert_eq!(ended.status, Some(1));
        assert!(ended.stderr.contains(advice), "{}", ended.stderr);
    }
}

#[test]
fn doctor_reports_whether_the_tracer_is_installed() {
    let Some((dir, program)) = alone() else { return };
    let row = || {
        let mut doctor = Command::new(&program);
        doctor.args(["doctor", "--json"]).env("PATH", dir.path());
        let report = Ended::of(&mut doctor).json();
        let probes = report["probes"].as_array().unwrap().clone();
        probes.into_iter().find(|probe| probe["name"] == "bellwire-trace").unwrap()
    };
    let missing = row();
    assert_eq!((&missing["state"], &missing["required"]), (&"missing".into(), &false.into()));
    assert!(missing["advice"].as_str().unwrap().contains("cargo install --path ebpf"), "{missing}");
    script(&dir.path().join("bellwire-trace"), "#!/bin/sh\necho bellwire-trace 7.8.9\n");
    let there = row();
    assert_eq!((&there["state"], &there["detail"]), (&"ok".into(), &"bellwire-trace 7.8.9".into()));
}
