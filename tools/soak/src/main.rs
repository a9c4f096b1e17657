//! Kills, stops and restarts providers and consumers whose lanes change their sizes.
//!
//! Two steady processes, a provider and a consumer, live through the whole run without faults. Faults hit a second provider
//! and two more consumers. All consumers call both providers. So the steady processes show whether faults of others affect
//! them, and whether anything is leaked. Linux only.

#![forbid(unsafe_code)]

mod args;
mod checks;
mod consumer;
mod faults;
mod header;
mod members;
mod protocol;
mod provider;
mod report;
mod run;
mod trend;

use std::process::ExitCode;

use bellwire_cli::exit::{Exit, Failure};
use bellwire_cli::private_run_dir;
use bellwire_cli::stop::Stop;
use clap::Parser;

use args::Soak;
use protocol::ChildMessage;
use report::Report;
use run::Run;

/// What the soak waits for. Processes are identified by their numbers.
#[derive(Debug)]
enum Event {
    ChildMessage(u64, ChildMessage),
    /// The process closed its output.
    Ended(u64),
    /// It is time to stop.
    Stop,
}

fn main() -> ExitCode {
    let soak = Soak::parse();
    soak.color.apply();
    let ended = match &soak.child {
        None => run(&soak),
        Some(child) if child.role.is_consumer() => consumer::run(child),
        Some(child) => provider::run(child),
    };
    match ended {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(),
    }
}

fn run(args: &Soak) -> Result<Exit, Failure> {
    let stop = Stop::on_signals()?;
    let dir = private_run_dir("bellwire-soak-")?;
    let mut report = Report::new(args);
    let outcome = Run::start(dir.path(), args, &stop, &mut report)?.finish(&mut report)?;
    // Before the summary, since its reader may be gone.
    drop(dir);
    let holds = report.end(&outcome)?;
    Ok(match outcome.interrupted {
        Some(why) => why.exit(),
        None if holds => Exit::Ok,
        None => Exit::Failed,
    })
}
