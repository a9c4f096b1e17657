use std::io::Write;
use std::time::Duration;

use bellwire_observe::{Counter, SeenEnd};
use serde::Serialize;
use serde_json::{Map, Value};

use super::model::{Lane, Model, Row};
use super::print_note;
use super::view::{peer, quantile, short, summary};
use crate::exit::Failure;
use crate::out::{self, Table, rate};

/// The scan's result, for programs.
#[derive(Serialize)]
pub(super) struct Report {
    interval_seconds: f64,
    sessions: Vec<Session>,
    /// What could not be inspected.
    note: Option<String>,
}

#[derive(Serialize)]
struct Session {
    service: String,
    session: u64,
    calls_per_second: Option<f64>,
    /// Requests refused or failed.
    errors_per_second: Option<f64>,
    p50_nanos: Option<u64>,
    p99_nanos: Option<u64>,
    in_flight: u64,
    request_lane: Lane,
    answer_lane: Lane,
    client: Option<End>,
    server: Option<End>,
}

#[derive(Serialize)]
struct End {
    pid: u32,
    command: String,
    sleeps: bool,
    doorbell: Option<String>,
    rings: u64,
    parks: u64,
    bytes_sent: u64,
    bytes_received: u64,
    /// Counters by name; `None` if the end has none.
    counters: Option<Map<String, Value>>,
}

impl Report {
    pub(super) fn of(model: &Model, interval: Duration) -> Self {
        Self {
            interval_seconds: interval.as_secs_f64(),
            sessions: model.rows.iter().map(Session::of).collect(),
            note: model.note.clone(),
        }
    }
}

impl Session {
    fn of(row: &Row) -> Self {
        Self {
            service: row.seen.service.to_string(),
            session: row.seen.number,
            calls_per_second: row.calls,
            errors_per_second: row.errors,
            p50_nanos: row.latency.quantile(500),
            p99_nanos: row.latency.quantile(990),
            in_flight: row.in_flight,
            request_lane: row.requests,
            answer_lane: row.answers,
            client: row.seen.client.as_ref().map(End::of),
            server: row.seen.server.as_ref().map(End::of),
        }
    }
}

impl End {
    fn of(end: &SeenEnd) -> Self {
        let page = &end.page;
        let counters = page.counters.map(|counters| {
            let all = Counter::all().filter(|counter| *counter != Counter::Lane);
            all.map(|counter| (snake(&format!("{counter:?}")), counters.of(counter).into()))
                .collect()
        });
        Self {
            pid: end.pid,
            command: end.command.clone(),
            sleeps: page.sleeps,
            doorbell: page.doorbell.map(|doorbell| snake(&format!("{doorbell:?}"))),
            rings: page.rings,
            parks: page.parks,
            bytes_sent: page.tail,
            bytes_received: page.head,
            counters,
        }
    }
}

/// Converts `HighWater` to `high_water`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for (at, char) in name.char_indices() {
        if at > 0 && char.is_uppercase() {
            snake.push('_');
        }
        snake.push(char.to_ascii_lowercase());
    }
    snake
}

/// Prints a summary, and the first sessions as a table; 0 is all.
pub(super) fn print(model: &Model, limit: usize) -> Result<(), Failure> {
    let per_second = |value: Option<f64>| value.map_or("-".into(), |value| short(rate(value)));
    let shown = if limit == 0 { model.rows.len() } else { limit };
    let table = Table::of(model.rows.iter().take(shown))
        .left("SERVICE", |row| row.seen.service.to_string())
        .left("CLIENT", |row| peer(row.seen.client.as_ref()))
        .left("SERVER", |row| peer(row.seen.server.as_ref()))
        .right("CALLS/S", |row| per_second(row.calls))
        .right("P50", |row| quantile(&row.latency, 500))
        .right("P99", |row| quantile(&row.latency, 990))
        .right("USE", |row| format!("{:.0}%", row.share() * 100.0))
        .right("FLIGHT", |row| row.in_flight.to_string())
        .right("ERR/S", |row| per_second(row.errors))
        .table();
    let mut stdout = out::stdout();
    writeln!(stdout, "{}", summary(model))?;
    table.print(&mut stdout, out::width())?;
    stdout.flush()?;
    let left_out = model.rows.len().saturating_sub(shown);
    if left_out > 0 {
        let _ = writeln!(anstream::stderr(), "{left_out} more sessions: --limit 0 prints all");
    }
    print_note(model.note.as_ref());
    Ok(())
}
