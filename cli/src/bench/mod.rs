//! `bellwire bench`: measurements with real processes.

pub(crate) mod args;
mod process;
pub(crate) mod reactor;

use std::ffi::OsString;
use std::iter;

use clap::Parser;

use crate::exit::{Exit, Failure};
use crate::program::Program;
use args::{Bench, What};

/// Compares with alternatives, on whose libraries this command shall not depend.
const PROGRAM: Program = Program {
    name: "bellwire-bench",
    does: "transports are compared",
    build: "cargo install --path bench --locked",
};

pub(crate) fn run(args: &[OsString]) -> Result<Exit, Failure> {
    if args.first().is_none_or(|word| word != "reactor") {
        return Err(PROGRAM.become_it(args));
    }
    let words = iter::once(OsString::from("bellwire bench")).chain(args.iter().cloned());
    match Bench::parse_from(words).what {
        What::Reactor(reactor) => reactor::run(&reactor),
    }
}
