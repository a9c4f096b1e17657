//! Kills a peer of Bellwire at every point, by ptrace, and asks the survivor.
//!
//! Each worker has one processor, two survivors, and one victim at a time. A victim is a copy of the worker, made by
//! fork: a client, or a server, that runs one [scenario](phase::Scenario) over the public library under the worker's
//! trace. It is stopped after so many system calls and so many instructions more, its memory is read for what it had
//! published by then, and it is killed. The survivor then reports what it received and what it still holds, and
//! [`testbed`] judges: it lost nothing that was published, reported the death as such, released everything, and works
//! with the next peer.
//!
//! Linux on x86-64 only.

mod address;
mod args;
mod campaign;
mod error;
mod fork;
mod line;
mod phase;
mod print;
mod random;
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

/// False when something was found.
fn run(args: &Args) -> Result<bool> {
    let phases = args.phases();
    if phases.is_empty() {
        return Err(Error::Usage("no phase has such a name: see --list".to_owned()));
    }
    if args.list {
        phases.iter().for_each(|phase| println!("{phase}"));
        return Ok(true);
    }
    if let Some([index, of]) = args.worker.as_deref() {
        worker::run(args, seed(args), *index, *of)?;
        return Ok(true);
    }
    let summary = campaign::run(args, seed(args))?;
    print::summary(&summary, args.json);
    let missed = |name: &str| summary.phases.get(name).is_none_or(|tally| tally.killed == 0);
    let missed: Vec<_> =
        phases.iter().map(|phase| phase.name).filter(|name| missed(name)).collect();
    if !missed.is_empty() && summary.findings.is_empty() {
        eprintln!("error: nobody was killed in {}: more --points", missed.join(", "));
    }
    Ok(summary.findings.is_empty() && missed.is_empty())
}

/// The seed that was given, by the command line or to a worker, or else the time.
fn seed(args: &Args) -> u64 {
    let inherited = || std::env::var(campaign::SEED).ok().and_then(|seed| seed.parse().ok());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_micros());
    args.seed.or_else(inherited).unwrap_or_else(|| u64::try_from(now()).unwrap_or(0))
}
