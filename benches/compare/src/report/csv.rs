//! A line for each row, all placements.

use super::model::{Latency, Measured, Report, Row};
use crate::Outcome;

/// What a column is called, and what it has of a row.
type Column = (&'static str, fn(&Measured, &Row) -> String);

const COLUMNS: [Column; 42] = [
    ("scenario", |measured, _| measured.name.clone()),
    ("about", |measured, _| measured.about.clone()),
    ("contender", |_, row| row.contender.clone()),
    ("placement", |_, row| row.placement.clone()),
    ("main", |_, row| row.is_main.to_string()),
    ("stable", |_, row| row.stable.to_string()),
    ("rounds", |_, row| row.rounds.to_string()),
    ("moved", |_, row| row.lost.moved.to_string()),
    ("crowded", |_, row| row.lost.preempted.to_string()),
    ("unit", |measured, _| measured.unit.clone()),
    ("bytes", |measured, _| known(measured.bytes)),
    ("rate_per_s", |measured, _| known(measured.rate)),
    ("ns_median", |_, row| row.ns.median.to_string()),
    ("ns_min", |_, row| row.ns.min.to_string()),
    ("ns_max", |_, row| row.ns.max.to_string()),
    ("floor_ns", |_, row| known(row.floor_ns.map(|floor| floor.median))),
    ("to_floor_median", |_, row| known(row.to_floor.map(|ratio| ratio.median))),
    ("to_floor_min", |_, row| known(row.to_floor.map(|ratio| ratio.min))),
    ("to_floor_max", |_, row| known(row.to_floor.map(|ratio| ratio.max))),
    ("by_first", |measured, row| known(measured.by_first(row))),
    ("count_timed", |_, row| latency(row, |of| of.count)),
    ("p50_ns", |_, row| latency(row, |of| of.p50)),
    ("p90_ns", |_, row| latency(row, |of| of.p90)),
    ("p99_ns", |_, row| latency(row, |of| of.p99)),
    ("p999_ns", |_, row| latency(row, |of| of.p999)),
    ("max_ns", |_, row| latency(row, |of| of.max)),
    ("cpu_client_ns", |_, row| row.cpu_client_ns.to_string()),
    ("cpu_server_ns", |_, row| row.cpu_server_ns.to_string()),
    ("sleeps", |_, row| row.sleeps.to_string()),
    ("wakes", |_, row| known(row.wakes)),
    ("parks", |_, row| known(row.parks)),
    ("system_calls", |_, row| known(row.system_calls)),
    ("operations_per_s", |measured, row| measured.a_second(row).to_string()),
    ("kernel_server_ns", |_, row| row.kernel_server_ns.to_string()),
    ("sleeps_server", |_, row| row.sleeps_server.to_string()),
    ("resident_server_bytes", |_, row| row.resident_server.to_string()),
    ("ns_low", |_, row| row.ns.middle.0.to_string()),
    ("ns_high", |_, row| row.ns.middle.1.to_string()),
    ("first_attempt_ns", |_, row| known(row.first_attempt.as_ref().map(|first| first.ns.median))),
    ("first_attempt_stable", |_, row| known(row.first_attempt.as_ref().map(|first| first.stable))),
    ("floor", |measured, _| measured.floor.clone()),
    ("other_floors_ns", |measured, _| other_floors(measured)),
];

/// Empty for what is not known.
fn known(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn latency(row: &Row, of: fn(&Latency) -> u64) -> String {
    known(row.latency.as_ref().map(of))
}

/// Their medians: `bare rings: 98.9; bare, with a pause: 96.1`.
fn other_floors(measured: &Measured) -> String {
    let floors = measured.other_floors.iter();
    floors.map(|(name, ns)| format!("{name}: {:.1}", ns.median)).collect::<Vec<_>>().join("; ")
}

/// With a head.
pub(crate) fn text(report: &Report) -> Outcome<String> {
    let mut csv = ::csv::Writer::from_writer(Vec::new());
    csv.write_record(COLUMNS.map(|(name, _)| name))?;
    for measured in &report.scenarios {
        for row in &measured.rows {
            csv.write_record(COLUMNS.map(|(_, value)| value(measured, row)))?;
        }
    }
    Ok(String::from_utf8(csv.into_inner()?)?)
}
