//! `hist`: histograms in the style of bcc.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::args::{HistArgs, Schedule};
use crate::error::Error;
use crate::histogram::Histogram;
use crate::out::{errln, outln};
use crate::signal::Waiter;
use crate::stage::Stage;
use crate::tracer::{self, Counts, Key, Losses, Options, Tracer};

/// The length of the longest bar, in characters.
const BAR: usize = 40;

#[derive(Serialize)]
struct Line<'a> {
    service: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<u64>,
    stage: Stage,
    count: u64,
    mean_ns: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    /// Counts of 0 and 1, of 2 and 3, of 4 to 7, and so on.
    powers_of_two: Vec<u64>,
}

pub(crate) fn run(args: &HistArgs) -> Result<(), Error> {
    let waiter = Waiter::on_signals()?;
    let stages = if args.stage.is_empty() { vec![Stage::Call] } else { args.stage.clone() };
    let options = Options { by_session: args.by_session, ..Options::default() };
    tracer::trace(&args.scope, options, |tracer| {
        each_interval(tracer, &args.schedule, &waiter, |counts| {
            for (key, counts) in counts {
                for stage in &stages {
                    let Some(histogram) = counts.stages.get(stage.index()) else { continue };
                    if args.scope.json {
                        print_json(key, *stage, histogram)?;
                    } else {
                        print(key, *stage, histogram)?;
                    }
                }
            }
            Ok(())
        })?;
        report_losses(tracer.losses());
        Ok(())
    })
}

/// Shows the counts of each interval until the requested number of intervals has passed or a signal arrives.
pub(crate) fn each_interval(
    tracer: &Tracer<'_>,
    schedule: &Schedule,
    waiter: &Waiter,
    mut show: impl FnMut(&BTreeMap<Key, Counts>) -> Result<(), Error>,
) -> Result<(), Error> {
    // The first output contains everything since the attach.
    let mut before = BTreeMap::new();
    let mut shown = 0;
    loop {
        let stopped = waiter.stops_within(schedule.interval);
        let now = tracer.counts();
        let fresh = now.iter().map(|(key, counts)| (key.clone(), since(counts, before.get(key))));
        let fresh: BTreeMap<Key, Counts> =
            fresh.filter(|(_, counts)| counts.stages.iter().any(|stage| stage.count > 0)).collect();
        show(&fresh)?;
        before = now;
        shown += 1;
        if stopped || schedule.count.is_some_and(|count| shown >= count) {
            return Ok(());
        }
    }
}

fn since(now: &Counts, before: Option<&Counts>) -> Counts {
    let Some(before) = before else { return now.clone() };
    let stages = now.stages.iter().zip(&before.stages);
    Counts { stages: stages.map(|(now, then)| now.since(then)).collect(), ..*now }
}

/// Prints a warning about what could not be counted, if anything.
pub(crate) fn report_losses(losses: Losses) {
    if losses != Losses::default() {
        let Losses { disordered, unmatched, dropped, unread } = losses;
        errln!(
            "not counted: {unmatched} answers whose request was not seen, {disordered} calls whose times are not in \
             order, {dropped} events without room, {unread} records that could not be read"
        );
    }
}

pub(crate) fn heading(key: &Key) -> String {
    match key.session {
        Some((number, _)) => format!("service = {}, session = {number}", key.service),
        None => format!("service = {}", key.service),
    }
}

fn print(key: &Key, stage: Stage, histogram: &Histogram) -> Result<(), Error> {
    outln!("\n{}, stage = {}", heading(key), stage.name());
    outln!("{:>16} {:<12} : {:<8} distribution", "nsecs", "", "count");
    let powers = histogram.powers();
    let most = powers.iter().copied().max().unwrap_or(0).max(1);
    let first = powers.iter().position(|count| *count > 0).unwrap_or(0);
    for (power, count) in powers.iter().enumerate().skip(first) {
        let from = if power == 0 { 0 } else { 1_u64 << power };
        let to = (1_u64 << (power + 1)) - 1;
        let stars = usize::try_from(count * BAR as u64 / most).unwrap_or(BAR);
        outln!("{from:>12} -> {to:<12} : {count:<8} |{:<BAR$}|", "*".repeat(stars));
    }
    outln!(
        "count {}, mean {} ns, max {} ns",
        histogram.count,
        histogram.sum / histogram.count.max(1),
        histogram.max
    );
    Ok(())
}

fn print_json(key: &Key, stage: Stage, histogram: &Histogram) -> Result<(), Error> {
    let line = Line {
        service: &key.service,
        session: key.session.map(|(number, _)| number),
        stage,
        count: histogram.count,
        mean_ns: histogram.sum / histogram.count.max(1),
        p50_ns: histogram.quantile(0.5),
        p90_ns: histogram.quantile(0.9),
        p99_ns: histogram.quantile(0.99),
        max_ns: histogram.max,
        powers_of_two: histogram.powers(),
    };
    outln!("{}", serde_json::to_string(&line)?);
    Ok(())
}
