//! `bellwire demo`: a provider and a consumer process over a private run dir, with cgroups that change.

pub(crate) mod args;
mod burst;
mod checks;
mod child;
pub(crate) mod consumer;
mod expect;
mod protocol;
pub(crate) mod provider;
mod report;
mod run;
mod tally;
mod world;

use std::path::Path;

use bellwire_cgroups::scan::Scanner;
use bellwire_cli::private_run_dir;

use crate::exit::{Exit, Failure};
use crate::stop::{Stop, Why};
use args::Demo;
use burst::LaneChange;
use child::Who;
pub(crate) use protocol::DemoPing;
use protocol::{FromConsumer, FromProvider, Second, Served, Totals};
use report::Report;
use run::Run;
use world::World;

/// What the demo waits for.
#[derive(Debug)]
enum Event {
    Provider(FromProvider),
    Consumer(FromConsumer),
    /// A process closed its standard output.
    Ended(Who),
    /// A process wrote a line that is not a message.
    Garbled(Who, String),
    /// It is time to stop.
    Stop,
}

/// All results of the demo.
#[derive(Debug)]
struct Outcome {
    seconds: Vec<Second>,
    lane_changes: Vec<LaneChange>,
    connect_nanos: u64,
    totals: Option<Totals>,
    served: Option<Served>,
    /// How the two processes ended, if not cleanly.
    ends: Vec<String>,
    world: World,
    interrupted: Option<Why>,
}

pub(crate) fn run(args: &Demo) -> Result<Exit, Failure> {
    let stop = Stop::on_signals()?;
    let dir = private_run_dir("bellwire-demo-")?;
    let root = Path::new(Scanner::ROOT);
    let real = Scanner::new(root).scan().is_ok();
    let world = World::prepare(root, if real { args.cgroups } else { 0 });
    let mut report = Report::new(args);
    let run = Run::start(dir.path(), real.then_some(root), world, &stop, &mut report)?;
    let outcome = run.measure(&mut report)?;
    // Before the summary, since its reader may be gone.
    drop(dir);
    let holds = report.end(&outcome)?;
    Ok(match outcome.interrupted {
        Some(why) => why.exit(),
        None if holds => Exit::Ok,
        None => Exit::Failed,
    })
}
