//! Lines for a terminal, and the numbers of all reports.

use std::fmt::Write;

use bellwire_cli::out::{nanos, rate, whole_bytes};
use bellwire_floor::Spread;

use super::model::{Attempt, Lost, Measured, Report, Row};
use crate::contender::VALIDATION;

/// All scenarios, a line for each contender.
pub(crate) fn text(report: &Report) -> String {
    let mut text = String::new();
    for measured in &report.scenarios {
        scenario(&mut text, measured);
    }
    text
}

/// Writing into a string cannot fail.
fn scenario(text: &mut String, measured: &Measured) {
    let _ = writeln!(text, "{}: {}", measured.name, measured.about);
    let width = measured.main_rows().map(|row| row.contender.len()).max().unwrap_or(0);
    for row in measured.main_rows() {
        let ahead = measured.ahead(row);
        let _ = writeln!(
            text,
            "  {:<width$}  {:>30}  {:>9}/s  floor {:<22} {}  {}{}",
            row.contender,
            times(&row.ns),
            rate(measured.a_second(row)),
            floor(row),
            cpu(row),
            ahead,
            if row.stable { "" } else { "  UNSTABLE" },
        );
        if measured.group == "reactor" {
            let _ = writeln!(text, "  {:<width$}  {}", "", of_server(row));
        }
    }
    for note in measured.notes() {
        let _ = writeln!(text, "  {note}");
    }
}

impl Measured {
    /// How the first contender compares with this one.
    pub(crate) fn ahead(&self, row: &Row) -> String {
        let (first, ratio) = (self.main_rows().next(), self.by_first(row));
        let text = |(first, ratio): (&Row, f64)| format!("{} takes 1/{ratio:.2}", first.contender);
        first.zip(ratio).map(text).unwrap_or_default()
    }

    /// What stands below the rows.
    pub(crate) fn notes(&self) -> Vec<String> {
        let first =
            |row: &Row| Some(format!("{}: {}", row.contender, again(row.first_attempt.as_ref()?)));
        let mut notes: Vec<_> = self.rows.iter().filter_map(first).collect();
        notes.extend(self.validation());
        notes.extend(self.other_floors.iter().map(|(name, ns)| format!("{name}: {}", times(ns))));
        notes.extend(self.missing.iter().map(|(contender, Lost { moved, preempted })| {
            format!(
                "{contender}: no round counts: {moved} samples moved, {preempted} preempted, UNSTABLE"
            )
        }));
        notes.extend(
            self.refused.iter().map(|(contender, why)| format!("{contender}: left out: {why}")),
        );
        notes
    }

    /// What part of each contender's time validating a snapshot is: the rest is its transport's.
    fn validation(&self) -> Option<String> {
        let rows = self.main_rows().filter_map(|row| {
            let part = row.ahead_of.get(VALIDATION)?.median;
            Some(format!("{part:.2} of {}", row.contender))
        });
        let parts = rows.collect::<Vec<_>>().join(", ");
        (!parts.is_empty()).then(|| format!("Of each one's time, validation alone takes: {parts}"))
    }
}

/// The median, with its ends.
pub(crate) fn times(ns: &Spread) -> String {
    format!("{} [{} to {}]", nanos(ns.median), nanos(ns.min), nanos(ns.max))
}

/// What was measured before the second attempt.
fn again(first: &Attempt) -> String {
    let Attempt { placement, stable, lost, ns, samples } = first;
    let (median, low, high) = (nanos(ns.median), nanos(ns.middle.0), nanos(ns.middle.1));
    let (rounds, lost) = (samples.len(), lost.moved + lost.preempted);
    let stable = if *stable { "stable" } else { "unstable" };
    format!(
        "second attempt; the first, {stable}: {median} [the middle half {low} to {high}], {placement}, {rounds} rounds, {lost} \
         samples lost"
    )
}

/// The ratio to the floor, with its ends.
pub(crate) fn floor(row: &Row) -> String {
    row.to_floor.map_or_else(
        || "none".to_owned(),
        |ratio| format!("×{:.2} [{:.2} to {:.2}]", ratio.median, ratio.min, ratio.max),
    )
}

/// What many sessions cost a server.
fn of_server(row: &Row) -> String {
    let latency = row.latency.as_ref().map(|of| [nanos(of.p50 as f64), nanos(of.p99 as f64)]);
    let [p50, p99] = latency.unwrap_or_default();
    let (kernel, resident) = (nanos(row.kernel_server_ns), whole_bytes(row.resident_server));
    let switches = row.sleeps_server;
    format!(
        "p50 {p50}, p99 {p99}; server: {kernel} in the kernel, {switches:.2} switches, {resident} resident"
    )
}

/// Processor time of both ends.
pub(crate) fn cpu(row: &Row) -> String {
    format!("CPU {} + {}", nanos(row.cpu_client_ns), nanos(row.cpu_server_ns))
}
