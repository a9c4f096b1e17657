//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::order::Schedule;

/// Measure Bellwire beside the floor of this machine and beside the alternatives, in one run
///
/// Every contender has processes of its own, pinned to two processors. Round by round each is measured in turn, the floor
/// beside it; the placement of the processors is probed before and after. Every answer is verified.
#[derive(Debug, Parser)]
#[command(
    name = "bellwire bench",
    bin_name = "bellwire bench",
    version,
    args_conflicts_with_subcommands = true
)]
#[command(after_help = "\
Exit status: 0 done; 1 it failed, or an answer was wrong; 2 wrong command line; 11 measured, but a row is not stable; 12 compare \
found something slower.

Examples:
  bellwire bench
  bellwire bench ping-pong stream --against seqpacket --report bench-report
  bellwire bench rate --rate 25000 --duration 1s --json - | jq '.scenarios[].rows[].latency.p99'
  bellwire bench list
  bellwire bench compare old/report.json new/report.json")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) run: Run,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List scenarios and contenders
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Compare two reports, and flag changes beyond the noise
    #[command(after_help = "\
Examples:
  bellwire bench compare docs/benchmarks/2026-11-22/report.json bench-report/report.json")]
    Compare {
        /// The JSON of the earlier run
        old: PathBuf,
        /// The JSON of the later run
        new: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// Scenarios, or groups of them, such as ping-pong; `bellwire bench list` has all [default: all]
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenarios: Vec<String>,
    /// Contenders to measure beside Bellwire; `bellwire` means none [default: all]
    #[arg(long, value_name = "PEER", value_delimiter = ',')]
    pub(crate) against: Vec<String>,
    /// Calls a second in scenarios of single calls, or max: as fast as one follows the other
    #[arg(long, value_name = "N|max", value_parser = rate)]
    pub(crate) rate: Option<Schedule>,
    /// Bytes of a message, in place of those of the scenarios that have one; 8 to 16m, such as 300, 4k, 1m
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub(crate) size: Option<usize>,
    /// How long a sample lasts [default: 10ms; longer where processes sleep]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// How often to measure each, at least 5
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = clap::value_parser!(u32).range(5..=1_000))]
    pub(crate) rounds: u32,
    /// The processors of the measuring end and of the server [default: the first two allowed]
    #[arg(long, value_name = "A,B", value_parser = pin)]
    pub(crate) pin: Option<(usize, usize)>,
    /// Write the figures as one JSON object; - for standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the figures as CSV; - for standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write each latency while the run goes on, with its round and placement: CSV if FILE ends in .csv, else JSON lines
    #[arg(long, value_name = "FILE")]
    pub(crate) stream: Option<PathBuf>,
    /// Write a report: Markdown, JSON, CSV and pictures
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// One short round, wherever the processors are, and any build: shows that it works; its figures are meaningless
    #[arg(long)]
    pub(crate) quick: bool,
    /// For tests of this program: the server of PEER falsifies one answer in N
    #[arg(long, hide = true, value_name = "PEER=N", value_parser = falsify)]
    pub(crate) falsify: Option<(String, u64)>,
}

fn rate(text: &str) -> Result<Schedule, String> {
    if text == "max" {
        return Ok(Schedule::Max);
    }
    match text.parse() {
        Ok(rate @ 1..=1_000_000) => Ok(Schedule::Rate(rate)),
        _ => Err("it must be max or a number from 1 to 1000000".to_owned()),
    }
}

fn size(text: &str) -> Result<usize, String> {
    let lower = text.to_ascii_lowercase();
    let (digits, shift) = match lower.strip_suffix('k') {
        Some(digits) => (digits, 10),
        None => lower.strip_suffix('m').map_or((lower.as_str(), 0), |digits| (digits, 20)),
    };
    let bytes = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(1 << shift));
    let bytes = bytes.filter(|bytes| (8..=16 << 20).contains(bytes));
    bytes.ok_or_else(|| "expected a size from 8 to 16m, such as 64, 4k or 1m".to_owned())
}

fn falsify(text: &str) -> Result<(String, u64), String> {
    let (peer, often) = text.split_once('=').ok_or("expected PEER=N")?;
    Ok((peer.to_owned(), often.parse().map_err(|_| "expected PEER=N")?))
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a time from 1ms to 60s, such as 20ms".to_owned();
    let time = humantime::parse_duration(text).map_err(|_| wrong())?;
    let fits = (Duration::from_millis(1)..=Duration::from_secs(60)).contains(&time);
    if fits { Ok(time) } else { Err(wrong()) }
}

fn pin(text: &str) -> Result<(usize, usize), String> {
    let wrong = || "expected two processors that this process may use, such as 0,1".to_owned();
    let (client, server) = text.split_once(',').ok_or_else(wrong)?;
    let cpu = |text: &str| text.trim().parse::<usize>().map_err(|_| wrong());
    let (client, server) = (cpu(client)?, cpu(server)?);
    if client == server { Err(wrong()) } else { Ok((client, server)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_limits() {
        assert_eq!(size("300"), Ok(300));
        assert_eq!((size("4k"), size("1M")), (Ok(4 << 10), Ok(1 << 20)));
        for wrong in ["", "7", "17m", "k", "1g", "-8", "99999999999999999999k"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_durations_and_processors_are_checked() {
        assert_eq!((rate("max"), rate("1000")), (Ok(Schedule::Max), Ok(Schedule::Rate(1_000))));
        assert!(rate("0").is_err() && rate("fast").is_err() && rate("1000001").is_err());
        assert_eq!(duration("20ms"), Ok(Duration::from_millis(20)));
        assert!(duration("0s").is_err() && duration("2min").is_err() && duration("x").is_err());
        assert_eq!(pin("2, 0"), Ok((2, 0)));
        assert!(pin("1").is_err() && pin("1,1").is_err() && pin("a,b").is_err());
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }
}
