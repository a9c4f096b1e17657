//! `trace`: runs `bellwire-trace`, if it is installed.

use std::ffi::OsString;

use crate::exit::{Exit, Failure};
use crate::program::Program;

/// The tracer's program: a package of its own, which requires clang to build.
pub(crate) const PROGRAM: Program = Program {
    name: "bellwire-trace",
    does: "messages are traced",
    build: "cargo install --path ebpf --locked",
};

/// Replaces this process by the tracer.
pub(crate) fn run(args: &[OsString]) -> Result<Exit, Failure> {
    Err(PROGRAM.exec_program(args))
}
