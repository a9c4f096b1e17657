use clap::Parser;

use crate::address::Address;
use crate::phase::Phase;

/// Kill a peer of Bellwire at every point, by ptrace, and check the survivor.
///
/// The address of a point is PHASE:CALLS:INSTRUCTIONS: a number of system calls of the watched thread after the gate,
/// and a number of instructions after the last of them. Points are drawn from a seed, the same number for each phase.
#[derive(Clone, Debug, Parser)]
#[command(name = "bellwire-kill", version)]
pub(crate) struct Args {
    /// How many victims to kill.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) points: u64,
    /// The seed from which points are drawn, which is printed; by default another one each time.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Kill at this address only, --points times (by default once).
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) only: Option<Address>,
    /// Kill only in phases whose name contains this text.
    #[arg(long, value_name = "TEXT", conflicts_with = "only")]
    pub(crate) phase: Option<String>,
    /// Stop after this many findings.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) findings: usize,
    /// How long a survivor may take to detect a death and to release everything, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) timeout: u64,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Args {
    /// The phases to kill in.
    pub(crate) fn phases(&self) -> Vec<&'static Phase> {
        let phases = Phase::all();
        match (&self.only, &self.phase) {
            (Some(only), _) => vec![only.phase],
            (None, Some(text)) => {
                phases.filter(|phase| phase.name.contains(text.as_str())).collect()
            }
            (None, None) => phases.collect(),
        }
    }
}
