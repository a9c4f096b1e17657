//! `bench`: runs `bellwire-bench`, if it is installed.

use std::ffi::OsString;

use crate::exit::{Exit, Failure};
use crate::program::Program;

/// The benchmarks' program: a package of its own, which links the libraries of the alternatives.
const PROGRAM: Program = Program {
    name: "bellwire-bench",
    does: "transports are compared",
    build: "cargo install --path benches/compare --locked",
};

/// Replaces this process by the benchmarks.
pub(crate) fn run(args: &[OsString]) -> Result<Exit, Failure> {
    Err(PROGRAM.exec_program(args))
}
