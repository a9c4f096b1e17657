use std::path::PathBuf;
use std::time::Duration;

use bellwire::{NameError, ServiceName};
use bellwire_cgroups::Orchestrator;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::args::{Output, Subject, duration};

/// Print a provider's snapshot, or its information about processes or cgroups
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 3 no provider, 4 refused, 5 nothing published or answered in time;
apps, cgroups-lookup: 8 an item is unknown or too large, 9 an item is not known yet.

Examples:
  bellwire get apps 1 $$
  pgrep nginx | bellwire get apps - --json | jq '.apps[] | select(.status == \"known\").cgroup'
  bellwire get cgroups-lookup /system.slice/cron.service
  bellwire get cgroups
  bellwire get cgroups --orchestrator docker --orchestrator k8s
  bellwire get cgroups --filter cron -o json | jq '.cgroups[].path'
  bellwire get cgroups --watch
  bellwire get disk-list --hex
  bellwire get disk-list --proto disk.proto --message disks.v1.Disks")]
pub(crate) struct Get {
    /// What to print: cgroups, cgroups-lookup, apps, or the name of any service that publishes a snapshot
    #[arg(value_name = "SUBJECT", value_parser = published)]
    pub(crate) subject: Published,
    /// apps: pids; cgroups-lookup: paths; - reads them from stdin, one per line
    #[arg(value_name = "PID|PATH", required_if_eq_any = [("subject", "apps"), ("subject", "cgroups-lookup")])]
    pub(crate) keys: Vec<String>,
    /// Print every change until SIGINT, and wait for a provider that is absent
    #[arg(long, short)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) output: Output,
    /// How long to wait for the first snapshot or the answers [default: 2s; with --watch no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Print only cgroups whose name or path contains this text
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// Print only cgroups of this orchestrator; can be repeated
    #[arg(long, value_name = "WHO", value_parser = orchestrator())]
    pub(crate) orchestrator: Vec<Orchestrator>,
    /// Version of the service (other services only)
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) service_version: u32,
    /// Print hexadecimal digits, not text (other services only)
    #[arg(long)]
    pub(crate) hex: bool,
    /// Decode the snapshot by this .proto file and print it as JSON (other services only)
    #[arg(long, value_name = "FILE", requires = "message", conflicts_with = "hex")]
    pub(crate) proto: Option<PathBuf>,
    /// The message in that file
    #[arg(long, value_name = "MESSAGE", requires = "proto")]
    pub(crate) message: Option<String>,
}

/// What is printed: something that this command knows, or what any service publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Published {
    Known(Subject),
    By(ServiceName),
}

fn published(text: &str) -> Result<Published, NameError> {
    match Subject::from_str(text, false) {
        Ok(subject) => Ok(Published::Known(subject)),
        Err(_) => text.parse().map(Published::By),
    }
}

/// Parses an orchestrator, by its name.
fn orchestrator() -> impl TypedValueParser<Value = Orchestrator> {
    let names = PossibleValuesParser::new(Orchestrator::ALL.map(Orchestrator::as_str));
    let named = |name: String| Orchestrator::ALL.into_iter().find(|one| one.as_str() == name);
    names.try_map(move |name| named(name).ok_or("no orchestrator"))
}
