use std::time::Duration;

use bellwire::ServiceName;

use crate::args::{Output, duration, positive_duration};

/// Measure the latency of a service
///
/// Services that this command knows (cgroups-snapshot, demo-ping) are measured by calls on one session. All others are
/// measured by handshakes: connect, HELLO, and WELCOME with the memory of both ends and READY, or REFUSE.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code 0 if all tries were answered, 1 if some were, otherwise that of the last failure.

Examples:
  bellwire ping cgroups-snapshot
  bellwire ping cgroups-snapshot -c 1000 -i 0s
  bellwire ping my-service --service-version 7
  bellwire ping cgroups-snapshot -o json | jq -s 'map(.nanos) | max'")]
pub(crate) struct Ping {
    /// The service's name: a-z, 0-9 and -
    #[arg(value_name = "SERVICE")]
    pub(crate) service: ServiceName,
    /// The number of tries; 0 continues until SIGINT
    #[arg(long, short, default_value_t = 5, value_name = "N")]
    pub(crate) count: u64,
    /// The time between two tries
    #[arg(long, short, default_value = "1s", value_name = "TIME", value_parser = duration)]
    pub(crate) interval: Duration,
    /// How long to wait for each answer
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) timeout: Duration,
    /// Measure handshakes with this version of the service, even if the service is known
    #[arg(long, value_name = "N")]
    pub(crate) service_version: Option<u32>,
    #[command(flatten)]
    pub(crate) output: Output,
}
