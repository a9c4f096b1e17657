//! `bellwire-bench` as a person runs it: real processes, and no judgement of how long anything takes.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on says so by panicking"
)]

mod arguments;
mod compare;
mod falsified;
mod report;
mod scenarios;

use std::process::{Command, Output};

use serde_json::Value;

/// How a run ended, and its output.
#[derive(Debug)]
struct Ended {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

fn bench<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Ended {
    let program = env!("CARGO_BIN_EXE_bellwire-bench");
    let Output { status, stdout, stderr } = Command::new(program).args(args).output().unwrap();
    Ended {
        status: status.code(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

/// The names that `list` has.
fn listed(what: &str) -> Vec<String> {
    let list: Value = serde_json::from_str(&bench(&["list", "--json"]).stdout).unwrap();
    list[what].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}
