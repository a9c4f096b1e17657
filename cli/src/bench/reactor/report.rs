use std::io::Write;

use serde_json::{Value, json};

use super::tally::{Row, Sample, Spread};
use crate::bench::args::{Reactor, Subject};
use crate::exit::Failure;
use crate::out::{self, FAINT, TITLE, Table, nanos, rate, whole_bytes};

/// The compared pairs, if both were measured.
const RATIOS: [(Subject, Subject); 3] = [
    (Subject::IoUring, Subject::Epoll),
    (Subject::Epoll, Subject::Seqpacket),
    (Subject::IoUring, Subject::Seqpacket),
];

/// Collects rows, and prints them at the end.
pub(super) struct Report {
    json: bool,
    rounds: u32,
    window: String,
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Report {
    pub(super) fn new(args: &Reactor) -> Self {
        let window = out::span(args.window);
        Self {
            json: args.output.is_json(),
            rounds: args.rounds,
            window,
            rows: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    pub(super) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub(super) fn print(&self) -> Result<(), Failure> {
        if self.json {
            let rows: Vec<_> = self.rows.iter().map(row_json).collect();
            return Ok(out::json_line(&json!({
                "rounds": self.rounds,
                "rows": rows,
                "notes": self.notes,
            }))?);
        }
        let mut stdout = out::stdout();
        let (rounds, window) = (self.rounds, &self.window);
        writeln!(
            stdout,
            "{TITLE}What a server costs{TITLE:#}: medians of {rounds} rounds of {window}; CPU and RSS are the server's."
        )?;
        self.table().print(&mut stdout, out::width())?;
        for row in &self.rows {
            for (of, to) in RATIOS {
                if let Some(Spread { median, min, max }) = row.ratio(of, to) {
                    let (sessions, load) = (row.sessions, row.load);
                    let (of, to) = (of.as_str(), to.as_str());
                    writeln!(
                        stdout,
                        "{sessions} sessions, {load}: CPU of {of} / {to} {median:.2} ({min:.2} to {max:.2})"
                    )?;
                }
            }
        }
        for note in &self.notes {
            writeln!(stdout, "{FAINT}{note}{FAINT:#}")?;
        }
        Ok(stdout.flush()?)
    }

    fn table(&self) -> Table {
        let median =
            |samples: &[Sample], figure: fn(&Sample) -> f64| spread(samples, figure).median;
        let cpu = |samples: &[Sample]| spread(samples, |sample| sample.cpu);
        let rows = self.rows.iter().flat_map(|row| {
            row.columns.iter().map(move |(subject, samples)| (row, subject, &samples[..]))
        });
        Table::of(rows)
            .right("SESSIONS", |(row, ..)| row.sessions.to_string())
            .left("LOAD", |(row, ..)| row.load.to_string())
            .left("WAITS WITH", |(_, subject, _)| subject.as_str())
            .right("CALLS/S", |(.., samples)| {
                rate(median(samples, |sample| sample.calls_per_second))
            })
            .right("CPU/CALL", |(.., samples)| nanos(cpu(samples).median))
            .right("LEAST", |(.., samples)| nanos(cpu(samples).min))
            .right("MOST", |(.., samples)| nanos(cpu(samples).max))
            .right("SWITCHES/CALL", |(.., samples)| {
                format!("{:.2}", median(samples, |sample| sample.switches))
            })
            .right("P50", |(.., samples)| nanos(median(samples, |sample| sample.p50)))
            .right("P99", |(.., samples)| nanos(median(samples, |sample| sample.p99)))
            .right("RSS", |(.., samples)| whole_bytes(median(samples, |sample| sample.rss)))
            .table()
    }
}

fn spread(samples: &[Sample], figure: impl Fn(&Sample) -> f64) -> Spread {
    Spread::of(samples.iter().map(figure))
}

fn row_json(row: &Row) -> Value {
    let subjects: Vec<_> = row
        .columns
        .iter()
        .map(|(subject, samples)| {
            json!({
                "waits_with": subject.as_str(),
                "calls_per_second": spread(samples, |sample| sample.calls_per_second),
                "cpu_ns_per_call": spread(samples, |sample| sample.cpu),
                "kernel_share": spread(samples, |sample| sample.kernel),
                "switches_per_call": spread(samples, |sample| sample.switches),
                "p50_ns": spread(samples, |sample| sample.p50),
                "p99_ns": spread(samples, |sample| sample.p99),
                "rss_bytes": spread(samples, |sample| sample.rss),
            })
        })
        .collect();
    let ratios: Vec<_> = RATIOS
        .iter()
        .filter_map(|(of, to)| {
            let ratio = row.ratio(*of, *to)?;
            Some(json!({ "of": of.as_str(), "to": to.as_str(), "cpu": ratio }))
        })
        .collect();
    json!({
        "sessions": row.sessions,
        "load": row.load,
        "servers": subjects,
        "ratios": ratios,
    })
}
