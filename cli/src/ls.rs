//! `bellwire ls`: lists which services the run dir holds and who serves them.

use std::io::Write;
use std::time::Duration;

use bellwire::{EndpointInfo, ListError, Liveness, RunDir, netipc};
use serde::Serialize;

use crate::args::Output;
use crate::config;
use crate::exit::{Exit, Failure, chain};
use crate::out::{self, Align, BAD, Cell, Column, FAINT, Format, GOOD, Table, WARN};
use crate::stat::StatsQuery;

/// List the endpoints in the run dir: the services and their providers
#[derive(Debug, clap::Args)]
#[command(after_help = "\
States of an endpoint:
  alive      A provider listens.
  stale      Its provider was killed: the next provider replaces it.
  netipc     Its provider speaks Netdata's plugin-ipc, and not Bellwire.
  activated  systemd listens, and starts the provider at the first call.
  squatted   A process listens without holding the lock, or it is not a socket. Remove it.
  unknown    This user cannot see who listens or serves; root can.

Exit code 0 if there is a run dir, even an empty one; 3 if there is none.

Examples:
  bellwire ls
  bellwire --run-dir /run/mine ls -o json | jq '.endpoints[] | select(.state == \"alive\").pid'")]
pub(crate) struct Ls {
    #[command(flatten)]
    pub(crate) output: Output,
}

/// How long a provider may take to report its counters.
const TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Serialize)]
struct Listing<'a> {
    run_dir: &'a str,
    exists: bool,
    endpoints: Vec<Endpoint>,
}

#[derive(Serialize)]
struct Endpoint {
    service: String,
    state: &'static str,
    pid: Option<u32>,
    /// Permission bits, if the system has them.
    mode: Option<String>,
    /// The system's user number: a uid or a SID.
    user: Option<String>,
    owner: Option<String>,
    /// Sessions of clients that speak netipc, now and so far; `None` if the provider does not report them.
    netipc: Option<u64>,
    netipc_admitted: Option<u64>,
    address: String,
    path: String,
}

pub(crate) fn run(run_dir: &RunDir, args: &Ls) -> Result<Exit, Failure> {
    let dir = run_dir.path().display().to_string();
    let listed = match run_dir.endpoints() {
        Ok(listed) => listed,
        Err(error) => {
            if is_missing(&error) && args.output.is_json() {
                out::json_line(&Listing { run_dir: &dir, exists: false, endpoints: Vec::new() })?;
            }
            return Err(unlisted(run_dir, &error));
        }
    };
    let endpoints: Vec<Endpoint> = listed.iter().map(|info| Endpoint::of(run_dir, info)).collect();
    match args.output.format() {
        Format::Json => out::json_line(&Listing { run_dir: &dir, exists: true, endpoints })?,
        Format::Table if endpoints.is_empty() => {
            let _ = writeln!(anstream::stderr(), "no endpoints in {dir}");
        }
        Format::Table => table(&endpoints).show()?,
    }
    Ok(Exit::Ok)
}

/// Explains why a run dir could not be listed.
pub(crate) fn unlisted(run_dir: &RunDir, error: &ListError) -> Failure {
    if is_missing(error) {
        let dir = run_dir.path().display();
        return Failure::new(Exit::Absent, format!("there is no run dir {dir}"))
            .next("start a provider, which makes it, or name another with --run-dir DIR");
    }
    Failure::new(Exit::Failed, chain(error))
        .next("run as the owner of the run dir or as root, or name another with --run-dir DIR")
}

fn is_missing(error: &ListError) -> bool {
    error.source.kind() == std::io::ErrorKind::NotFound
}

fn table(endpoints: &[Endpoint]) -> Table {
    let or_dash = |text: Option<&String>| text.map_or("-", String::as_str).to_owned();
    let number = |number: Option<u64>| number.map_or("-".into(), |number| number.to_string());
    let state = |endpoint: &Endpoint| match endpoint.state {
        "alive" => GOOD,
        "stale" | "netipc" => WARN,
        "squatted" => BAD,
        _ => FAINT,
    };
    // Users who may write the socket may connect.
    let access =
        |mode: Option<&String>| if mode.is_none_or(|mode| mode == "0600") { FAINT } else { BAD };
    let mut rows = Table::of(endpoints)
        .left("SERVICE", |endpoint| endpoint.service.as_str())
        .left("STATE", |endpoint| Cell::new(endpoint.state).style(state(endpoint)))
        .right("PID", |endpoint| number(endpoint.pid.map(u64::from)))
        .left("MODE", |endpoint| {
            let mode = endpoint.mode.as_ref();
            Cell::new(or_dash(mode)).style(access(mode))
        })
        .left("OWNER", |endpoint| or_dash(endpoint.owner.as_ref().or(endpoint.user.as_ref())));
    // Omitted where no netipc client was ever admitted.
    if endpoints.iter().any(|endpoint| endpoint.netipc_admitted > Some(0)) {
        rows = rows.right("NETIPC", |endpoint| Cell::new(number(endpoint.netipc)).style(WARN));
    }
    let address = Column::new("ADDRESS", Align::Left).narrowest(16);
    rows.column(address, |endpoint| Cell::new(&endpoint.address).style(FAINT)).table()
}

/// Providers of plugin-ipc hold no lock. Unlike a squatter's, their answers say what they are.
fn speaks_netipc(run_dir: &RunDir, info: &EndpointInfo) -> bool {
    let config = config::client().connect_timeout(TIMEOUT);
    netipc::is_netipc_provider(run_dir, info.service, &config).unwrap_or(false)
}

impl Endpoint {
    fn of(run_dir: &RunDir, info: &EndpointInfo) -> Self {
        let (state, pid) = match info.liveness {
            Liveness::Alive(pid) => ("alive", pid),
            Liveness::Stale => ("stale", None),
            Liveness::Squatted if speaks_netipc(run_dir, info) => ("netipc", None),
            Liveness::Squatted => ("squatted", None),
            Liveness::Activated => ("activated", None),
            Liveness::Unknown => ("unknown", None),
        };
        let asker = StatsQuery { run_dir, timeout: TIMEOUT, version: None };
        let provider = matches!(info.liveness, Liveness::Alive(_)).then(|| asker.one(info.service));
        let stats = provider.as_ref().and_then(|provider| provider.stats());
        let owner = info.owner;
        Self {
            service: info.service.to_string(),
            state,
            pid,
            mode: info.mode.map(|mode| format!("{mode:04o}")),
            user: owner.map(|user| user.to_string()),
            owner: owner.and_then(bellwire_doctor::account),
            netipc: stats.map(|stats| stats.netipc_sessions),
            netipc_admitted: stats.map(|stats| stats.netipc_admitted),
            address: info.address.clone(),
            path: info.path.display().to_string(),
        }
    }
}
