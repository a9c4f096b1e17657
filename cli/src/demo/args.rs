use std::path::PathBuf;

use crate::args::Output;

/// Run a demo: a provider process and its consumer, cgroups that come and go, and figures each second
///
/// Starts a provider process in a private run dir and is its consumer, creates and removes cgroups if permitted (names
/// bellwire-demo-…; synthetic cgroups on a system without cgroups), and checks every answer. Halfway there is a burst: a
/// snapshot of 100 000 synthetic cgroups, and messages of up to 16 MiB, for which lanes grow and then shrink again without
/// a new session. Removes everything that it created, also after Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each rate is per second of its activity: in every 50 ms the consumer calls for 20 ms, refreshes for \
10 ms, looks up for 10 ms and sleeps for 10 ms. RTT is the time of a call with 64 bytes each way.

Examples:
  bellwire demo
  bellwire demo --seconds 30 --cgroups 20
  bellwire demo --seconds 2 --json | jq .checks
  bellwire demo --json | jq '.lane_changes, .consumer.sessions'")]
pub(crate) struct Demo {
    /// How long to measure, in seconds
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) seconds: u32,
    #[command(flatten)]
    pub(crate) output: Output,
    /// The maximum number of cgroups at a time; 0 creates none
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(..=1_000))]
    pub(crate) cgroups: u16,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DemoProvider {
    /// The mount point of the cgroup hierarchies; without it, synthetic cgroups.
    #[arg(long)]
    pub(crate) root: Option<PathBuf>,
}
