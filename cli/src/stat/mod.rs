//! `bellwire stat`: a provider's counters, and the initial terms of a session with it.

pub(crate) mod args;
mod provider;
mod watch;

use std::collections::BTreeMap;
use std::io::Write;

use bellwire::{Backend, IncidentKind, RunDir, ServerReport, ServerStats, UserIncidents};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::exit::{Exit, Failure};
use crate::openmetrics;
use crate::out::{self, Align, BAD, Cell, Column, FAINT, GOOD, Table, WARN, bytes, count, span};
use args::{Stat, StatFormat};
pub(crate) use provider::{Provider, QueryResult, StatsQuery};

#[derive(Serialize)]
struct Report<'a> {
    run_dir: &'a str,
    services: Vec<Row>,
}

/// One service.
#[derive(Serialize)]
struct Row {
    service: String,
    state: &'static str,
    /// The provider's process id.
    pid: Option<u32>,
    /// How long the handshake took.
    nanos: Option<u64>,
    generation: Option<u64>,
    request_lane: Option<u64>,
    answer_lane: Option<u64>,
    max_request: Option<u64>,
    /// Why the session is not open.
    why: Option<String>,
    /// This service's counters, by name.
    stats: Option<Map<String, Value>>,
    /// The server that it belongs to.
    server: Option<Server>,
}

#[derive(Serialize)]
struct Server {
    pid: u32,
    /// Seconds since 1970.
    started: f64,
    workers: u32,
    /// The wait mechanism of its reactor, if reported.
    backend: Option<&'static str>,
    /// The requested wait mechanism.
    backend_requested: Option<&'static str>,
    max_sessions: u64,
    max_in_flight: u64,
    /// Over all its services.
    total: Map<String, Value>,
    /// By user, if reported.
    incidents: Option<Vec<Incidents>>,
}

/// A user's incidents, by kind.
#[derive(Serialize)]
struct Incidents {
    /// All others together if null.
    user: Option<String>,
    #[serde(flatten)]
    counts: Map<String, Value>,
}

pub(crate) fn run(run_dir: &RunDir, args: &Stat) -> Result<Exit, Failure> {
    let asker = StatsQuery { run_dir, timeout: args.timeout, version: args.service_version };
    if args.watch {
        return watch::run(&asker, args);
    }
    let providers = ask(&asker, args)?;
    print(run_dir, args.output.format(), &providers)?;
    Ok(verdict(&providers))
}

fn ask(asker: &StatsQuery<'_>, args: &Stat) -> Result<Vec<Provider>, Failure> {
    match args.service {
        Some(service) => Ok(vec![asker.one(service)]),
        None => asker.all(),
    }
}

/// Returns the exit status: that of the first problem.
fn verdict(providers: &[Provider]) -> Exit {
    let verdicts = providers.iter().map(Provider::verdict);
    verdicts.into_iter().find(|exit| *exit != Exit::Ok).unwrap_or(Exit::Ok)
}

fn print(run_dir: &RunDir, format: StatFormat, providers: &[Provider]) -> Result<(), Failure> {
    match format {
        StatFormat::Json => {
            let run_dir = &run_dir.path().display().to_string();
            let services = providers.iter().map(Row::of).collect();
            out::json_line(&Report { run_dir, services })?;
        }
        StatFormat::Openmetrics => {
            let text = openmetrics::render(providers, &BTreeMap::new());
            out::write_all(text.as_bytes())?;
        }
        StatFormat::Table if providers.is_empty() => {
            let _ = writeln!(anstream::stderr(), "nobody serves in {}", run_dir.path().display());
        }
        StatFormat::Table => tables(providers)?,
    }
    Ok(())
}

impl Row {
    fn of(provider: &Provider) -> Self {
        let (state, why) = match &provider.result {
            QueryResult::Open => ("open", None),
            QueryResult::Refused(_, why) => ("refused", Some(why.to_string())),
            QueryResult::Absent => ("absent", None),
            QueryResult::Failed(_, why) => ("failed", Some(why.clone())),
        };
        let terms = provider.terms;
        Self {
            service: provider.service.to_string(),
            state,
            pid: provider.pid,
            nanos: provider.took.and_then(|took| u64::try_from(took.as_nanos()).ok()),
            generation: terms.map(|terms| terms.generation),
            request_lane: terms.map(|terms| terms.requests.size),
            answer_lane: terms.map(|terms| terms.answers.size),
            max_request: terms.map(|terms| terms.max_request),
            why,
            stats: provider.stats().map(by_name),
            server: provider.report.as_ref().map(Server::of),
        }
    }
}

impl Server {
    fn of(report: &ServerReport) -> Self {
        Self {
            pid: report.pid,
            started: openmetrics::seconds(report.started),
            workers: report.workers,
            backend: report.backend.map(Backend::as_str),
            backend_requested: report.backend.map(|_| report.backend_requested.as_str()),
            max_sessions: report.max_sessions,
            max_in_flight: report.max_in_flight,
            total: by_name(&report.total),
            incidents: report
                .incidents
                .as_ref()
                .map(|rows| rows.iter().map(Incidents::of).collect()),
        }
    }
}

impl Incidents {
    fn of(row: &UserIncidents) -> Self {
        let counts = row.counts.iter().map(|(kind, count)| (kind.to_string(), count.into()));
        Self { user: row.user.map(|user| user.to_string()), counts: counts.collect() }
    }
}

/// Returns the counters by name, and the requests in flight.
fn by_name(stats: &ServerStats) -> Map<String, Value> {
    let counters = ServerStats::NAMES.into_iter().zip(stats.values());
    let named = counters.map(|(name, value)| (name.to_owned(), value.into()));
    named.chain([("in_flight".to_owned(), stats.in_flight().into())]).collect()
}

fn right(title: &'static str) -> Column {
    Column::new(title, Align::Right)
}

fn tables(providers: &[Provider]) -> Result<(), Failure> {
    let mut stdout = out::stdout();
    sessions(providers).print(&mut stdout, out::width())?;
    for row in providers.iter().map(Row::of) {
        if let Some(why) = row.why {
            writeln!(stdout, "{FAINT}{}: {why}{FAINT:#}", row.service)?;
        }
    }
    if providers.iter().any(|provider| provider.report.is_some()) {
        writeln!(stdout)?;
        counters(providers).print(&mut stdout, out::width())?;
        writeln!(stdout)?;
        doorbells(providers).print(&mut stdout, out::width())?;
    }
    let reports = providers.iter().filter_map(|provider| provider.report.as_ref());
    let servers: BTreeMap<_, _> = reports.map(|report| (report.pid, report)).collect();
    if servers.values().any(|report| report.incidents.as_ref().is_some_and(|rows| !rows.is_empty()))
    {
        writeln!(stdout)?;
        incidents(&servers).print(&mut stdout, out::width())?;
    }
    Ok(stdout.flush()?)
}

/// Lists the providers, and the initial terms of a session.
fn sessions(providers: &[Provider]) -> Table {
    let style = |provider: &Provider| match provider.result {
        QueryResult::Open => GOOD,
        QueryResult::Refused(..) => WARN,
        QueryResult::Absent => FAINT,
        QueryResult::Failed(..) => BAD,
    };
    let or_dash = |value: Option<String>| value.unwrap_or("-".into());
    let number = |value: Option<u64>| or_dash(value.map(|value| value.to_string()));
    let rows = providers.iter().map(|provider| (provider, Row::of(provider)));
    Table::of(rows)
        .left("SERVICE", |(_, row)| row.service.clone())
        .left("STATE", |(provider, row)| Cell::new(row.state).style(style(provider)))
        .right("PID", |(_, row)| number(row.pid.map(u64::from)))
        .right("OPENED IN", |(provider, _)| or_dash(provider.took.map(span)))
        .right("GENERATION", |(_, row)| number(row.generation))
        .right("REQUESTS", |(_, row)| or_dash(row.request_lane.map(bytes)))
        .right("ANSWERS", |(_, row)| or_dash(row.answer_lane.map(bytes)))
        .right("LONGEST", |(_, row)| or_dash(row.max_request.map(bytes)))
        .table()
}

/// Lists the counters since the providers started.
fn counters(providers: &[Provider]) -> Table {
    let bad = |value: u64| {
        Cell::new(count(value)).style(if value > 0 { WARN } else { anstyle::Style::new() })
    };
    Table::of(providers.iter().filter_map(|each| Some((each.service, each.stats()?))))
        .left("SERVICE", |(service, _)| service.to_string())
        .right("SESSIONS", |(_, stats)| count(stats.sessions))
        .right("ACCEPTED", |(_, stats)| count(stats.accepted))
        .right("ANSWERED", |(_, stats)| count(stats.answered))
        .right("REFUSED", |(_, stats)| bad(stats.refused))
        .right("LOST", |(_, stats)| bad(stats.lost))
        .right("IN FLIGHT", |(_, stats)| count(stats.in_flight()))
        .right("ERRORS", |(_, stats)| bad(stats.errors))
        .table()
}

/// Lists the servers' wait mechanisms, and the doorbells of both sides of the open sessions.
fn doorbells(providers: &[Provider]) -> Table {
    let rows = providers.iter().filter_map(|each| {
        let stats = each.stats().copied().unwrap_or_default();
        Some((each.service, stats, each.report.as_ref()?))
    });
    Table::of(rows)
        .left("SERVICE", |(service, ..)| service.to_string())
        .left("WAITS WITH", |(_, _, report)| waits_with(report))
        .left("RUNG BY", |(_, stats, _)| {
            let by_event = stats.sessions.saturating_sub(stats.socket_rung);
            kinds([("eventfd", by_event), ("socket", stats.socket_rung)])
        })
        .left("CLIENTS RUNG BY", |(_, stats, _)| {
            kinds([
                ("futex", stats.clients_by_futex),
                ("eventfd", stats.clients_by_eventfd),
                ("socket", stats.clients_by_socket),
            ])
        })
        .table()
}

/// Lists the servers' incidents by user and kind; kinds that never happened are left out.
fn incidents(servers: &BTreeMap<u32, &ServerReport>) -> Table {
    let rows = || {
        servers
            .iter()
            .flat_map(|(pid, report)| report.incidents.iter().flatten().map(move |row| (*pid, row)))
    };
    let mut kinds = IncidentKind::ALL.to_vec();
    kinds.retain(|kind| rows().any(|(_, row)| row.counts.of(*kind) > 0));
    let left = [right("PID"), Column::new("INCIDENTS OF", Align::Left)];
    let columns = left.into_iter().chain(kinds.iter().map(|kind| right(kind.as_str())));
    let mut table = Table::new(columns.collect::<Vec<_>>());
    for (pid, row) in rows() {
        let user = row.user.map_or_else(|| "others".to_owned(), |user| user.to_string());
        let counts = kinds.iter().map(|kind| Cell::new(count(row.counts.of(*kind))));
        let who = [Cell::new(pid.to_string()), Cell::new(user)];
        table.row(who.into_iter().chain(counts).collect::<Vec<_>>());
    }
    table
}

/// Returns a reactor's wait mechanism, and the requested one if it was not available.
fn waits_with(report: &ServerReport) -> Cell {
    let requested = report.backend_requested;
    match report.backend {
        None => Cell::new("-"),
        Some(backend) if requested == Backend::Auto || requested == backend => {
            Cell::new(backend.as_str())
        }
        Some(backend) => Cell::new(format!("{backend}, not {requested}")).style(WARN),
    }
}

/// Returns how many sessions there are of each kind that occurs.
fn kinds<const N: usize>(kinds: [(&str, u64); N]) -> String {
    let there = kinds.into_iter().filter(|(_, sessions)| *sessions > 0);
    let parts: Vec<_> =
        there.map(|(kind, sessions)| format!("{kind} {}", count(sessions))).collect();
    if parts.is_empty() { "-".into() } else { parts.join(", ") }
}
