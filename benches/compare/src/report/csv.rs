//! A line for each row, all placements.

use super::model::Report;
use crate::Outcome;

const HEAD: [&str; 33] = [
    "scenario",
    "about",
    "contender",
    "placement",
    "main",
    "stable",
    "rounds",
    "moved",
    "crowded",
    "unit",
    "bytes",
    "rate_per_s",
    "ns_median",
    "ns_min",
    "ns_max",
    "floor_ns",
    "to_floor_median",
    "to_floor_min",
    "to_floor_max",
    "by_first",
    "count_timed",
    "p50_ns",
    "p90_ns",
    "p99_ns",
    "p999_ns",
    "max_ns",
    "cpu_client_ns",
    "cpu_server_ns",
    "sleeps",
    "wakes",
    "parks",
    "system_calls",
    "operations_per_s",
];

/// With a head.
pub(crate) fn text(report: &Report) -> Outcome<String> {
    let mut csv = ::csv::Writer::from_writer(Vec::new());
    csv.write_record(HEAD)?;
    for measured in &report.scenarios {
        for row in &measured.rows {
            let some =
                |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
            let latency = row.latency.as_ref();
            let ns = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
            csv.write_record([
                measured.name.clone(),
                measured.about.clone(),
                row.contender.clone(),
                row.placement.clone(),
                row.is_main.to_string(),
                row.stable.to_string(),
                row.rounds.to_string(),
                row.lost.moved.to_string(),
                row.lost.crowded.to_string(),
                measured.unit.clone(),
                measured.bytes.map(|bytes| bytes.to_string()).unwrap_or_default(),
                ns(measured.rate),
                row.ns.median.to_string(),
                row.ns.min.to_string(),
                row.ns.max.to_string(),
                some(row.floor_ns.map(|floor| floor.median)),
                some(row.to_floor.map(|ratio| ratio.median)),
                some(row.to_floor.map(|ratio| ratio.min)),
                some(row.to_floor.map(|ratio| ratio.max)),
                some(measured.by_first(row)),
                ns(latency.map(|latency| latency.count)),
                ns(latency.map(|latency| latency.p50)),
                ns(latency.map(|latency| latency.p90)),
                ns(latency.map(|latency| latency.p99)),
                ns(latency.map(|latency| latency.p999)),
                ns(latency.map(|latency| latency.max)),
                row.cpu_client_ns.to_string(),
                row.cpu_server_ns.to_string(),
                row.sleeps.to_string(),
                some(row.wakes),
                some(row.parks),
                some(row.system_calls),
                measured.a_second(row).to_string(),
            ])?;
        }
    }
    Ok(String::from_utf8(csv.into_inner()?)?)
}
