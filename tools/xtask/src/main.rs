//! `cargo xtask`: what a developer of Bellwire runs.
//!
//! Each job is a script in `ci/` that also runs alone. This program runs them in order and sums them up
//! ([`jobs`]), and holds those that need more than a few lines of shell ([`mutants`], [`kill`], [`fuzz`],
//! [`proof`], [`budget`], [`litmus`], [`figures`]).

mod budget;
mod copy;
mod error;
mod faults;
mod figures;
mod fuzz;
mod jobs;
mod kill;
mod litmus;
mod mutants;
mod paint;
mod proof;
mod queue;
mod root;
#[cfg(test)]
mod rules;

use std::io::stdout;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use anstyle::AnsiColor;
use clap::{Parser, Subcommand, builder::PossibleValuesParser};

use crate::error::Error;

/// Developer commands of Bellwire: the checks, the mutants of the orderings, and the fuzz targets.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = EXAMPLES)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask check                     what changed since main: format, rules, lints, unit tests
  cargo xtask test                      what a change needs, up to the first job that fails
  cargo xtask test all --keep-going     every job, whatever fails
  cargo xtask test fmt clippy           only these two
  cargo xtask test matrix               other kernels, processors, C libraries, compilers, and packages
  cargo xtask list                      the jobs, and the script of each
  cargo xtask mutants --list            the weakened orderings that the loom tests must catch
  cargo xtask mutants lane/sender.rs    run those of one file
  cargo xtask kill --points 100000      kill a peer at so many points; ci/kill does 10 240
  cargo xtask kill --only client/write:0:137  kill at one, as a finding names it
  cargo xtask fuzz --seconds 300        every fuzz target for five minutes
  cargo xtask fuzz consumer             one of them for a minute
  cargo xtask budget --update           what the hot paths cost now is what they may cost
  cargo xtask figures                   the documents' figures, from the newest benchmark reports
  ci/loom                               a job is a script: it runs without this program, too";

#[derive(Subcommand)]
enum Command {
    /// Check what changed since main: format, rules, lints and unit tests of the packages that have changes.
    Check,
    /// Run the checks that a change needs, or those named.
    Test {
        /// The jobs to run, all, or matrix; those that a change needs when none is named.
        #[arg(value_parser = PossibleValuesParser::new(
            jobs::JOBS.iter().map(|job| job.name).chain([jobs::ALL, jobs::MATRIX]),
        ))]
        jobs: Vec<String>,
        /// Go on after a job has failed.
        #[arg(long)]
        keep_going: bool,
        /// Run a job that failed once more, and go on if it passes: the summary calls it flaky.
        #[arg(long)]
        retry: bool,
        /// How many jobs to run at a time; a job that measures always runs alone.
        #[arg(long, value_name = "N", default_value = "2")]
        parallel: NonZeroUsize,
        /// End within this many minutes: the jobs that run then are killed, the rest are not run.
        #[arg(long, value_name = "MINUTES")]
        within: Option<u16>,
    },
    /// List the jobs.
    List,
    /// Weaken every ordering and every fence of core, one at a time: the loom tests must notice.
    Mutants(mutants::Args),
    /// Kill a peer at many points, by ptrace: the survivor must lose nothing, and injected faults must be found.
    Kill(kill::Args),
    /// Fuzz every parser of what a peer sends or has in its memory.
    Fuzz(fuzz::Args),
    /// Compare the costs of hot paths with `ci/budget.toml`: instructions, by callgrind, and ratios to the machine's cost.
    Budget(budget::Args),
    /// Compare the tests that the threat model names with those that ran.
    Proof,
    /// Write the documents' figures from the newest benchmark report of each placement.
    Figures(figures::Args),
    /// Check the orderings on ARM's memory model and C11's, by herd7; `ci/litmus` gets what that needs.
    Litmus(litmus::Args),
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(args.command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let red = AnsiColor::Red.on_default();
            anstream::eprintln!("{red}error:{red:#} {error}");
            ExitCode::FAILURE
        }
    }
}

/// Does what was asked; `false` when it was done and found a fault.
fn run(command: Command) -> Result<bool, Error> {
    let root = root::find()?;
    match command {
        Command::Check => jobs::check(&root),
        Command::Test { jobs, keep_going, retry, parallel, within } => {
            let within = within.map(|minutes| Duration::from_secs(u64::from(minutes) * 60));
            let plan = jobs::Plan { jobs, keep_going, retry, parallel: parallel.get(), within };
            jobs::run(&root, &plan, stdout())
        }
        Command::List => {
            jobs::list();
            Ok(true)
        }
        Command::Proof => proof::run(&root),
        Command::Figures(args) => figures::run(&root, &args),
        Command::Litmus(args) => litmus::run(&root, &args),
        Command::Budget(args) => budget::run(&root, &args),
        Command::Mutants(args) => mutants::run(&mutants::Layout::of_bellwire(root), &args),
        Command::Kill(args) => kill::run(&root, &args),
        Command::Fuzz(args) => fuzz::run(&root, &args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Args::command().debug_assert();
    }
}
