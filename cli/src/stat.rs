//! `bellwire stat`: what a client learns of a service by opening a session.

use std::io::Write;
use std::time::Duration;

use bellwire::{
    ClientConfig, ConnectError, Liveness, Probe, RefuseCode, RunDir, ServiceName, probe,
};
use serde::Serialize;

use crate::args::Stat;
use crate::exit::{Exit, Failure, chain};
use crate::out::{self, Align, BAD, Cell, Column, FAINT, Format, GOOD, Table, WARN, bytes, span};
use crate::{ls, ping};

#[derive(Serialize)]
struct Report<'a> {
    run_dir: &'a str,
    services: &'a [Row],
}

/// One service.
#[derive(Serialize)]
struct Row {
    service: String,
    state: State,
    /// Of the provider.
    pid: Option<u32>,
    /// How long the handshake took.
    nanos: Option<u64>,
    generation: Option<u64>,
    request_lane: Option<u64>,
    answer_lane: Option<u64>,
    max_request: Option<u64>,
    /// Why it is not open.
    why: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// A session was opened.
    Open,
    /// The provider is alive, and refused.
    Refused,
    /// Nobody provides it.
    Absent,
    /// There was no answer, or none that makes sense.
    Failed,
}

pub(crate) fn run(run_dir: &RunDir, args: &Stat) -> Result<Exit, Failure> {
    let services = match args.service {
        Some(service) => vec![service],
        None => alive(run_dir)?,
    };
    let (mut rows, mut exit) = (Vec::new(), Exit::Ok);
    for service in services {
        let looked = look(run_dir, service, args.method, args.timeout);
        // The first trouble is the one that is told.
        exit = if exit == Exit::Ok { verdict(&looked) } else { exit };
        rows.push(Row::of(service, looked));
    }
    match args.format {
        Format::Json => {
            let run_dir = &run_dir.path().display().to_string();
            out::json_line(&Report { run_dir, services: &rows })?;
        }
        Format::Table if rows.is_empty() => {
            let _ = writeln!(anstream::stderr(), "nobody serves in {}", run_dir.path().display());
        }
        Format::Table => print(&rows)?,
    }
    Ok(exit)
}

/// The services of the run dir that somebody serves, or perhaps serves.
fn alive(run_dir: &RunDir) -> Result<Vec<ServiceName>, Failure> {
    let endpoints = run_dir.endpoints().map_err(|error| ls::unlisted(run_dir, &error))?;
    let alive = endpoints.into_iter().filter(|endpoint| endpoint.liveness != Liveness::Stale);
    Ok(alive.map(|endpoint| endpoint.service).collect())
}

fn look(
    run_dir: &RunDir,
    service: ServiceName,
    method: Option<u32>,
    timeout: Duration,
) -> Result<Probe, ConnectError> {
    let config = ClientConfig { connect_timeout: timeout, ..ClientConfig::default() };
    let method = method.unwrap_or_else(|| ping::method_of(service));
    probe(run_dir, service, method, &config)
}

/// A refusal for the method alone is an answer: the provider is there, and serves who knows its method.
fn verdict(looked: &Result<Probe, ConnectError>) -> Exit {
    match looked {
        Ok(Probe { refused: None | Some((RefuseCode::Service, _)), .. }) => Exit::Ok,
        Ok(_) => Exit::Refused,
        Err(error) => error.kind().into(),
    }
}

impl Row {
    fn of(service: ServiceName, looked: Result<Probe, ConnectError>) -> Self {
        let none = Self {
            service: service.to_string(),
            state: State::Failed,
            pid: None,
            nanos: None,
            generation: None,
            request_lane: None,
            answer_lane: None,
            max_request: None,
            why: None,
        };
        let probe = match looked {
            Ok(probe) => probe,
            Err(ConnectError::Absent) => return Self { state: State::Absent, ..none },
            Err(error) => return Self { why: Some(chain(&error)), ..none },
        };
        let terms = probe.terms;
        Self {
            state: if terms.is_some() { State::Open } else { State::Refused },
            pid: probe.pid,
            nanos: u64::try_from(probe.took.as_nanos()).ok(),
            generation: terms.map(|terms| terms.generation),
            request_lane: terms.map(|terms| terms.requests.size),
            answer_lane: terms.map(|terms| terms.answers.size),
            max_request: terms.map(|terms| terms.max_request),
            why: probe.refused.map(|(_, reason)| reason.into()),
            ..none
        }
    }

    fn cells(&self) -> [Cell; 8] {
        let (word, style) = match self.state {
            State::Open => ("open", GOOD),
            State::Refused => ("refused", WARN),
            State::Absent => ("absent", FAINT),
            State::Failed => ("failed", BAD),
        };
        let told = |value: Option<String>| Cell::new(value.unwrap_or("-".into()));
        let nanos = self.nanos.map(|nanos| span(Duration::from_nanos(nanos)));
        [
            Cell::new(&self.service),
            Cell::new(word).style(style),
            told(self.pid.map(|pid| pid.to_string())),
            told(nanos),
            told(self.generation.map(|generation| generation.to_string())),
            told(self.request_lane.map(bytes)),
            told(self.answer_lane.map(bytes)),
            told(self.max_request.map(bytes)),
        ]
    }
}

fn print(rows: &[Row]) -> Result<(), Failure> {
    let right = |title| Column::new(title, Align::Right);
    let mut table = Table::new([
        Column::new("SERVICE", Align::Left),
        Column::new("STATE", Align::Left),
        right("PID"),
        right("OPENED IN"),
        right("GENERATION"),
        right("REQUESTS"),
        right("ANSWERS"),
        right("LONGEST"),
    ]);
    rows.iter().for_each(|row| table.row(row.cells()));
    let mut stdout = out::stdout();
    table.print(&mut stdout, out::width())?;
    for (row, why) in rows.iter().filter_map(|row| Some((row, row.why.as_ref()?))) {
        writeln!(stdout, "{FAINT}{}: {why}{FAINT:#}", row.service)?;
    }
    Ok(stdout.flush()?)
}
