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
use crate::soak::Plant;
use bellwire_cgroups::scan::Limits;

/// Run, watch and check Bellwire services on this machine.
///
/// Bellwire is shared-memory IPC between the processes of one machine. A provider and its clients meet in a
/// run dir.
#[derive(Debug, Parser)]
#[command(name = "bellwire", version, after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
#[command(propagate_version = true, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// The directory in which providers and clients meet [env: BELLWIRE_RUN_DIR] [default: bellwire below
    /// XDG_RUNTIME_DIR, else /run/bellwire; on Windows below LOCALAPPDATA]
    #[arg(long, global = true, value_name = "DIR")]
    run_dir: Option<PathBuf>,

    /// A file with the token of the providers, 32 hexadecimal digits, in place of the one in BELLWIRE_TOKEN
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// A user, besides this one and root, whose providers are trusted, by its name or number; may be given more than once
    #[arg(long, global = true, value_name = "USER", value_parser = user)]
    pub(crate) trust: Vec<User>,

    /// When to use colours; NO_COLOR is respected
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    #[arg(hide_possible_values = true, help = "When to use colours: auto, always or never")]
    pub(crate) color: Color,
}

const EXIT_CODES: &str = "\
Exit codes:
  0    done; every check held; a reader of our output stopped reading
  1    something failed, or a check did not hold
  2    the command line is wrong
  3    nobody provides the service, or there is no run dir
  4    the provider refused, or speaks no common protocol version
  5    the time was over
  6    the provider went away or broke a rule
  7    another process provides the service already
  8    get: something asked for is not known, or too large to be told
  9    get: something asked for is not known yet; ask again later
  10   provide: this system does not have what the service tells of
  130  SIGINT (Ctrl-C) ended it early; 143: SIGTERM did

Examples:
  bellwire demo                       see it work, in two processes of its own
  bellwire doctor                     does this machine have what it takes?
  bellwire provide cgroups            serve this machine's cgroups...
  bellwire get cgroups                ...and look at them from another process
  bellwire ls                         who serves what
  bellwire stat                       what each of them has counted
  bellwire top                        all sessions of this machine, live";

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
    Soak(Soak),
    /// Measure what real processes cost each other: `reactor` here, the rest by bellwire-bench, where it is installed
    #[command(disable_help_flag = true)]
    Bench {
        /// Its command and options; `bellwire bench --help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Show where the time of messages goes, in running processes: bellwire-trace, where it is installed
    #[command(disable_help_flag = true)]
    Trace {
        /// Its command and options; `bellwire trace help` lists them
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
    /// A process of a benchmark that calls
    #[command(hide = true)]
    BenchLoad(BenchLoad),
    /// A provider process of the soak
    #[command(hide = true)]
    SoakProvider(SoakProvider),
    /// A consumer process of the soak
    #[command(hide = true)]
    SoakConsumer(SoakConsumer),
}

/// See it work: a provider and a consumer process, cgroups that come and go, figures each second
///
/// Starts two processes that meet in a private run dir, makes cgroups come and go where it may (names
/// bellwire-demo-…; synthetic cgroups where there are none), and checks every answer. Halfway comes a burst: a snapshot of 100 000 synthetic cgroups,
/// and messages of up to 16 MiB, for which lanes grow and then shrink again while their sessions go on.
/// Removes all that it made, also at Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each rate is per second of that activity: of every 50 ms the consumer calls for 20 ms, refreshes
for 10, looks up for 10 and sleeps for 10. RTT is the time of one call of 64 bytes each way.

Examples:
  bellwire demo
  bellwire demo --seconds 30 --cgroups 20
  bellwire demo --seconds 2 --json | jq .checks
  bellwire demo --json | jq '.lane_changes, .consumer.sessions'")]
pub(crate) struct Demo {
    /// How long to measure
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) seconds: u32,
    /// Print one JSON object at the end, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// How many cgroups to have at most at a time; 0 makes none
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(..=1_000))]
    pub(crate) cgroups: u16,
}

/// What can be provided and looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Subject {
    /// The machine's cgroups, as the service cgroups-snapshot
    Cgroups,
    /// What a cgroup is, by its path, as the service cgroups-lookup
    CgroupsLookup,
    /// Who a process is, by its pid, as the service apps-lookup
    Apps,
}

/// Provide a service until Ctrl-C (SIGINT) or SIGTERM
#[derive(Debug, clap::Args)]
#[command(after_help = "\
cgroups: publishes a snapshot when something changed, and tells on stderr what it does.
A system that knows no cgroups, such as Windows, gets 1000 synthetic ones, and a warning.
cgroups-lookup, apps: answer what they are asked, from /sys/fs/cgroup and /proc. A system that
has neither has no such service: exit code 10.

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
    /// Where the cgroup hierarchies are mounted, or /proc for apps [default: /sys/fs/cgroup, or /proc]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Provide so many synthetic cgroups, which do not change, instead of this machine's
    #[arg(long, value_name = "N", conflicts_with = "root")]
    pub(crate) synthetic: Option<usize>,
    /// How often to look for changes; cgroups-lookup: how old an answer may be
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) interval: Duration,
    /// Leave out what is beyond so many cgroups
    #[arg(long, default_value_t = Limits::default().items, value_name = "N")]
    pub(crate) max_cgroups: usize,
    /// Leave out what is deeper than this below a hierarchy's root
    #[arg(long, default_value_t = Limits::default().depth, value_name = "LEVELS")]
    pub(crate) max_depth: usize,
    /// Who is admitted besides this user and root: same-user, group:GROUP, user:USER[,USER...] or any, by name or number;
    /// sets the group and the mode of the socket, and of the run dir if it is made
    #[arg(long, default_value = "same-user", value_name = "WHO", value_parser = admission)]
    pub(crate) admit: Admission,
    /// Tell of every generation
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// Print a provider's snapshot, or what it knows of processes or cgroups
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 3 nobody provides it, 4 refused, 5 provided but nothing published or answered in time;
apps, cgroups-lookup: 8 something is unknown or too large, 9 something is not known yet.

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
    /// apps: pids; cgroups-lookup: paths; - reads them from stdin, one a line
    #[arg(value_name = "PID|PATH", required_if_eq_any = [("subject", "apps"), ("subject", "cgroups-lookup")])]
    pub(crate) keys: Vec<String>,
    /// Go on: print what changed as soon as it did, and wait for a provider that is away
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// How to print it; JSON is one object a line, with --watch one for each change
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// How long to wait for the first snapshot, or the answers [default: 2s; with --watch no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Only cgroups whose name or path contains this
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// Only cgroups that this runs; may be repeated
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

/// Measure how soon a service answers
///
/// Services that this command knows (cgroups-snapshot, demo-ping) are called, on one session. Any other is
/// measured by handshakes: connect, HELLO, and WELCOME with memory of both ends and READY, or REFUSE.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code 0 when all were answered, 1 when some were, else that of the last failure.

Examples:
  bellwire ping cgroups-snapshot
  bellwire ping cgroups-snapshot -c 1000 -i 0s
  bellwire ping my-service --method 7")]
pub(crate) struct Ping {
    /// The service's name: a-z, 0-9 and -
    #[arg(value_name = "SERVICE")]
    pub(crate) service: ServiceName,
    /// How many; 0 goes on until SIGINT
    #[arg(long, short, default_value_t = 5, value_name = "N")]
    pub(crate) count: u64,
    /// How far apart
    #[arg(long, short, default_value = "1s", value_name = "TIME", value_parser = duration)]
    pub(crate) interval: Duration,
    /// How long to wait for each answer
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) timeout: Duration,
    /// Measure handshakes with this method number, even of a service that could be called
    #[arg(long, value_name = "N")]
    pub(crate) method: Option<u32>,
}

/// List the endpoints of the run dir: who serves what
#[derive(Debug, clap::Args)]
#[command(after_help = "\
\"stale\" is what a killed provider left behind: its next start takes the name over. \"squatted\" is what
is not as it should be: somebody listens without holding the lock, or it is no socket at all: remove it.
Exit code 0 when there is a run dir, even an empty one; 3 when there is none.

Examples:
  bellwire ls
  bellwire --run-dir /run/mine ls --format json | jq '.endpoints[] | select(.state == \"alive\").pid'")]
pub(crate) struct Ls {
    /// How to print it
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: Format,
}

/// Ask each provider what it has counted, and what a session with it starts with
///
/// Any provider answers, whatever it serves. Tells who provides a service, how soon the session was open, the generation
/// of the newest snapshot (0: none was published), the sizes of both lanes and the longest request that both ends
/// allow; and the counters of the service since its provider started. docs/operating.md says what they mean.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code 0 when each answered; 3 nobody provides it, 4 refused, 5 no answer in time.

Examples:
  bellwire stat
  bellwire stat cgroups-snapshot
  bellwire stat cgroups-snapshot --watch
  bellwire stat --format openmetrics
  bellwire stat --format json | jq '.services[] | select(.state == \"open\").stats.accepted'")]
pub(crate) struct Stat {
    /// The service's name [default: each that somebody serves]
    #[arg(value_name = "SERVICE")]
    pub(crate) service: Option<ServiceName>,
    /// Go on: tell what came since the last look, until SIGINT
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// How far apart the looks are, with --watch
    #[arg(long, short, default_value = "1s", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) interval: Duration,
    /// How to print it; JSON is one object a line
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: StatFormat,
    /// How long to wait for each answer
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) timeout: Duration,
    /// Ask for this method number of the service, instead of for counters
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
    /// For Prometheus and its like: the text format of OpenMetrics 1.0
    Openmetrics,
}

/// Watch the sessions of all processes, live, without their help
///
/// Finds sessions by the names of their memory and reads what each end counts in its page. It takes no run dir and no
/// running service to answer, and changes nothing; on Linux it takes root, or the same user where
/// kernel.yama.ptrace_scope is 0. Not available on Windows.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys: q quits; c, r, e, u, p, s sort by calls/s, p99, errors, use, peer, service; i turns the order round;
up, down, PgUp, PgDn, Home, End move. CALLS/S, ERR/S and the latencies are of the last interval; a
latency is of the calls that were timed, rounded up by at most a quarter: docs/operating.md.

Examples:
  bellwire top
  bellwire top --service cgroups-snapshot --interval 250ms
  bellwire top --once
  bellwire top --json | jq '.sessions[] | select(.in_flight > 0)'")]
pub(crate) struct Top {
    /// Only sessions of this service
    #[arg(long, value_name = "SERVICE")]
    pub(crate) service: Option<ServiceName>,
    /// How often to look
    #[arg(long, short, default_value = "1s", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) interval: Duration,
    /// Look twice, one interval apart, print one table and end
    #[arg(long)]
    pub(crate) once: bool,
    /// The same as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Serve the counters of all providers over HTTP, for Prometheus and its like
///
/// Each GET of /metrics asks the providers of the run dir and answers with the text format of OpenMetrics 1.0. There is
/// no encryption and no authentication: listen on a local address.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bellwire export --listen 127.0.0.1:9464
  curl --silent http://127.0.0.1:9464/metrics")]
pub(crate) struct Export {
    /// Where to listen; port 0 takes a free one, and tells which
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: SocketAddr,
    /// How long to wait for each provider
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) timeout: Duration,
}

/// Try each feature of this system that Bellwire uses, and look for limits that bite
///
/// Features are tried, not guessed from a version number. Changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code 0 when all that is required works, else 1. What is optional never counts.

Examples:
  bellwire doctor
  bellwire doctor --json | jq '.probes[] | select(.state != \"ok\")'")]
pub(crate) struct Doctor {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Kill, stop and restart providers and consumers at random, and check every answer and what is left behind
///
/// Two processes live all along, and nobody harms them; a provider and two consumers come to harm beside them.
/// At the end every call must be accounted for, every answer right, and what the first two hold must not have
/// grown. Uses a private run dir; removes all that it made, also at Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A seed decides which faults come, and in which order. Exit code 1 when a check does not hold.

Examples:
  bellwire soak
  bellwire soak --seconds 3600 --sessions 32
  bellwire soak --seed 7 --json | jq '.checks, .faults'")]
pub(crate) struct Soak {
    /// For how long
    #[arg(long, default_value_t = 60, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=604_800))]
    pub(crate) seconds: u32,
    /// How many sessions each consumer has with each provider
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) sessions: u16,
    /// How far apart faults are, on average
    #[arg(long, default_value = "300ms", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) kill_every: Duration,
    /// What chance begins with [default: another one each time]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Print one JSON object at the end, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// A defect to plant, for tests of the soak itself
    #[arg(long, hide = true)]
    pub(crate) plant: Option<Plant>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SoakProvider {
    /// Provide the service whose provider nobody harms.
    #[arg(long)]
    pub(crate) steady: bool,
    #[arg(long)]
    pub(crate) plant: Option<Plant>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SoakConsumer {
    /// Take no answers for a while, now and then.
    #[arg(long)]
    pub(crate) turns_deaf: bool,
    #[arg(long)]
    pub(crate) sessions: u16,
    #[arg(long)]
    pub(crate) who: u64,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) plant: Option<Plant>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DemoProvider {
    /// Where the cgroup hierarchies are mounted; without it, synthetic cgroups.
    #[arg(long)]
    pub(crate) root: Option<PathBuf>,
    #[arg(long, value_parser = positive_duration)]
    pub(crate) interval: Duration,
}

impl Get {
    /// How to print it.
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

impl Args {
    /// Ends the program as for a wrong command line.
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

/// `250ms`, `2s`, `1m 30s`; a bare number is seconds, as with ping(8).
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string());
    }
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write it like 250ms, 2s or 1m"))
}

/// A user by its number or its name.
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
        _ => Err("say same-user, group:GROUP, user:USER[,USER...] or any".into()),
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
    fn the_command_line_is_sound() {
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
