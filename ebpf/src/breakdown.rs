//! `breakdown`: the share of each stage in a call.

use serde::Serialize;

use crate::args::BreakdownArgs;
use crate::error::Error;
use crate::hist::{each_interval, heading, report_losses};
use crate::histogram::Histogram;
use crate::out::outln;
use crate::signal::Waiter;
use crate::stage::{CALL_STAGES, REPLY_STAGES, Stage};
use crate::tracer::{self, Counts, Key, Options};

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
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<u64>,
    server: u32,
    client: u32,
    calls: u64,
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
        report_losses(tracer.losses());
        Ok(())
    })
}

/// Returns the histogram of a stage, empty if there is none.
fn histogram_of(counts: &Counts, stage: Stage) -> Histogram {
    counts.stages.get(stage.index()).cloned().unwrap_or_default()
}

fn table<'a>(key: &'a Key, counts: &Counts) -> Table<'a> {
    let calls = histogram_of(counts, Stage::Call);
    let all = CALL_STAGES.into_iter().chain(REPLY_STAGES).chain([Stage::Call]);
    #[expect(clippy::cast_precision_loss, reason = "a share to three digits")]
    let rows = all.map(|stage| {
        let histogram = histogram_of(counts, stage);
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
        session: key.session.map(|(number, _)| number),
        server: counts.server,
        client: counts.client,
        calls: calls.count,
        stages: rows.collect(),
    }
}

fn print(key: &Key, counts: &Counts) -> Result<(), Error> {
    let table = table(key, counts);
    outln!("\n{}, {} calls, in microseconds", heading(key), table.calls);
    outln!(
        "{:<15} {:>8} {:>10} {:>10} {:>10} {:>10} {:>7}",
        "STAGE",
        "COUNT",
        "P50",
        "P90",
        "P99",
        "MAX",
        "SHARE"
    );
    for row in &table.stages {
        #[expect(clippy::cast_precision_loss, reason = "times to four digits")]
        let [p50, p90, p99, max] =
            [row.p50_ns, row.p90_ns, row.p99_ns, row.max_ns].map(|nanos| nanos as f64 / 1e3);
        outln!(
            "{:<15} {:>8} {p50:>10.1} {p90:>10.1} {p99:>10.1} {max:>10.1} {:>6.1}%",
            row.stage.name(),
            row.count,
            row.share * 100.0
        );
    }
    Ok(())
}

/// Prints one line for each leaf, as input for a flame graph.
fn print_folded(key: &Key, counts: &Counts) -> Result<(), Error> {
    let leaves = CALL_STAGES.into_iter().filter(|stage| *stage != Stage::Reply).chain(REPLY_STAGES);
    for stage in leaves {
        let total = histogram_of(counts, stage).sum;
        if total > 0 {
            let session =
                key.session.map_or_else(String::new, |(number, _)| format!(";session {number}"));
            outln!("{}{session};{} {total}", key.service, stage.name().replace('/', ";"));
        }
    }
    Ok(())
}
