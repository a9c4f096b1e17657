//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use bellwire_cli::out::Color;
use clap::{Parser, Subcommand};

use crate::protocol::Defect;

/// Kill, stop and restart providers and consumers at random, and check every answer and for leaks
///
/// A steady provider and a steady consumer run all the time without faults; faults are injected into another provider and
/// two other consumers. At the end every call must be accounted for, every answer must be correct, and the resources of
/// the steady processes must not have grown. Uses a private run dir; removes everything that it created, also after
/// Ctrl-C.
#[derive(Debug, Parser)]
#[command(
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
The seed determines the faults and their order. Exit code 1 if a check fails.

Examples:
  bellwire-soak
  bellwire-soak --seconds 3600 --sessions 32
  bellwire-soak --seed 7 --json | jq '.checks, .faults'"
)]
pub(crate) struct Soak {
    /// How long to run, in seconds
    #[arg(long, default_value_t = 60, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=604_800))]
    pub(crate) seconds: u32,
    /// The number of sessions of each consumer with each provider
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) sessions: u16,
    /// The average time between two faults
    #[arg(long, default_value = "300ms", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) kill_every: Duration,
    /// The seed of the random numbers [default: another one each time]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Print one JSON object at the end, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// When to use colours: auto, always or never
    #[arg(long, value_name = "WHEN", hide_possible_values = true, default_value = "auto")]
    pub(crate) color: Color,
    /// A defect to inject, for tests of the soak itself
    #[arg(long, hide = true)]
    pub(crate) defect: Option<Defect>,
    #[command(subcommand)]
    pub(crate) role: Option<Role>,
}

/// What a process of the soak does.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    #[command(hide = true)]
    Provider(SoakProvider),
    #[command(hide = true)]
    Consumer(SoakConsumer),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SoakProvider {
    #[arg(long)]
    pub(crate) run_dir: PathBuf,
    /// Provide the service of the steady provider, into which no faults are injected.
    #[arg(long)]
    pub(crate) steady: bool,
    #[arg(long)]
    pub(crate) defect: Option<Defect>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SoakConsumer {
    #[arg(long)]
    pub(crate) run_dir: PathBuf,
    /// Sometimes take no answers for a while.
    #[arg(long)]
    pub(crate) stops_taking: bool,
    #[arg(long)]
    pub(crate) sessions: u16,
    #[arg(long)]
    pub(crate) who: u64,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) defect: Option<Defect>,
}

fn positive_duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("must be more than 0".into()),
        parsed => parsed.map_err(|error| error.to_string()),
    }
}
