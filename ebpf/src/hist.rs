//! `hist`: histograms in the style of bcc.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use bellwire_trace_core::{Counts, Key, Options, Pattern, Stage, Tracer};
use serde::Serialize;

use crate::args::{HistArgs, Schedule};
use crate::error::Error;
use crate::out::outln;
use crate::signal::Waiter;
use crate::tracer;

/// How long to wait before the tracer looks for processes that it should attach to.
pub(crate) const TICK: Duration = Duration::from_millis(200);
/// The length of the longest bar, in characters.
const BAR: usize = 40;

#[derive(Serialize)]
struct Line<'a> {
    service: &'a str,
    pattern: Pattern,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<u64>,
    stage: Stage,
    /// The calls that were sampled; `count` is of all.
    samples: u64,
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
                for stage in stages.iter().filter(|stage| stage.is_of(key.pattern)) {
                    if args.scope.json {
                        print_json(key, *stage, counts)?;
                    } else {
                        print(key, *stage, counts)?;
                    }
                }
            }
            Ok(())
        })?;
        tracer::finish(tracer)
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
        let end = schedule.interval.map(|interval| Instant::now() + interval);
        let stopped = loop {
            let left = end.map_or(TICK, |end| end.saturating_duration_since(Instant::now()));
            if waiter.stops_within(left.min(TICK)) {
                break true;
            }
            if left <= TICK && end.is_some() {
                break false;
            }
            tracer.maintain();
        };
        let now = tracer.counts();
        let fresh = now.iter().map(|(key, counts)| {
            let earlier = before.get(key);
            (key.clone(), earlier.map_or_else(|| counts.clone(), |then| counts.since(then)))
        });
        let fresh: BTreeMap<Key, Counts> = fresh.filter(|(_, counts)| !counts.is_empty()).collect();
        show(&fresh)?;
        before = now;
        shown += 1;
        if stopped || schedule.count.is_some_and(|count| shown >= count) {
            return Ok(());
        }
    }
}

/// Says how many messages there were, and how many of them were sampled.
pub(crate) fn sample_note(calls: u64, samples: u64, what: &str) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a ratio of two digits")]
    let each = calls as f64 / samples.max(1) as f64;
    match calls.cmp(&samples) {
        std::cmp::Ordering::Greater if each >= 10.0 => {
            format!("{calls} {what}, 1 in {each:.0} sampled")
        }
        std::cmp::Ordering::Greater => format!("{calls} {what}, 1 in {each:.1} sampled"),
        _ => format!("{calls} {what}, all sampled"),
    }
}

/// Names a session or a service, and how many messages there were.
pub(crate) fn heading(key: &Key, counts: &Counts) -> String {
    let mut heading = format!("service = {}", key.service);
    if let Some((number, _)) = key.session {
        let _ = write!(heading, ", session = {number}");
    }
    if key.pattern == Pattern::Delivery {
        let _ = write!(heading, ", reader = process {}", counts.client);
    }
    let all = counts.stage(Stage::Call).count;
    let sample_note = sample_note(all, counts.samples, key.pattern.plural());
    format!("{heading}, {sample_note}")
}

fn print(key: &Key, stage: Stage, counts: &Counts) -> Result<(), Error> {
    let histogram = counts.stage(stage);
    outln!("\n{}, stage = {}", heading(key, counts), stage.name());
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

fn print_json(key: &Key, stage: Stage, counts: &Counts) -> Result<(), Error> {
    let (samples, histogram) = (counts.samples, counts.stage(stage));
    let line = Line {
        service: &key.service,
        pattern: key.pattern,
        session: key.session.map(|(number, _)| number),
        stage,
        samples,
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
