//! `breakdown`: the share of each stage in a call.

use bellwire_trace_core::{
    CALL_STAGES, Counts, DELIVERY_STAGES, HANDLER_STAGES, Key, Options, Pattern, RECEIVE_STAGES,
    REPLY_STAGES, Stage,
};
use serde::Serialize;

use crate::args::BreakdownArgs;
use crate::error::Error;
use crate::hist::{each_interval, heading};
use crate::out::outln;
use crate::signal::Waiter;
use crate::tracer;

#[derive(Serialize)]
struct Row {
    stage: Stage,
    count: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    total_ns: u64,
    /// The share of the time of all calls together, from 0 to 1.
    share: f64,
}

#[derive(Serialize)]
struct Table<'a> {
    service: &'a str,
    pattern: Pattern,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<u64>,
    server: u32,
    client: u32,
    /// All calls; `samples` of them were sampled.
    calls: u64,
    samples: u64,
    stages: Vec<Row>,
}

pub(crate) fn run(args: &BreakdownArgs) -> Result<(), Error> {
    let waiter = Waiter::on_signals()?;
    let options = Options { by_session: args.by_session, ..Options::default() };
    tracer::trace(&args.scope, options, |tracer| {
        each_interval(tracer, &args.schedule, &waiter, |counts| {
            for (key, counts) in counts {
                if args.folded {
                    print_folded(key, counts)?;
                } else if args.scope.json {
                    outln!("{}", serde_json::to_string(&table(key, counts))?);
                } else {
                    print(key, counts)?;
                }
            }
            Ok(())
        })?;
        tracer::finish(tracer)
    })
}

fn table<'a>(key: &'a Key, counts: &Counts) -> Table<'a> {
    let calls = counts.stage(Stage::Call);
    #[expect(clippy::cast_precision_loss, reason = "a share to three digits")]
    let rows = Stage::ALL.iter().copied().filter(|stage| stage.is_of(key.pattern)).map(|stage| {
        let histogram = counts.stage(stage);
        Row {
            stage,
            count: histogram.count,
            p50_ns: histogram.quantile(0.5),
            p90_ns: histogram.quantile(0.9),
            p99_ns: histogram.quantile(0.99),
            max_ns: histogram.max,
            total_ns: histogram.sum,
            share: histogram.sum as f64 / calls.sum.max(1) as f64,
        }
    });
    Table {
        service: &key.service,
        pattern: key.pattern,
        session: key.session.map(|(number, _)| number),
        server: counts.server,
        client: counts.client,
        calls: calls.count,
        samples: counts.samples,
        stages: rows.collect(),
    }
}

fn print(key: &Key, counts: &Counts) -> Result<(), Error> {
    let table = table(key, counts);
    outln!("\n{}, in microseconds", heading(key, counts));
    outln!(
        "{:<17} {:>8} {:>10} {:>10} {:>10} {:>10} {:>7}",
        "STAGE",
        "COUNT",
        "P50",
        "P90",
        "P99",
        "MAX",
        "SHARE"
    );
    // A handler that is never stopped has no such line, nor one that copies all snapshots and maps none.
    let is_optional =
        |stage| HANDLER_STAGES.contains(&stage) || [Stage::Copy, Stage::Map].contains(&stage);
    let is_shown = |row: &&Row| row.count > 0 || !is_optional(row.stage);
    for row in table.stages.iter().filter(is_shown) {
        #[expect(clippy::cast_precision_loss, reason = "times to four digits")]
        let [p50, p90, p99, max] =
            [row.p50_ns, row.p90_ns, row.p99_ns, row.max_ns].map(|nanos| nanos as f64 / 1e3);
        outln!(
            "{:<17} {:>8} {p50:>10.1} {p90:>10.1} {p99:>10.1} {max:>10.1} {:>6.1}%",
            row.stage.name(),
            row.count,
            row.share * 100.0
        );
    }
    Ok(())
}

/// Prints one line for each leaf, as input for a flame graph.
fn print_folded(key: &Key, counts: &Counts) -> Result<(), Error> {
    let sum = |stage| counts.stage(stage).sum;
    let of = |stage: Stage| (stage.name().replace('/', ";"), sum(stage));
    let states = HANDLER_STAGES.into_iter().map(|stage| {
        let (name, sum) = of(stage);
        (format!("receive;{name}"), sum)
    });
    let known: u64 = HANDLER_STAGES.into_iter().map(sum).sum();
    let rest = ("receive;handler".to_owned(), sum(Stage::Handler).saturating_sub(known));
    let is_leaf = |stage: &Stage| ![Stage::Receive, Stage::Handler, Stage::Reply].contains(stage);
    let taken = DELIVERY_STAGES.into_iter().filter(|stage| !CALL_STAGES.contains(stage));
    let leaves = CALL_STAGES.into_iter().chain(RECEIVE_STAGES).chain(REPLY_STAGES).chain(taken);
    for (name, total) in leaves.filter(is_leaf).map(of).chain(states).chain([rest]) {
        if total > 0 {
            let session =
                key.session.map_or_else(String::new, |(number, _)| format!(";session {number}"));
            let pattern = match key.pattern {
                Pattern::Call => String::new(),
                other => format!(";{}", other.plural()),
            };
            outln!("{}{pattern}{session};{name} {total}", key.service);
        }
    }
    Ok(())
}
