use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::Outcome;
use super::args::Demo;
use super::burst::{LaneChange, SessionFigures, Shown};
use super::checks;
use super::consumer::Consumer;
use super::figures::{Second, Served, Totals};
use super::tally::ratio;
use crate::check::{self, Check};
use crate::exit::Failure;
use crate::out::{self, BAD, FAINT, TITLE, Table, WARN, bytes, count, nanos, rate, wrapped};

/// Reports progress to people as it happens, or the result to a program at the end.
pub(super) struct Report {
    json: bool,
    header_due: bool,
}

impl Report {
    pub(super) fn new(args: &Demo) -> Self {
        Self { json: args.output.is_json(), header_due: out::is_terminal() }
    }

    /// Prints what is known once the sessions are open; `real` is whether the cgroups are this machine's.
    pub(super) fn start(
        &mut self,
        provider: u32,
        run_dir: &Path,
        real: bool,
        consumer: &Consumer,
    ) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        let (dir, connect) = (run_dir.display(), time(consumer.connect_nanos));
        let (pid, test_cgroups) = (std::process::id(), &consumer.test_cgroups);
        let mut stdout = out::stdout();
        writeln!(
            stdout,
            "{TITLE}Provider{TITLE:#} process {provider} and {TITLE}consumer{TITLE:#} process {pid} met in {dir}; a session took {connect}."
        )?;
        match consumer.snapshot() {
            Some((cgroups, meta)) if real => writeln!(
                stdout,
                "The provider serves the {cgroups} cgroups of this machine ({}).",
                meta.mode
            )?,
            synthetic => writeln!(
                stdout,
                "{WARN}No cgroup hierarchy here:{WARN:#} the provider serves {} synthetic cgroups, which will not change.",
                synthetic.map_or(0, |(cgroups, _)| cgroups)
            )?,
        }
        if let Some(place) = test_cgroups.place() {
            let place = place.display();
            writeln!(stdout, "Cgroups come and go in {place}, named bellwire-demo-….")?;
        } else if let Some(why) = &test_cgroups.trouble {
            writeln!(
                stdout,
                "{WARN}No cgroups can be made{WARN:#} ({why}): nothing will change. Run as root to see changes."
            )?;
        }
        if test_cgroups.stale > 0 {
            writeln!(stdout, "Removed {} cgroups that killed demos had left.", test_cgroups.stale)?;
        }
        writeln!(stdout)?;
        Ok(stdout.flush()?)
    }

    /// Prints one line a second: aligned below a header on a terminal, otherwise with a name before each figure.
    pub(super) fn second(&mut self, second: &Second) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        let mut stdout = out::stdout();
        let figures = fitting(figures(second), out::width());
        if std::mem::take(&mut self.header_due) {
            let titles =
                figures.iter().map(|figure| format!("{:>w$}", figure.title, w = figure.width()));
            writeln!(stdout, "{TITLE}{}{TITLE:#}", titles.collect::<Vec<_>>().join("  "))?;
        }
        if out::is_terminal() {
            let values =
                figures.iter().map(|figure| format!("{:>w$}", figure.value, w = figure.width()));
            writeln!(stdout, "{}", values.collect::<Vec<_>>().join("  "))?;
        } else {
            let values = figures.iter().map(|figure| format!("{} {}", figure.title, figure.value));
            writeln!(stdout, "{}", values.collect::<Vec<_>>().join(" · "))?;
        }
        Ok(stdout.flush()?)
    }

    /// Prints one line for each lane that changed its size.
    pub(super) fn lanes<'a>(
        &self,
        mut changes: impl Iterator<Item = &'a LaneChange>,
    ) -> Result<(), Failure> {
        changes.try_for_each(|LaneChange { session, lane, epoch, from, to, why }| {
            let arrow = if to > from { "↑" } else { "↓" };
            let (from, to) = (bytes(*from), bytes(*to));
            self.print_change(
                arrow,
                format_args!("{session} {lane} {from} → {to}, epoch {epoch}: {why}"),
            )
        })
    }

    /// Prints one line for a snapshot of the burst.
    pub(super) fn shown(&self, shown: &Shown) -> Result<(), Failure> {
        let (cgroups, len) = (count(shown.cgroups as u64), bytes(shown.bytes as u64));
        let took = time(shown.nanos);
        self.print_change(
            "•",
            format_args!("snapshot of {cgroups} cgroups, {len}: made, seen and checked in {took}"),
        )
    }

    fn print_change(&self, mark: &str, what: std::fmt::Arguments<'_>) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        let mut stdout = out::stdout();
        writeln!(stdout, "  {FAINT}{mark}{FAINT:#} {what}")?;
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
        writeln!(stdout)?;
        if outcome.interrupted.is_some() {
            writeln!(stdout, "{WARN}Interrupted.{WARN:#} What was measured until then:")?;
        }
        let (totals, served) = (&outcome.totals, outcome.served.unwrap_or_default());
        figures_of_the_run(&mut stdout, totals, &served)?;
        let width = out::width();
        lanes(&totals.sessions, width).print(&mut stdout, width)?;
        writeln!(stdout)?;
        check::print(&checks, &mut stdout)?;
        let trouble =
            outcome.test_cgroups.trouble.iter().filter(|_| outcome.test_cgroups.place().is_some());
        for why in outcome.trouble.iter().chain(&totals.messages).chain(trouble) {
            writeln!(stdout, "    {BAD}{why}{BAD:#}")?;
        }
        stdout.flush()?;
        Ok(holds)
    }
}

struct Figure {
    title: &'static str,
    value: String,
}

impl Figure {
    /// Returns a width for any likely value.
    fn width(&self) -> usize {
        self.title.chars().count().max(7)
    }
}

fn figures(second: &Second) -> [Figure; 10] {
    let figure = |title, value| Figure { title, value };
    [
        figure("time", format!("{} s", second.second)),
        figure("generation", second.generation.to_string()),
        figure("cgroups", second.cgroups.to_string()),
        figure("look-ups/s", rate(second.lookups_per_second)),
        figure("refreshes/s", rate(second.refreshes_per_second)),
        figure("changed/s", second.changed.to_string()),
        figure("RTT p50", time(second.rtt_p50_nanos)),
        figure("RTT p99", time(second.rtt_p99_nanos)),
        figure("rings/call", format!("{:.4}", second.rings_per_call)),
        figure("errors", second.errors.to_string()),
    ]
}

/// Returns the figures that fit into a line of `width` columns. Figures that are also reported elsewhere are dropped first.
fn fitting(figures: [Figure; 10], width: Option<usize>) -> Vec<Figure> {
    const DISPENSABLE: [&str; 8] = [
        "changed/s",
        "generation",
        "rings/call",
        "refreshes/s",
        "look-ups/s",
        "RTT p99",
        "cgroups",
        "errors",
    ];
    let mut figures = Vec::from(figures);
    let Some(width) = width else { return figures };
    for title in DISPENSABLE {
        let gaps = 2 * figures.len().saturating_sub(1);
        if figures.iter().map(Figure::width).sum::<usize>() + gaps <= width {
            break;
        }
        figures.retain(|figure| figure.title != title);
    }
    figures
}

/// Lists both lanes of each session; on a narrow terminal only the essential columns.
fn lanes(sessions: &[SessionFigures], width: Option<usize>) -> Table {
    let has_room_for = |columns| width.is_none_or(|width| width >= columns);
    let names = if has_room_for(72) { ["requests", "answers"] } else { ["req", "ans"] };
    let lanes =
        sessions.iter().flat_map(|SessionFigures { session, requests, answers, .. }| {
            let lane = |(name, lane)| (format!("{session} {name}"), lane);
            names.into_iter().zip([requests, answers]).map(lane).collect::<Vec<_>>()
        });
    let rows = Table::of(lanes)
        .left("LANE", |(name, _)| name.clone())
        .right("EPOCH", |(_, lane)| lane.epoch.to_string())
        .right("SIZE", |(_, lane)| bytes(lane.size))
        .right("HIGH", |(_, lane)| bytes(lane.high_water))
        .right("BYTES", |(_, lane)| bytes(lane.bytes));
    if !has_room_for(65) {
        return rows.table();
    }
    rows.right("GREW", |(_, lane)| lane.grows.to_string())
        .right("SHRANK", |(_, lane)| lane.shrinks.to_string())
        .right("ATTACHED", |(_, lane)| lane.attaches.to_string())
        .table()
}

fn figures_of_the_run(
    to: &mut impl Write,
    totals: &Totals,
    served: &Served,
) -> std::io::Result<()> {
    let Totals { calls: sent, rtt_nanos: rtt, lookups, refreshes, events, .. } = totals;
    let (p50, p99, p999, max) = (time(rtt.p50), time(rtt.p99), time(rtt.p999), time(rtt.max));
    let changes = match &refreshes.changed_nanos {
        none if none.max == 0 => String::new(),
        some => {
            format!("; {} a new snapshot, in {} (p50)", count(refreshes.changed), time(some.p50))
        }
    };
    let calls =
        format!("{}, round trip p50 {p50}, p99 {p99}, p99.9 {p999}, max {max}", count(sent.made));
    let rung = format!(
        "{} rung for requests ({:.4} a call), {} for answers; each is one system call",
        count(sent.rings),
        ratio(sent.rings, sent.made),
        count(served.rings),
    );
    let refreshes = format!(
        "{} found nothing new, in {} each{changes}",
        count(refreshes.unchanged),
        nanos(refreshes.unchanged_nanos_each),
    );
    let events = format!(
        "{} taken, in {} each, {} missed",
        count(events.taken),
        nanos(events.nanos_each),
        count(events.missed),
    );
    let (made, each) = (count(lookups.made), nanos(lookups.nanos_each));
    let lookups = format!("{made}, in {each} each, verification included");
    for (what, text) in [
        ("Calls", calls),
        ("Doorbells", rung),
        ("Refreshes", refreshes),
        ("Events", events),
        ("Look-ups", lookups),
    ] {
        writeln!(to, "{TITLE}{what:<10}{TITLE:#}{}", wrapped(&text, out::width(), 10))?;
    }
    writeln!(to)
}

fn object(outcome: &Outcome, checks: &[Check], ok: bool) -> Value {
    let test_cgroups = &outcome.test_cgroups;
    json!({
        "ok": ok,
        "interrupted": outcome.interrupted.is_some(),
        "checks": check::verdicts(checks),
        "connect_nanos": outcome.connect_nanos,
        "cgroups": {
            "place": test_cgroups.place().map(|place| place.display().to_string()),
            "trouble": test_cgroups.trouble,
            "made": test_cgroups.made,
            "found": test_cgroups.found,
            "removed": test_cgroups.removed,
            "gone": test_cgroups.gone,
            "stale_removed": test_cgroups.stale,
        },
        "seconds": outcome.seconds,
        "lane_changes": outcome.totals.burst.as_ref().map_or(&[][..], |burst| &burst.lane_changes),
        "consumer": outcome.totals,
        "provider": outcome.served,
        "trouble": outcome.trouble,
    })
}

#[allow(clippy::cast_precision_loss, reason = "three digits are printed")]
fn time(value: u64) -> String {
    nanos(value as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_fits_a_narrow_terminal() {
        let titles = |width| {
            let figures = fitting(figures(&Second::default()), width);
            figures.iter().map(|figure| figure.title).collect::<Vec<_>>()
        };
        assert_eq!(titles(None).len(), 10);
        assert_eq!(titles(Some(200)).len(), 10);
        let narrow = titles(Some(80));
        assert!(narrow.contains(&"errors") && !narrow.contains(&"generation"), "{narrow:?}");
        assert_eq!(titles(Some(1)), ["time", "RTT p50"]);
    }
}
