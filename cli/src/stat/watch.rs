use std::collections::BTreeMap;
use std::time::Instant;

use bellwire::{ServerStats, ServiceName};

use super::args::{Stat, StatFormat};
use super::{Provider, StatsQuery, ask, print, right, verdict};
use crate::exit::{Exit, Failure};
use crate::out::{Align, Cell, Column, Table, count, rate, whole_bytes};
use crate::stop::Stop;

/// Polls repeatedly and reports the changes in between.
pub(super) fn run(asker: &StatsQuery<'_>, args: &Stat) -> Result<Exit, Failure> {
    let stop = Stop::on_signals()?;
    let mut before: BTreeMap<ServiceName, (Instant, ServerStats)> = BTreeMap::new();
    let mut due = Instant::now();
    loop {
        let providers = ask(asker, args)?;
        if args.output.format() == StatFormat::Table {
            rates(&providers, &before)?;
        } else {
            print(asker.run_dir, args.output.format(), &providers)?;
        }
        let now = Instant::now();
        before = providers
            .iter()
            .filter_map(|provider| Some((provider.service, (now, *provider.stats()?))))
            .collect();
        due = (due + args.interval).max(now);
        if stop.sleep_until(due) {
            return Ok(verdict(&providers));
        }
    }
}

fn rates(
    providers: &[Provider],
    before: &BTreeMap<ServiceName, (Instant, ServerStats)>,
) -> Result<(), Failure> {
    let mut table = Table::new([
        Column::new("SERVICE", Align::Left),
        right("SESSIONS"),
        right("CALLS/S"),
        right("ERRORS/S"),
        right("REFUSED/S"),
        right("IN FLIGHT"),
        right("IN/S"),
        right("OUT/S"),
    ]);
    for provider in providers {
        let Some(stats) = provider.stats() else {
            table.row([Cell::new(provider.service.to_string()), Cell::new("-")]);
            continue;
        };
        let earlier = before.get(&provider.service);
        let per_second = |of: fn(&ServerStats) -> u64| per_second(stats, earlier, of);
        let rate_cell = |value: Option<f64>| Cell::new(value.map_or("-".into(), rate));
        let bytes_cell = |value: Option<f64>| Cell::new(value.map_or("-".into(), whole_bytes));
        table.row([
            Cell::new(provider.service.to_string()),
            Cell::new(count(stats.sessions)),
            rate_cell(per_second(|stats| stats.accepted)),
            rate_cell(per_second(|stats| stats.errors)),
            rate_cell(per_second(|stats| stats.refused)),
            Cell::new(count(stats.in_flight())),
            bytes_cell(per_second(|stats| stats.bytes_received)),
            bytes_cell(per_second(|stats| stats.bytes_sent)),
        ]);
    }
    Ok(table.show()?)
}

/// Returns the changes per second; `None` at the first poll and after a restart of the provider.
#[allow(clippy::cast_precision_loss, reason = "three digits are printed")]
fn per_second(
    stats: &ServerStats,
    before: Option<&(Instant, ServerStats)>,
    of: fn(&ServerStats) -> u64,
) -> Option<f64> {
    let (at, before) = before?;
    let increase = of(stats).checked_sub(of(before))?;
    Some(increase as f64 / at.elapsed().as_secs_f64())
}
