//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use bellwire_cli::out::Color;
use clap::Parser;
use serde::{Deserialize, Serialize};

use crate::members::Role;
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
    /// When to use colors: auto, always or never
    #[arg(long, value_name = "WHEN", hide_possible_values = true, default_value = "auto")]
    pub(crate) color: Color,
    /// A defect to inject, for tests of the soak itself
    #[arg(long, hide = true)]
    pub(crate) defect: Option<Defect>,
    /// What a process of the soak is to do, in JSON.
    #[arg(long, hide = true, value_parser = child)]
    pub(crate) child: Option<Child>,
}

/// What a process of the soak does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Child {
    pub(crate) role: Role,
    /// Its number in the soak.
    pub(crate) who: u64,
    pub(crate) run_dir: PathBuf,
    /// The number of sessions of a consumer with each provider.
    pub(crate) sessions: u16,
    pub(crate) seed: u64,
    /// Of a steady process.
    pub(crate) defect: Option<Defect>,
}

fn child(text: &str) -> serde_json::Result<Child> {
    serde_json::from_str(text)
}

fn positive_duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("must be more than 0".into()),
        parsed => parsed.map_err(|error| error.to_string()),
    }
}
