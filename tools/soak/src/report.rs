use std::io::Write;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::args::Soak;
use crate::checks::{self, FIGURES, Figure, LIVING};
use crate::faults::Fired;
use crate::protocol::CallCounts;
use crate::run::Outcome;
use bellwire_cli::check::{self, Check};
use bellwire_cli::exit::Failure;
use bellwire_cli::out::{self, TITLE, Table, WARN, bytes, count, wrapped};
use bellwire_process::ResourceUsage;

/// Reports progress to people as it happens, or the result to a program at the end.
pub(super) struct Report {
    seconds: u32,
    sessions: u16,
    json: bool,
}

impl Report {
    pub(super) fn new(args: &Soak) -> Self {
        Self { seconds: args.seconds, sessions: args.sessions, json: args.json }
    }

    /// Returns how often to report: a log needs less than a terminal.
    pub(super) fn every(&self) -> Duration {
        Duration::from_secs(if out::is_terminal() { 1 } else { 10 })
    }

    pub(super) fn start(&self, seed: u64) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        let mut stdout = out::stdout();
        let (seconds, sessions) = (self.seconds, self.sessions);
        writeln!(
            stdout,
            "{TITLE}Soak{TITLE:#} of {seconds} s, seed {seed}: 2 providers, and 3 consumers with {sessions} sessions to each of them."
        )?;
        Ok(stdout.flush()?)
    }

    /// Prints one line.
    pub(super) fn progress(
        &self,
        elapsed: Duration,
        total: &CallCounts,
        fired: &Fired,
        held: Option<[ResourceUsage; 2]>,
    ) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        let faults: u64 = fired.all().iter().take(6).map(|(_, times)| times).sum();
        let held = held.map_or_else(String::new, |[provider, consumer]| {
            format!(
                ", held {} + {} descriptors, {} + {}",
                provider.descriptors,
                consumer.descriptors,
                bytes(provider.rss),
                bytes(consumer.rss)
            )
        });
        let mut stdout = out::stdout();
        writeln!(
            stdout,
            "{:>5} s  {} calls: {} answered, {} refused, {} failed, {} wrong; {faults} faults{held}",
            elapsed.as_secs(),
            count(total.made),
            count(total.answered),
            count(total.refused),
            count(total.failed),
            count(total.wrong),
        )?;
        Ok(stdout.flush()?)
    }

    /// Prints the summary and returns whether every check held.
    pub(super) fn end(&self, outcome: &Outcome) -> Result<bool, Failure> {
        let checks = checks::of(outcome);
        let holds = !checks.iter().any(Check::fails);
        if self.json {
            out::json_line(&object(outcome, &checks, holds))?;
            return Ok(holds);
        }
        let mut stdout = out::stdout();
        let width = out::width();
        writeln!(stdout)?;
        if outcome.interrupted.is_some() {
            writeln!(stdout, "{WARN}Interrupted.{WARN:#} What was seen until then:")?;
        }
        calls(outcome).print(&mut stdout, width)?;
        writeln!(stdout)?;
        let faults = outcome.fired.all().map(|(fault, times)| format!("{} {fault}", count(times)));
        writeln!(stdout, "{TITLE}Faults{TITLE:#}    {}\n", wrapped(&faults.join(", "), width, 10))?;
        held(outcome).print(&mut stdout, width)?;
        writeln!(stdout)?;
        check::print(&checks, &mut stdout)?;
        if !holds {
            writeln!(stdout, "\nThe same faults again: bellwire soak --seed {}", outcome.seed)?;
        }
        stdout.flush()?;
        Ok(holds)
    }
}

fn all_call_counts(outcome: &Outcome) -> [(&'static str, &'static str, &CallCounts); 4] {
    let (steady, faulted) = (&outcome.steady, &outcome.faulted_consumers);
    [
        ("steady consumer", "steady provider", &steady.steady),
        ("steady consumer", "faulted provider", &steady.faulted),
        ("faulted consumers", "steady provider", &faulted.steady),
        ("faulted consumers", "faulted provider", &faulted.faulted),
    ]
}

fn calls(outcome: &Outcome) -> Table {
    Table::of(all_call_counts(outcome))
        .left("CALLS OF", |(from, ..)| *from)
        .left("TO", |(_, to, _)| *to)
        .right("MADE", |(.., calls)| count(calls.made))
        .right("ANSWERED", |(.., calls)| count(calls.answered))
        .right("REFUSED", |(.., calls)| count(calls.refused))
        .right("FAILED", |(.., calls)| count(calls.failed))
        .right("WRONG", |(.., calls)| count(calls.wrong))
        .right("OPEN", |(.., calls)| count(calls.in_flight))
        .table()
}

fn held(outcome: &Outcome) -> Table {
    let row = |(at, who, figure): (usize, &'static str, &'static Figure)| {
        let values = outcome.samples.iter().filter_map(move |(_, held)| held.get(at));
        (who, figure, values.map(figure.of).collect::<Vec<_>>())
    };
    type Row = (&'static str, &'static Figure, Vec<u64>);
    fn print((_, figure, _): &Row, value: Option<&u64>) -> String {
        value.map_or_else(|| "-".into(), |value| (figure.print)(*value))
    }
    let rows = (0..).zip(LIVING).flat_map(|(at, who)| FIGURES.iter().map(move |of| (at, who, of)));
    Table::of(rows.map(row))
        .left("HELD BY", |(who, ..)| *who)
        .left("WHAT", |(_, figure, _)| figure.name)
        .right("FIRST", |row: &Row| print(row, row.2.first()))
        .right("LAST", |row| print(row, row.2.last()))
        .right("LEAST", |row| print(row, row.2.iter().min()))
        .right("MOST", |row| print(row, row.2.iter().max()))
        .table()
}

fn object(outcome: &Outcome, checks: &[Check], ok: bool) -> Value {
    let failed = checks.iter().filter(|check| check.fails());
    let failed: Map<String, Value> = failed
        .map(|check| (check.name.to_owned(), json!({ "what": check.text, "next": check.next })))
        .collect();
    let calls: Vec<Value> = all_call_counts(outcome)
        .into_iter()
        .map(|(from, to, call_counts)| json!({ "from": from, "to": to, "calls": call_counts }))
        .collect();
    let figures = |of: &dyn Fn(&Figure) -> Value| -> Map<String, Value> {
        FIGURES.iter().map(|figure| (figure.name.to_owned(), of(figure))).collect()
    };
    let held: Map<String, Value> = (0..)
        .zip(LIVING)
        .map(|(at, who)| {
            let trends = figures(&|figure| json!(figure.trends(outcome).get(at)));
            (who.to_owned(), trends.into())
        })
        .collect();
    let sample = |(at, held): &(f64, [ResourceUsage; 2])| {
        let [provider, consumer] = held.map(|held| figures(&|figure| (figure.of)(&held).into()));
        json!([at, provider, consumer])
    };
    let samples: Vec<Value> = outcome.samples.iter().map(sample).collect();
    json!({
        "ok": ok,
        "seed": outcome.seed,
        "seconds": outcome.seconds,
        "interrupted": outcome.interrupted.is_some(),
        "checks": check::verdicts(checks),
        "failed": failed,
        "calls": calls,
        "faults": outcome.fired,
        "held": held,
        "samples": samples,
        "steady_provider": outcome.provider,
        "process_failures": outcome.process_failures,
    })
}
