use std::time::Duration;

use bellwire::ServiceName;

use crate::args::{Output, positive_duration};

/// Show the sessions of all processes, live, without their cooperation
///
/// Finds sessions by the names of their memory, and reads the counters in the page of each end. It needs no run
/// dir and no provider cooperation, and changes nothing; with --run-dir it shows only the sessions of providers that listen
/// there. On Linux it needs root, or the same user if kernel.yama.ptrace_scope is 0. Not available on Windows.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys: q quits; c, r, e, u, p, s sort by calls/s, p99, errors, use, peer, service; i inverts the \
order; up, down, PgUp, PgDn, Home, End move; ? shows them. CALLS/S, ERR/S and latencies are of the last interval. \
Latencies are those of the timed calls, rounded up by at most a quarter: docs/operating.md.

Examples:
  bellwire top
  bellwire top --service cgroups-snapshot --interval 250ms
  bellwire top --once
  bellwire top --json | jq '.sessions[] | select(.in_flight > 0)'")]
pub(crate) struct Top {
    /// Show only sessions of this service
    #[arg(long, value_name = "SERVICE")]
    pub(crate) service: Option<ServiceName>,
    /// The time between two scans
    #[arg(long, short, default_value = "1s", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) interval: Duration,
    /// Scan twice, one interval apart, print a summary and one table, and exit; with --json one object
    #[arg(long)]
    pub(crate) once: bool,
    /// The maximum number of sessions in that table; 0 for all
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) output: Output,
}
