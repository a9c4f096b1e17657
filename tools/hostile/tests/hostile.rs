//! The program as its users have it.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bellwire-hostile")).args(args).output().unwrap()
}

#[test]
fn list_prints_every_attack_and_unknown_names_fail() {
    let listed = String::from_utf8(run(&["list"]).stdout).unwrap();
    assert!(listed.lines().all(|line| line.split_whitespace().count() > 1), "{listed}");
    let refused = run(&["run", "--attack", "nothing"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("see `list`"), "{said}");
}
