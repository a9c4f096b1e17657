use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bellwire_trace_core::{self as core, Rate, Stage};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};

/// Show where the time of a Bellwire message goes, in running processes and without a rebuild.
///
/// Exit status: 0 done; 1 failed; 2 wrong usage; 77 not permitted or not supported here, see `doctor`.
#[derive(Debug, Parser)]
#[command(name = "bellwire-trace", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check whether tracing is possible here, and print what to do if not
    Doctor(DoctorArgs),
    /// List the processes that can be traced, and their sessions
    List(ListArgs),
    /// Print histograms of the time that calls take, as a whole or by stage
    Hist(HistArgs),
    /// Print the share of each stage in the time of a call
    Breakdown(BreakdownArgs),
    /// Show the sessions, busiest first, until q or Ctrl-C
    Top(TopArgs),
    /// Print each slow call, with its stages and the threads that woke the receivers
    Snoop(SnoopArgs),
    /// Write the calls to a trace file for ui.perfetto.dev
    Record(RecordArgs),
    /// Serve histograms as OpenMetrics over HTTP, for a scraper
    Export(ExportArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Look for probes in this process only
    #[arg(short, long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// List this process only
    #[arg(short, long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to trace.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Scope {
    /// Only calls from or to this process
    #[arg(short, long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Only calls of this service
    #[arg(short, long, value_name = "SERVICE")]
    pub(crate) service: Option<String>,
    /// Trace the processes that run this program or shared library, also later ones, instead of all running processes
    #[arg(long, value_name = "FILE")]
    pub(crate) exe: Vec<PathBuf>,
    /// The maximum number of messages per second that are sampled, per session and direction
    #[arg(long, default_value = "2000", value_parser = rate())]
    pub(crate) rate: Rate,
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

impl Scope {
    /// Returns the scope for the library.
    pub(crate) fn of(&self) -> core::Scope {
        let Self { pid, service, exe, rate, .. } = self.clone();
        core::Scope { pid, service, exe, rate }
    }
}

/// When and how often results are printed, in the manner of vmstat(8) and bcc.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Schedule {
    /// Seconds between two outputs; without it, one output at SIGINT
    #[arg(value_parser = seconds)]
    pub(crate) interval: Option<Duration>,
    /// The number of outputs; unlimited by default
    pub(crate) count: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct HistArgs {
    #[command(flatten)]
    pub(crate) scope: Scope,
    #[command(flatten)]
    pub(crate) schedule: Schedule,
    /// Show this stage; can be repeated. `call` is all stages together
    #[arg(short = 'S', long, value_parser = stage())]
    pub(crate) stage: Vec<Stage>,
    /// Show each session separately, not all sessions of a service together
    #[arg(long)]
    pub(crate) by_session: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BreakdownArgs {
    #[command(flatten)]
    pub(crate) scope: Scope,
    #[command(flatten)]
    pub(crate) schedule: Schedule,
    /// Show each session separately, not all sessions of a service together
    #[arg(long)]
    pub(crate) by_session: bool,
    /// Print stacks with their time in nanoseconds, for flame graphs
    #[arg(long, conflicts_with = "json")]
    pub(crate) folded: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SnoopArgs {
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Only sampled calls that took at least this long: 250us, 1ms, 2s
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = time)]
    pub(crate) min_duration: Duration,
    /// All calls, not only sampled ones, that waited at least this long, and what their threads waited for: at least 10us
    #[arg(long, value_name = "TIME", conflicts_with = "min_duration", value_parser = slow_time)]
    pub(crate) all_slower_than: Option<Duration>,
    /// Write where the threads of slow calls were off the CPU, as a flame graph
    #[arg(long, value_name = "FILE", requires = "all_slower_than")]
    pub(crate) flame: Option<PathBuf>,
    /// Stop after this many calls
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) scope: Scope,
    #[command(flatten)]
    pub(crate) schedule: Schedule,
    /// Sort the sessions by this value, largest first
    #[arg(long, value_enum, default_value_t = Sort::Calls)]
    pub(crate) sort: Sort,
}

/// The value by which sessions are sorted, largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    Calls,
    P50,
    P99,
    Max,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Record for this many seconds; without it, until SIGINT
    #[arg(value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "bellwire-trace.json")]
    pub(crate) output: PathBuf,
    /// Only calls that took at least this long: 250us, 1ms, 2s
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    pub(crate) min_duration: Duration,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// The address and port to listen on; port 0 selects a free one. There is no access control: use a loopback address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9464")]
    pub(crate) listen: SocketAddr,
    /// Show each session separately, not all sessions of a service together
    #[arg(long)]
    pub(crate) by_session: bool,
}

fn rate() -> impl TypedValueParser<Value = Rate> {
    PossibleValuesParser::new(["2000", "5000", "50000", "all"]).map(|name| match name.as_str() {
        "5000" => Rate::Middle,
        "50000" => Rate::High,
        "all" => Rate::All,
        _ => Rate::Default,
    })
}

fn stage() -> impl TypedValueParser<Value = Stage> {
    let names = PossibleValuesParser::new(Stage::ALL.iter().map(|stage| stage.id()));
    names.map(|name| {
        let named = Stage::ALL.iter().find(|stage| stage.id() == name);
        named.copied().unwrap_or(Stage::Call)
    })
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(span) if span >= Duration::from_millis(1) => Ok(span),
        _ => Err("an interval is at least one millisecond".to_owned()),
    }
}

fn slow_time(text: &str) -> Result<Duration, String> {
    match time(text)? {
        span if span >= Duration::from_micros(10) => Ok(span),
        _ => Err("a call is slow from 10us on".to_owned()),
    }
}

fn time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| error.to_string())
}
