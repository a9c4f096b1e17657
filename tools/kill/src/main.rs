//! Kills a peer of Bellwire at every point, by ptrace, and checks the survivor.
//!
//! Each worker has one processor, two survivors, and one victim at a time. A victim is a fork of the worker: a client or
//! a server that runs one [scenario](phase::Scenario) over the public library, traced by the worker. The worker stops it
//! after a number of system calls and of further instructions, reads from its memory what it had published by then, and
//! kills it. The survivor then reports what it received and which resources it still holds. [`testbed`] checks that the
//! survivor lost nothing that was published, reported the death as such, released everything, and works with the next
//! peer.
//!
//! Linux on x86-64 only.

mod address;
mod args;
mod campaign;
mod channel;
mod error;
mod fork;
mod phase;
mod print;
mod resources;
mod service;
mod survivor;
mod testbed;
mod trace;
mod tracee;
mod victim;
mod worker;

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;

use crate::args::Args;
use crate::error::{Error, Result};

fn main() -> ExitCode {
    let mut args = Args::parse();
    if args.only.is_some() && !std::env::args().any(|arg| arg.starts_with("--points")) {
        args.points = 1;
    }
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Returns false if there are findings, or a phase without a kill.
fn run(args: &Args) -> Result<bool> {
    let phases = args.phases();
    if phases.is_empty() {
        let why = format!("there is no phase of that name: {}", address::names());
        return Err(Error::Usage(why));
    }
    let summary = campaign::run(args, seed(args))?;
    print::summary(&summary, args.json);
    let missed = |name: &str| summary.phases.get(name).is_none_or(|tally| tally.killed == 0);
    let missed: Vec<_> =
        phases.iter().map(|phase| phase.name).filter(|name| missed(name)).collect();
    if !missed.is_empty() && summary.findings.is_empty() {
        eprintln!("error: no victim was killed in {}: increase --points", missed.join(", "));
    }
    Ok(summary.findings.is_empty() && missed.is_empty())
}

/// The seed from the command line; by default the time.
fn seed(args: &Args) -> u64 {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_micros());
    args.seed.unwrap_or_else(|| u64::try_from(now()).unwrap_or(0))
}
