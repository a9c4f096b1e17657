use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::stage::Stage;

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
    /// Say whether tracing is possible here, and what to do if not
    Doctor(DoctorArgs),
    /// List the processes that can be traced, and their sessions
    List(ListArgs),
    /// Print histograms of the time that calls take, as a whole or by stage
    Hist(HistArgs),
    /// Print the share that each stage has in the time of a call
    Breakdown(BreakdownArgs),
    /// Show the sessions, the busiest first, until q or Ctrl-C
    Top(TopArgs),
    /// Print each slow call, with its stages and who woke whom
    Snoop(SnoopArgs),
    /// Write the calls into a trace that ui.perfetto.dev opens
    Record(RecordArgs),
    /// Serve histograms to a scraper, as OpenMetrics over HTTP
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
    /// This process only
    #[arg(short, long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is traced.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Scope {
    /// Calls of which this process is one end
    #[arg(short, long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Calls of this service
    #[arg(short, long, value_name = "SERVICE")]
    pub(crate) service: Option<String>,
    /// This program or shared library, and whoever runs it from now on; instead of what runs now
    #[arg(long, value_name = "FILE")]
    pub(crate) exe: Vec<PathBuf>,
    /// How many messages a second are sampled at most, per session and direction
    #[arg(long, value_enum, default_value = "2000")]
    pub(crate) rate: Rate,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// A cap of the library's sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rate {
    #[value(name = "2000")]
    Default,
    #[value(name = "5000")]
    Middle,
    #[value(name = "50000")]
    High,
    #[value(name = "all")]
    All,
}

/// How long, in the manner of vmstat(8) and bcc.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Pace {
    /// Seconds between two outputs; until SIGINT when it is left out
    #[arg(value_parser = seconds)]
    pub(crate) interval: Option<Duration>,
    /// How many outputs
    pub(crate) count: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct HistArgs {
    #[command(flatten)]
    pub(crate) scope: Scope,
    #[command(flatten)]
    pub(crate) pace: Pace,
    /// This stage; may be given several times, `call` is all of them together
    #[arg(short = 'S', long, value_enum)]
    pub(crate) stage: Vec<Stage>,
    /// Each session by itself, not all of a service together
    #[arg(long)]
    pub(crate) by_session: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BreakdownArgs {
    #[command(flatten)]
    pub(crate) scope: Scope,
    #[command(flatten)]
    pub(crate) pace: Pace,
    /// Each session by itself, not all of a service together
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
    /// Calls that took as long: 250us, 1ms, 2s
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = time)]
    pub(crate) over: Duration,
    /// Stop after so many calls
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) scope: Scope,
    #[command(flatten)]
    pub(crate) pace: Pace,
    /// What comes first
    #[arg(long, value_enum, default_value_t = Sort::Calls)]
    pub(crate) sort: Sort,
}

/// An order of sessions: the largest first.
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
    /// For how many seconds; until SIGINT when it is left out
    #[arg(value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Where to write it
    #[arg(short, long, value_name = "FILE", default_value = "bellwire-trace.json")]
    pub(crate) output: PathBuf,
    /// Only calls that took as long: 250us, 1ms, 2s
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    pub(crate) over: Duration,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Address and port; port 0 takes a free one. There is no access control: keep to 127.0.0.1
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9464")]
    pub(crate) listen: SocketAddr,
    /// Each session by itself, not all of a service together
    #[arg(long)]
    pub(crate) by_session: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is no number of seconds"))?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(span) if span >= Duration::from_millis(1) => Ok(span),
        _ => Err("an interval has a millisecond at least".to_owned()),
    }
}

fn time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| error.to_string())
}
