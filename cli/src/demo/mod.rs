//! `bellwire demo`: this process calls and reads a provider process over a private run dir, with cgroups that change.

pub(crate) mod args;
mod burst;
mod checks;
mod consumer;
mod figures;
pub(crate) mod provider;
mod report;
mod services;
mod tally;
mod test_cgroups;

use std::path::Path;

use bellwire::RunDir;
use bellwire_cgroups::scan::Scanner;
use bellwire_cli::private_run_dir;

use crate::exit::{Exit, Failure};
use crate::stop::{Stop, StopReason};
use args::Demo;
use consumer::Consumer;
use figures::{Second, Served, Totals};
use provider::Provider;
use report::Report;
pub(crate) use services::DemoPing;
use test_cgroups::TestCgroups;

/// All results of the demo.
#[derive(Debug)]
struct Outcome {
    seconds: Vec<Second>,
    connect_nanos: u64,
    totals: Totals,
    /// `None` if the provider did not report them.
    served: Option<Served>,
    /// What was wrong with the provider process.
    trouble: Vec<String>,
    test_cgroups: TestCgroups,
    interrupted: Option<StopReason>,
}

pub(crate) fn run(args: &Demo) -> Result<Exit, Failure> {
    let stop = Stop::on_signals()?;
    let dir = private_run_dir("bellwire-demo-")?;
    let root = Path::new(Scanner::ROOT);
    let real = Scanner::new(root).scan().is_ok();
    let test_cgroups = TestCgroups::prepare(root, if real { args.cgroups } else { 0 });
    let mut report = Report::new(args);
    let mut provider = Provider::start(dir.path(), real.then_some(root))?;
    let pid = provider.pid();
    let mut consumer = Consumer::connect(&RunDir::new(dir.path()), test_cgroups)?;
    let (connect_nanos, seen) = (consumer.connect_nanos, consumer.provider);
    report.start(pid, dir.path(), real, &consumer)?;
    let seconds = consumer.run(args.seconds.into(), &stop, &mut provider, &mut report)?;
    let (totals, test_cgroups) = consumer.end();
    let (served, wrong) = provider.end();
    let reached = format!("the consumer reached process {seen:?} instead of the provider");
    let trouble = (seen != Some(pid)).then_some(reached).into_iter().chain(wrong).collect();
    let interrupted = stop.requested();
    let outcome =
        Outcome { seconds, connect_nanos, totals, served, trouble, test_cgroups, interrupted };
    // Before the summary, since its reader may be gone.
    drop(dir);
    let holds = report.end(&outcome)?;
    Ok(match outcome.interrupted {
        Some(why) => why.exit(),
        None if holds => Exit::Ok,
        None => Exit::Failed,
    })
}
