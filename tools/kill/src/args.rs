use clap::Parser;

use crate::address::Address;
use crate::phase::Phase;

/// Kills a peer of Bellwire at every point, by ptrace, and asks the survivor.
///
/// A point is an address, PHASE:CALLS:INSTRUCTIONS: so many system calls of the watched thread after the gate, so many
/// instructions behind the last of them. Points are drawn from a seed, the same number for each phase.
#[derive(Clone, Debug, Parser)]
#[command(name = "bellwire-kill", version)]
pub(crate) struct Args {
    /// How many victims to kill.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) points: u64,
    /// What the points are drawn from; another one each time by default. It is printed.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Kill at this address only, --points times, once by default.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) only: Option<Address>,
    /// Only phases whose name contains this.
    #[arg(long, value_name = "TEXT", conflicts_with = "only")]
    pub(crate) phase: Option<String>,
    /// How many processors to use, each with victims and survivors of its own; all by default.
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<usize>,
    /// End after so many findings.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) findings: usize,
    /// How long a survivor may take to see a death and to put everything back, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) patience: u64,
    /// Print the phases and what is in them, and kill nobody.
    #[arg(long)]
    pub(crate) list: bool,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Run as worker I of N, told by JSON on the standard output.
    #[arg(long, hide = true, num_args = 2, value_names = ["I", "N"])]
    pub(crate) worker: Option<Vec<u64>>,
}

impl Args {
    /// The phases to visit.
    pub(crate) fn phases(&self) -> Vec<&'static Phase> {
        let phases = crate::phase::PHASES.iter();
        match (&self.only, &self.phase) {
            (Some(only), _) => vec![only.phase],
            (None, Some(text)) => {
                phases.filter(|phase| phase.name.contains(text.as_str())).collect()
            }
            (None, None) => phases.collect(),
        }
    }
}
