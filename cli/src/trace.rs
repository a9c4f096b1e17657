//! `trace`: hands over to `bellwire-trace`, where it is installed.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

use bellwire::doctor::trial;

use crate::exit::{Exit, Failure};

/// The tracer's program: a package of its own, which wants clang to be built.
const PROGRAM: &str = "bellwire-trace";

/// Becomes the tracer.
pub(crate) fn run(args: &[OsString]) -> Result<Exit, Failure> {
    let beside = beside_this_program().filter(|path| path.is_file());
    let mut tracer = Command::new(beside.unwrap_or_else(|| PROGRAM.into()));
    let error = trial::exec(tracer.args(args));
    Err(match error.kind() {
        ErrorKind::Unsupported => Failure::new(Exit::Failed, "messages are traced on Linux only"),
        ErrorKind::NotFound => Failure::new(Exit::Failed, format!("{PROGRAM} is not installed"))
            .next("build it by: cargo install --path ebpf --locked"),
        _ => Failure::of(Exit::Failed, &format!("cannot run {PROGRAM}"), &error),
    })
}

fn beside_this_program() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.join(PROGRAM))
}
