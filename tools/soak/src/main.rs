//! Kills, stops and restarts providers and consumers whose lanes change their sizes.
//!
//! Two steady processes, a provider and a consumer, live through the whole run without faults. Faults hit a second provider
//! and two more consumers. All consumers call both providers. So the steady processes show whether faults of others affect
//! them, and whether anything is leaked.

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

use bellwire::RunDir;
use bellwire_cli::exit::{Exit, Failure};
use bellwire_cli::private_run_dir;
use bellwire_cli::stop::Stop;
use bellwire_process as process;
use clap::Parser;
use serde::Serialize;

use args::{Role, Soak};
use protocol::ChildMessage;
use report::Report;
use run::Run;

/// The resources that a process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Sample {
    descriptors: u64,
    threads: u64,
    /// Distinct memfds that are mapped or open.
    memfds: u64,
    /// Resident memory in bytes, shared memory included.
    rss: u64,
}

impl From<process::Holdings> for Sample {
    fn from(holdings: process::Holdings) -> Self {
        let process::Holdings { descriptors, threads, memfds, rss } = holdings;
        Self { descriptors, threads, memfds, rss }
    }
}

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
    let ended = match &soak.role {
        None => run(&soak),
        Some(Role::Provider(args)) => provider::run(&RunDir::new(&args.run_dir), args),
        Some(Role::Consumer(args)) => consumer::run(&RunDir::new(&args.run_dir), args),
    };
    match ended {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(),
    }
}

fn run(args: &Soak) -> Result<Exit, Failure> {
    if !process::IS_POSSIBLE {
        let what = "no process can be stopped and looked at here";
        return Err(Failure::new(Exit::Failed, what).next("run the soak on Linux"));
    }
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
