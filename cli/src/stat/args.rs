use std::time::Duration;

use bellwire::ServiceName;
use clap::ValueEnum;

use crate::args::{Output, positive_duration};
use crate::out::Format;

/// Print the counters of each provider, and the initial parameters of a session with it
///
/// Every provider answers, whatever it serves. Prints who provides a service, how long the session took to open, the
/// generation of the newest snapshot (0 if none was published), the sizes of both lanes, the longest request that both
/// ends allow, and the counters of the service since its provider started. docs/operating.md explains them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code 0 if every provider answered; 3 no provider, 4 refused, 5 no answer in time.

Examples:
  bellwire stat
  bellwire stat cgroups-snapshot
  bellwire stat cgroups-snapshot --watch
  bellwire stat -o openmetrics
  bellwire stat -o json | jq '.services[] | select(.state == \"open\").stats.accepted'")]
pub(crate) struct Stat {
    /// The service's name [default: all services that have a provider]
    #[arg(value_name = "SERVICE")]
    pub(crate) service: Option<ServiceName>,
    /// Print the changes since the last query at every interval, until SIGINT
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// The time between two queries, with --watch
    #[arg(long, short, default_value = "1s", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) interval: Duration,
    #[command(flatten)]
    pub(crate) output: Output<StatFormat>,
    /// How long to wait for each answer
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) timeout: Duration,
    /// Query this version of the service, instead of the counters
    #[arg(long, value_name = "N", conflicts_with = "watch")]
    pub(crate) service_version: Option<u32>,
}

/// How to print counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatFormat {
    /// Aligned columns, for people
    #[default]
    Table,
    /// For programs
    Json,
    /// The text format of OpenMetrics 1.0, for Prometheus and other scrapers
    Openmetrics,
}

impl From<Format> for StatFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Table => Self::Table,
            Format::Json => Self::Json,
        }
    }
}
