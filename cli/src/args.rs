use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bellwire::{Admission, NameError, RunDir, ServiceName, User, doctor};
use bellwire_cgroups::Orchestrator;
use clap::builder::PossibleValue;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

use crate::bench::args::{BenchLoad, BenchServer};
use crate::out::{Color, Format};
use crate::provide::{Patterns, Spec};
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
    Watch(Watch),
    Call(Call),
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
    /// Write a manual page for each command into a directory
    #[command(hide = true)]
    Manual {
        /// The directory, which exists
        dir: PathBuf,
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
    #[command(flatten)]
    pub(crate) output: Output,
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
What a command of --names gets and prints: docs/services.md.

Examples:
  bellwire provide cgroups
  bellwire provide cgroups --interval 250ms --verbose
  bellwire provide cgroups --synthetic 5000
  bellwire provide apps
  bellwire provide cgroups-lookup --interval 5s
  bellwire provide cgroups --names docker --names file:/etc/bellwire/names
  bellwire provide cgroups --netipc --group-run-dir
  bellwire provide cgroups --enable '!*.mount !*/init.scope *'
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
    /// Serve clients that speak netipc, too, in Netdata's run dir unless another is named [env: NETDATA_RUN_DIR] [default:
    /// /run/netdata]; their token is that of NETDATA_INVOCATION_ID, or of INVOCATION_ID
    #[arg(long)]
    pub(crate) netipc: bool,
    /// Accept a run dir that its group may write, as Netdata's is: who is in that group can take the place of a provider
    #[arg(long)]
    pub(crate) group_run_dir: bool,
    /// Report every generation
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// A source of display names and labels of cgroups: docker[:SOCKET], podman[:SOCKET], k8s[:DIR], file:FILE or command:FILE;
    /// can be repeated, the first that knows a cgroup counts
    #[arg(long, value_name = "SOURCE")]
    pub(crate) names: Vec<Spec>,
    /// The paths of cgroups that a command is run for [default: containers, pods and machines]
    #[arg(long, value_name = "PATTERNS", requires = "names")]
    pub(crate) rename: Option<Patterns>,
    /// How long a source may take for a name; then a command is killed
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) names_timeout: Duration,
    /// How long a name counts until its source is asked again
    #[arg(long, default_value = "10m", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) names_age: Duration,
    /// The paths of cgroups to collect, the others are not enabled: patterns, of which the first that matches decides; * is
    /// anything, ! in front means no
    #[arg(long, value_name = "PATTERNS")]
    pub(crate) enable: Option<Patterns>,
    /// The same, by display names; both have to allow a cgroup
    #[arg(long, value_name = "PATTERNS")]
    pub(crate) enable_names: Option<Patterns>,
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
    #[arg(long, value_enum, value_name = "WHO")]
    pub(crate) orchestrator: Vec<RunBy>,
    /// Of any service: its method number
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) method: u32,
    /// Of any service: print hexadecimal digits, not text
    #[arg(long)]
    pub(crate) hex: bool,
    /// Of any service: print JSON, of a message that this file describes
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

/// Print the events of a service as they come
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints an event that is printable UTF-8 as text, any other as hexadecimal digits, each behind its number; and how many were missed.

Exit codes: 3 no provider, 4 refused, 5 no event in time.

Examples:
  bellwire watch temperature
  bellwire watch temperature --oldest --json | jq .sequence
  bellwire watch temperature --count 1 --timeout 5s")]
pub(crate) struct Watch {
    /// The service
    #[arg(value_name = "SERVICE")]
    pub(crate) service: ServiceName,
    /// Start with the oldest event that the provider keeps, not with the next one
    #[arg(long)]
    pub(crate) oldest: bool,
    /// Stop after so many events
    #[arg(long, short, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// How long to watch [default: until SIGINT]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Print each event as hexadecimal digits
    #[arg(long)]
    pub(crate) hex: bool,
    #[command(flatten)]
    pub(crate) output: Output,
    /// The method number of the service
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) method: u32,
}

/// An [`Orchestrator`] on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunBy(pub(crate) Orchestrator);

impl ValueEnum for RunBy {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [RunBy; 10] = [
            RunBy(Orchestrator::Unknown),
            RunBy(Orchestrator::Systemd),
            RunBy(Orchestrator::Docker),
            RunBy(Orchestrator::K8s),
            RunBy(Orchestrator::Kvm),
            RunBy(Orchestrator::Lxc),
            RunBy(Orchestrator::Podman),
            RunBy(Orchestrator::Nspawn),
            RunBy(Orchestrator::Containerd),
            RunBy(Orchestrator::Nomad),
        ];
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.as_str()))
    }
}

/// Call any service once and print its answer
///
/// The request is text, hexadecimal digits, what stdin has, or, with --proto, JSON that is encoded as Protocol Buffers; without any of
/// these it is empty. An answer is printed as text if it is printable UTF-8, otherwise as hexadecimal digits.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A file of --proto needs no protoc. Its only method has the messages of request and response, unless --request and --response
name them.

Exit codes: 3 no provider, 4 refused, or other types than the provider's, 5 no answer in time, 6 the handler failed.

Examples:
  bellwire call length --text bell
  bellwire call increment --hex 2900000000000000
  bellwire call increment --hex 2900000000000000 --schema 'u64 -> u64'
  bellwire call disk --proto disk.proto --json '{\"name\": \"sda\"}' | jq .reads")]
#[command(group = clap::ArgGroup::new("content"))]
pub(crate) struct Call {
    /// The service's name: a-z, 0-9 and -
    #[arg(value_name = "SERVICE")]
    pub(crate) service: ServiceName,
    /// The service's method number
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(..u32::MAX as i64))]
    pub(crate) method: u32,
    /// The description of both types, of which the fingerprint is the hash; without it the provider's is not compared
    #[arg(long, value_name = "TEXT")]
    pub(crate) schema: Option<String>,
    /// The request, as text
    #[arg(long, value_name = "TEXT", group = "content")]
    pub(crate) text: Option<String>,
    /// The request, as pairs of hexadecimal digits; the answer is printed so, too
    #[arg(long, value_name = "DIGITS", group = "content", value_parser = hex_digits)]
    pub(crate) hex: Option<HexDigits>,
    /// The request, as JSON: of a message of --proto, or without that unchanged
    #[arg(long, value_name = "JSON", group = "content")]
    pub(crate) json: Option<String>,
    /// The request is what stdin has
    #[arg(long, group = "content")]
    pub(crate) stdin: bool,
    /// A file that describes the messages
    #[arg(long, value_name = "FILE", conflicts_with = "raw")]
    pub(crate) proto: Option<PathBuf>,
    /// The message of the request in that file
    #[arg(long, value_name = "MESSAGE", requires = "proto")]
    pub(crate) request: Option<String>,
    /// The message of the answer in that file
    #[arg(long, value_name = "MESSAGE", requires = "proto")]
    pub(crate) response: Option<String>,
    /// Print the bytes of the answer unchanged
    #[arg(long)]
    pub(crate) raw: bool,
    /// The output format; JSON is one object, with the answer as text or as hexadecimal digits
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT", conflicts_with_all = ["raw", "proto"])]
    pub(crate) output: Format,
    /// How long to wait for the answer
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) timeout: Duration,
}

/// Bytes of the command line.
#[derive(Clone, Debug)]
pub(crate) struct HexDigits(pub(crate) Vec<u8>);

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
  bellwire ping my-service --method 7
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
    /// Measure handshakes with this method number, even if the service is known
    #[arg(long, value_name = "N")]
    pub(crate) method: Option<u32>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// List the endpoints in the run dir: the services and their providers
#[derive(Debug, clap::Args)]
#[command(after_help = "\
\"stale\" is the endpoint of a killed provider: the next provider replaces it. \"netipc\" is a provider of
Netdata's plugin-ipc that does not speak Bellwire. \"squatted\" is an invalid endpoint: a process listens
on it without holding the lock, or it is not a socket. Remove it, unless it is systemd that listens, for a
provider that it has not started yet.
Exit code 0 if there is a run dir, even an empty one; 3 if there is none.

Examples:
  bellwire ls
  bellwire --run-dir /run/mine ls -o json | jq '.endpoints[] | select(.state == \"alive\").pid'")]
pub(crate) struct Ls {
    #[command(flatten)]
    pub(crate) output: Output,
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
    /// The output format; JSON is one object per line
    #[arg(
        long,
        short,
        visible_alias = "format",
        short_alias = 'f',
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    output: StatFormat,
    /// The same as --output json
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// How long to wait for each answer
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) timeout: Duration,
    /// Query this method number of the service, instead of the counters
    #[arg(long, value_name = "N", conflicts_with = "watch")]
    pub(crate) method: Option<u32>,
}

/// In which form a command prints.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Output {
    /// The output format; JSON is one object per line
    #[arg(
        long,
        short,
        visible_alias = "format",
        short_alias = 'f',
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    output: Format,
    /// The same as --output json
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

impl Output {
    /// Returns the format.
    pub(crate) fn format(self) -> Format {
        if self.json { Format::Json } else { self.output }
    }

    /// Returns whether a program reads it.
    pub(crate) fn is_json(self) -> bool {
        self.format() == Format::Json
    }
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
/// nor an answer of a provider, and changes nothing; with --run-dir it shows only the sessions of providers that listen there. On Linux it needs root, or the same user if kernel.yama.ptrace_scope
/// is 0. Not available on Windows.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys: q quits; c, r, e, u, p, s sort by calls/s, p99, errors, use, peer, service; i inverts the
order; up, down, PgUp, PgDn, Home, End move; ? shows them. CALLS/S, ERR/S and latencies are of the last interval.
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
    /// The most sessions in that table; 0 for all
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) output: Output,
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
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DemoProvider {
    /// The mount point of the cgroup hierarchies; without it, synthetic cgroups.
    #[arg(long)]
    pub(crate) root: Option<PathBuf>,
    #[arg(long, value_parser = positive_duration)]
    pub(crate) interval: Duration,
}

impl Command {
    /// Returns whether it looks for providers in the run dir, or provides there.
    pub(crate) fn uses_run_dir(&self) -> bool {
        use Command as C;
        matches!(
            self,
            C::Provide(_)
                | C::Get(_)
                | C::Watch(_)
                | C::Call(_)
                | C::Ping(_)
                | C::Ls(_)
                | C::Stat(_)
                | C::Export(_)
        )
    }
}

impl Stat {
    /// Returns the output format.
    pub(crate) fn format(&self) -> StatFormat {
        if self.json { StatFormat::Json } else { self.output }
    }
}

impl Args {
    /// Exits the program as for a wrong command line.
    pub(crate) fn refuse(why: impl std::fmt::Display) -> ! {
        Self::command().error(clap::error::ErrorKind::ValueValidation, why).exit()
    }

    /// Returns the run dir, if the command line names one.
    pub(crate) fn named_run_dir(&self) -> Option<RunDir> {
        self.run_dir.as_ref().map(RunDir::new)
    }

    pub(crate) fn run_dir(&self) -> RunDir {
        let is_named = std::env::var_os(RunDir::VARIABLE).is_some_and(|path| !path.is_empty());
        match &self.run_dir {
            Some(path) => RunDir::new(path),
            None if self.command.speaks_netipc() && !is_named => RunDir::of_netdata(),
            None => RunDir::from_environment(),
        }
    }
}

impl Command {
    fn speaks_netipc(&self) -> bool {
        matches!(self, Self::Provide(Provide { netipc: true, .. }))
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

fn hex_digits(text: &str) -> Result<HexDigits, String> {
    let digits = text.chars().filter(|digit| !digit.is_whitespace());
    let nibbles: Option<Vec<u32>> = digits.map(|digit| digit.to_digit(16)).collect();
    let nibbles = nibbles.filter(|nibbles| nibbles.len() % 2 == 0);
    let nibbles = nibbles.ok_or("expected pairs of hexadecimal digits, such as 29 00ff")?;
    let byte = |pair: &[u32]| pair.iter().fold(0, |byte, nibble| byte << 4 | nibble);
    Ok(HexDigits(nibbles.chunks(2).filter_map(|pair| u8::try_from(byte(pair)).ok()).collect()))
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
