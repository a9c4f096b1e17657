use std::io::Write;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::Sample;
use crate::args::Soak;
use crate::checks::{self, Check, FIGURES, LIVING};
use crate::faults::Fired;
use crate::protocol::CallCounts;
use crate::run::Outcome;
use bellwire_cli::exit::Failure;
use bellwire_cli::out::{
    self, Align, BAD, Cell, Column, FAINT, GOOD, TITLE, Table, WARN, bytes, count, wrapped,
};

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
        held: Option<[Sample; 2]>,
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
        let holds = checks.iter().all(|check| check.ok != Some(false));
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
        for check in &checks {
            let (style, mark) = match check.ok {
                Some(true) => (GOOD, "✓"),
                Some(false) => (BAD, "✗"),
                None => (WARN, "?"),
            };
            writeln!(stdout, "{style}{mark}{style:#} {}", wrapped(&check.text, width, 2))?;
            if check.ok == Some(false) {
                writeln!(stdout, "  {FAINT}next:{FAINT:#} {}", wrapped(check.next, width, 8))?;
            }
        }
        if !holds {
            writeln!(stdout, "\nThe same faults again: bellwire soak --seed {}", outcome.seed)?;
        }
        stdout.flush()?;
        Ok(holds)
    }
}

fn all_call_counts(outcome: &Outcome) -> [(&'static str, &'static str, &CallCounts); 4] {
    let (steady, fragile) = (&outcome.steady, &outcome.fragile);
    [
        ("steady consumer", "steady provider", &steady.steady),
        ("steady consumer", "fragile provider", &steady.fragile),
        ("fragile consumers", "steady provider", &fragile.steady),
        ("fragile consumers", "fragile provider", &fragile.fragile),
    ]
}

fn calls(outcome: &Outcome) -> Table {
    let titles = ["MADE", "ANSWERED", "REFUSED", "FAILED", "WRONG", "OPEN"];
    let columns = titles.map(|title| Column::new(title, Align::Right));
    let first = ["CALLS OF", "TO"].map(|title| Column::new(title, Align::Left));
    let mut table = Table::new(first.into_iter().chain(columns).collect::<Vec<_>>());
    for (from, to, call_counts) in all_call_counts(outcome) {
        let CallCounts { made, answered, refused, failed, wrong, in_flight, .. } = call_counts;
        let counts = [made, answered, refused, failed, wrong, in_flight].map(|n| count(*n));
        let cells = [from.into(), to.into()].into_iter().chain(counts);
        table.row(cells.map(|text: String| Cell::new(text)).collect::<Vec<_>>());
    }
    table
}

fn held(outcome: &Outcome) -> Table {
    let mut columns = vec![Column::new("HELD BY", Align::Left), Column::new("WHAT", Align::Left)];
    columns
        .extend(["FIRST", "LAST", "LEAST", "MOST"].map(|title| Column::new(title, Align::Right)));
    let mut table = Table::new(columns);
    for (at, who) in LIVING.into_iter().enumerate() {
        for figure in &FIGURES {
            let values = outcome.samples.iter();
            let values: Vec<u64> =
                values.filter_map(|(_, held)| held.get(at)).map(figure.of).collect();
            let figures = [values.first(), values.last(), values.iter().min(), values.iter().max()]
                .map(|value| value.map_or_else(|| "-".into(), |value| (figure.print)(*value)));
            let cells = [who.to_owned(), figure.name.to_owned()].into_iter().chain(figures);
            table.row(cells.map(Cell::new).collect::<Vec<_>>());
        }
    }
    table
}

fn object(outcome: &Outcome, checks: &[Check], ok: bool) -> Value {
    let verdicts: Map<String, Value> =
        checks.iter().map(|check| (check.name.to_owned(), json!(check.ok))).collect();
    let failed = checks.iter().filter(|check| check.ok == Some(false));
    let failed: Map<String, Value> = failed
        .map(|check| (check.name.to_owned(), json!({ "what": check.text, "next": check.next })))
        .collect();
    let calls: Vec<Value> = all_call_counts(outcome)
        .into_iter()
        .map(|(from, to, call_counts)| json!({ "from": from, "to": to, "calls": call_counts }))
        .collect();
    let held: Map<String, Value> = LIVING
        .into_iter()
        .enumerate()
        .map(|(at, who)| {
            let trends: Map<String, Value> = FIGURES
                .iter()
                .filter_map(|figure| {
                    let trend = figure.trends(outcome).get(at).copied()?;
                    Some((figure.name.to_owned(), json!(trend)))
                })
                .collect();
            (who.to_owned(), Value::Object(trends))
        })
        .collect();
    let samples: Vec<Value> = outcome
        .samples
        .iter()
        .map(|(at, [provider, consumer])| json!([at, provider, consumer]))
        .collect();
    json!({
        "ok": ok,
        "seed": outcome.seed,
        "seconds": outcome.seconds,
        "interrupted": outcome.interrupted.is_some(),
        "checks": verdicts,
        "failed": failed,
        "calls": calls,
        "faults": outcome.fired,
        "held": held,
        "samples": samples,
        "steady_provider": outcome.provider,
        "trouble": outcome.trouble,
    })
}
