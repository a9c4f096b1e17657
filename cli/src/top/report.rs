use std::io::Write;
use std::time::Duration;

use bellwire::observe::{Counter, SeenEnd};
use serde::Serialize;
use serde_json::{Map, Value};

use super::model::{Lane, Model, Row};
use super::print_note;
use super::view::{peer, quantile, short, summary};
use crate::exit::Failure;
use crate::out::{self, Align, Cell, Column, Table, rate};

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
    request_lane: LaneFigures,
    answer_lane: LaneFigures,
    client: Option<End>,
    server: Option<End>,
}

#[derive(Serialize)]
struct LaneFigures {
    size: u64,
    used: u64,
    high_water: u64,
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
            request_lane: row.requests.into(),
            answer_lane: row.answers.into(),
            client: row.seen.client.as_ref().map(End::of),
            server: row.seen.server.as_ref().map(End::of),
        }
    }
}

impl From<Lane> for LaneFigures {
    fn from(lane: Lane) -> Self {
        Self { size: lane.size, used: lane.used, high_water: lane.high_water }
    }
}

impl End {
    fn of(end: &SeenEnd) -> Self {
        let page = &end.page;
        let counters = page.counters.map(|counters| {
            let all = Counter::ALL.into_iter().filter(|counter| *counter != Counter::Lane);
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
    let right = |title| Column::new(title, Align::Right);
    let left = |title| Column::new(title, Align::Left);
    let mut table = Table::new([
        left("SERVICE"),
        left("CLIENT"),
        left("SERVER"),
        right("CALLS/S"),
        right("P50"),
        right("P99"),
        right("USE"),
        right("FLIGHT"),
        right("ERR/S"),
    ]);
    let shown = if limit == 0 { model.rows.len() } else { limit };
    for row in model.rows.iter().take(shown) {
        let per_second =
            |value: Option<f64>| Cell::new(value.map_or("-".into(), |value| short(rate(value))));
        table.row([
            Cell::new(row.seen.service.to_string()),
            Cell::new(peer(row.seen.client.as_ref())),
            Cell::new(peer(row.seen.server.as_ref())),
            per_second(row.calls),
            Cell::new(quantile(&row.latency, 500)),
            Cell::new(quantile(&row.latency, 990)),
            Cell::new(format!("{:.0}%", row.share() * 100.0)),
            Cell::new(row.in_flight.to_string()),
            per_second(row.errors),
        ]);
    }
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
