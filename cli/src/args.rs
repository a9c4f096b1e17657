use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bellwire::{Admission, RunDir, ServiceName, User, doctor};
use bellwire_cgroups::Orchestrator;
use clap::builder::PossibleValue;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

use crate::bench::args::{BenchLoad, BenchServer};
use crate::out::{Color, Format};
use bellwire_cgroups::scan::Limits;

/// Run, watch and check Bellwire services on this machine.
///
/// Bellwire is shared-memory IPC between the processes of one machine. Clients find providers in a run dir.
#[derive(Debug, Parser)]
#[command(name = "bellwire", version, after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
#[command(propagate_version = true, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// The directory in which providers listen and clients look for them [env: BELLWIRE_RUN_DIR] [default: bellwire in
    /// XDG_RUNTIME_DIR, or /run/bellwire if that is not set; on Windows in LOCALAPPDATA]
    #[arg(long, global = true, value_name = "DIR")]
    run_dir: Option<PathBuf>,

    /// A file with the token of the providers, 32 hexadecimal digits; overrides BELLWIRE_TOKEN
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// A user, by name or number, whose providers are trusted in addition to this user's and root's; can be repeated
    #[arg(long, global = true, value_name = "USER", value_parser = user)]
    pub(crate) trust: Vec<User>,

    /// When to use colors; NO_COLOR is respected
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    #[arg(hide_possible_values = true, help = "When to use colors: auto, always or never")]
    pub(crate) color: Color,
}

const EXIT_CODES: &str = "\
Exit codes:
  0    success; also if the reader of the output closed the pipe
  1    something failed, or a check failed
  2    the command line is wrong
  3    no process provides the service, or there is no run dir
  4    the provider refused the session, or supports no common protocol version
  5    timeout
  6    the provider exited or violated the protocol
  7    another process provides the service already
  8    get: a requested item is not known, or is too large for a message
  9    get: a requested item is not known yet; try again later
  10   provide: this system does not have what the service reports
  130  SIGINT (Ctrl-C) ended the command early; 143: SIGTERM did

Examples:
  bellwire demo                       run a demo between two processes
  bellwire doctor                     check whether Bellwire works on this machine
  bellwire provide cgroups            serve this machine's cgroups...
  bellwire get cgroups                ...and print them in another process
  bellwire ls                         list the services and their providers
  bellwire stat                       print the counters of each provider
  bellwire top                        show all sessions of this machine, live";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(Demo),
    Provide(Provide),
    Get(Get),
    Ping(Ping),
    Ls(Ls),
    Stat(Stat),
    Top(Top),
    Export(Export),
    Doctor(Doctor),
    /// Run benchmarks between real processes: `reactor` is built in, all others need bellwire-bench to be installed
    #[command(disable_help_flag = true)]
    Bench {
        /// The benchmark and its options; see `bellwire bench --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Show where the time of messages goes in running processes; needs bellwire-trace to be installed
    #[command(disable_help_flag = true)]
    Trace {
        /// The command of bellwire-trace and its options; see `bellwire trace help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Print a completion script for a shell
    #[command(after_help = "\
Examples:
  bellwire completions bash > /etc/bash_completion.d/bellwire
  bellwire completions zsh > ~/.zfunc/_bellwire")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// The provider process of the demo
    #[command(hide = true)]
    DemoProvider(DemoProvider),
    /// The consumer process of the demo
    #[command(hide = true)]
    DemoConsumer,
    /// The server process of a benchmark
    #[command(hide = true)]
    BenchServer(BenchServer),
    /// A client process of a benchmark
    #[command(hide = true)]
    BenchLoad(BenchLoad),
}

/// Run a demo: a provider and a consumer process, cgroups that come and go, and figures each second
///
/// Starts two processes in a private run dir, creates and removes cgroups if permitted (names bellwire-demo-…; synthetic
/// cgroups on a system without cgroups), and checks every answer. Halfway there is a burst: a snapshot of 100 000
/// synthetic cgroups, and messages of up to 16 MiB, for which lanes grow and then shrink again without a new session.
/// Removes everything that it created, also after Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each rate is per second of its activity: in every 50 ms the consumer calls for 20 ms, refreshes for
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
    /// Print one JSON object at the end, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// The maximum number of cgroups at a time; 0 creates none
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(..=1_000))]
    pub(crate) cgroups: u16,
}

/// What can be provided and printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Subject {
    /// This machine's cgroups: the service cgroups-snapshot
    Cgroups,
    /// Information about a cgroup by its path: the service cgroups-lookup
    CgroupsLookup,
    /// Information about a process by its pid: the service apps-lookup
    Apps,
}

/// Provide a service until Ctrl-C (SIGINT) or SIGTERM
#[derive(Debug, clap::Args)]
#[command(after_help = "\
cgroups: publishes a snapshot after each change, and reports on stderr. On a system without
cgroups, such as Windows, it provides 1000 synthetic ones, with a warning.
cgroups-lookup, apps: answer requests from /sys/fs/cgroup and /proc. On a system without
these the command fails with exit code 10.

Examples:
  bellwire provide cgroups
  bellwire provide cgroups --interval 250ms --verbose
  bellwire provide cgroups --synthetic 5000
  bellwire provide apps
  bellwire provide cgroups-lookup --interval 5s
  bellwire --run-dir /run/mine provide cgroups --root /sys/fs/cgroup/unified")]
pub(crate) struct Provide {
    /// What to provide
    #[arg(value_enum, value_name = "SUBJECT")]
    pub(crate) subject: Subject,
    /// The mount point of the cgroup hierarchies or, for apps, of proc [default: /sys/fs/cgroup, or /proc]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Provide this many synthetic cgroups, which do not change, instead of this machine's
    #[arg(long, value_name = "N", conflicts_with = "root")]
    pub(crate) synthetic: Option<usize>,
    /// How often to scan for changes; cgroups-lookup: the maximum age of an answer
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) interval: Duration,
    /// The maximum number of cgroups; further ones are left out
    #[arg(long, default_value_t = Limits::default().items, value_name = "N")]
    pub(crate) max_cgroups: usize,
    /// The maximum depth below the root of a hierarchy; deeper cgroups are left out
    #[arg(long, default_value_t = Limits::default().depth, value_name = "LEVELS")]
    pub(crate) max_depth: usize,
    /// Whose clients are admitted in addition to this user's and root's: same-user, group:GROUP, user:USER[,USER...] or any, by
    /// name or number; sets the group and the mode of the socket, and of the run dir if it is created
    #[arg(long, default_value = "same-user", value_name = "WHO", value_parser = admission)]
    pub(crate) admit: Admission,
    /// Report every generation
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

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
  bellwire get cgroups --filter cron --format json | jq '.cgroups[].path'
  bellwire get cgroups --watch")]
pub(crate) struct Get {
    /// What to print
    #[arg(value_enum, value_name = "SUBJECT")]
    pub(crate) subject: Subject,
    /// apps: pids; cgroups-lookup: paths; - reads them from stdin, one per line
    #[arg(value_name = "PID|PATH", required_if_eq_any = [("subject", "apps"), ("subject", "cgroups-lookup")])]
    pub(crate) keys: Vec<String>,
    /// Print every change until SIGINT, and wait for a provider that is absent
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// The output format; JSON is one object per line, with --watch one for each change
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// How long to wait for the first snapshot or the answers [default: 2s; with --watch no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Print only cgroups whose name or path contains this text
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// Print only cgroups of this orchestrator; can be repeated
    #[arg(long, value_enum, value_name = "WHO")]
    pub(crate) orchestrator: Vec<RunBy>,
}

/// An [`Orchestrator`] on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunBy(pub(crate) Orchestrator);

impl ValueEnum for RunBy {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [RunBy; 8] = [
            RunBy(Orchestrator::Unknown),
            RunBy(Orchestrator::Systemd),
            RunBy(Orchestrator::Docker),
            RunBy(Orchestrator::K8s),
            RunBy(Orchestrator::Kvm),
            RunBy(Orchestrator::Lxc),
            RunBy(Orchestrator::Podman),
            RunBy(Orchestrator::Nspawn),
        ];
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.as_str()))
    }
}

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
  bellwire ping my-service --method 7")]
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
    /// Measure handshakes with this method number, even if the service is known
    #[arg(long, value_name = "N")]
    pub(crate) method: Option<u32>,
}

/// List the endpoints in the run dir: the services and their providers
#[derive(Debug, clap::Args)]
#[command(after_help = "\
\"stale\" is the endpoint of a killed provider: the next provider replaces it. \"squatted\" is an invalid
endpoint: a process listens on it without holding the lock, or it is not a socket. Remove it.
Exit code 0 if there is a run dir, even an empty one; 3 if there is none.

Examples:
  bellwire ls
  bellwire --run-dir /run/mine ls --format json | jq '.endpoints[] | select(.state == \"alive\").pid'")]
pub(crate) struct Ls {
    /// The output format
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: Format,
}

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
  bellwire stat --format openmetrics
  bellwire stat --format json | jq '.services[] | select(.state == \"open\").stats.accepted'")]
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
    /// The output format; JSON is one object per line
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: StatFormat,
    /// How long to wait for each answer
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) timeout: Duration,
    /// Query this method number of the service, instead of the counters
    #[arg(long, value_name = "N", conflicts_with = "watch")]
    pub(crate) method: Option<u32>,
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

/// Show the sessions of all processes, live, without their cooperation
///
/// Finds sessions by the names of their memory, and reads the counters in the page of each end. It needs neither a run dir
/// nor an answer of a provider, and changes nothing. On Linux it needs root, or the same user if kernel.yama.ptrace_scope
/// is 0. Not available on Windows.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys: q quits; c, r, e, u, p, s sort by calls/s, p99, errors, use, peer, service; i inverts the
order; up, down, PgUp, PgDn, Home, End move. CALLS/S, ERR/S and latencies are of the last interval.
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
    /// Scan twice, one interval apart, print one table and exit
    #[arg(long)]
    pub(crate) once: bool,
    /// The same, but print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Serve the counters of all providers over HTTP, for Prometheus and other scrapers
///
/// Each GET of /metrics queries the providers in the run dir, and responds in the text format of OpenMetrics 1.0. There is
/// no encryption and no authentication: listen on a loopback address.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bellwire export --listen 127.0.0.1:9464
  curl --silent http://127.0.0.1:9464/metrics")]
pub(crate) struct Export {
    /// The address to listen on; port 0 selects a free port, which is printed
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: SocketAddr,
    /// How long to wait for each provider
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) timeout: Duration,
}

/// Check each feature of this system that Bellwire uses, and the limits that may be too low
///
/// Tries the features, instead of deriving them from a version number. Changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code 0 if everything required works, otherwise 1. Optional features do not count.

Examples:
  bellwire doctor
  bellwire doctor --json | jq '.probes[] | select(.state != \"ok\")'")]
pub(crate) struct Doctor {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DemoProvider {
    /// The mount point of the cgroup hierarchies; without it, synthetic cgroups.
    #[arg(long)]
    pub(crate) root: Option<PathBuf>,
    #[arg(long, value_parser = positive_duration)]
    pub(crate) interval: Duration,
}

impl Get {
    /// Returns the output format.
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

impl Args {
    /// Exits the program as for a wrong command line.
    pub(crate) fn refuse(why: impl std::fmt::Display) -> ! {
        Self::command().error(clap::error::ErrorKind::ValueValidation, why).exit()
    }

    pub(crate) fn run_dir(&self) -> RunDir {
        match &self.run_dir {
            Some(path) => RunDir::new(path),
            None => RunDir::from_environment(),
        }
    }
}

/// Parses `250ms`, `2s` or `1m 30s`; a number without a unit is in seconds, as in ping(8).
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string());
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; write it as 250ms, 2s or 1m"))
}

/// Parses a user, by its number or its name.
fn user(text: &str) -> Result<User, String> {
    let number = text.parse().ok();
    number.or_else(|| doctor::user_named(text)).ok_or_else(|| format!("there is no user {text}"))
}

fn admission(text: &str) -> Result<Admission, String> {
    match text.split_once(':') {
        None if text == "same-user" => Ok(Admission::SameUser),
        None if text == "any" => Ok(Admission::Any),
        Some(("user", users)) => {
            users.split(',').map(user).collect::<Result<_, _>>().map(Admission::Users)
        }
        Some(("group", group)) => {
            let number = group.parse().ok();
            let group = number.or_else(|| doctor::group_named(group));
            group.map(Admission::Group).ok_or_else(|| format!("there is no such group: {text}"))
        }
        _ => Err("must be same-user, group:GROUP, user:USER[,USER...] or any".into()),
    }
}

pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be more than 0".into()),
        duration => Ok(duration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_valid() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_orchestrator_can_be_named() {
        let known = RunBy::value_variants().iter().map(|by| by.0);
        assert!(known.eq(Orchestrator::ALL));
    }

    #[test]
    fn times_have_a_unit_or_are_seconds() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("0.5"), Ok(Duration::from_millis(500)));
        assert!(duration("-1").is_err());
        assert!(duration("soon").unwrap_err().contains("250ms"));
        assert!(positive_duration("0s").is_err());
    }
}
