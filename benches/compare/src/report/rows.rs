//! From the samples of the rounds to the rows of a report.

use std::collections::BTreeMap;

use bellwire_floor::Spread;
use bellwire_floor::placement::Placement;

use super::model::{Latency, Lost, Measured, Row};
use crate::hist;
use crate::order::Schedule;
use crate::run::{CountedSample, Plan, Rounds};
use crate::scenario::Scenario;

/// Rounds that a row has at least, to be published.
pub(crate) const ROUNDS: usize = 5;

/// The result of a scenario's rounds.
pub(crate) fn measured(
    scenario: &Scenario,
    plan: &Plan,
    rounds: &[(&'static str, Rounds)],
    refused: BTreeMap<String, String>,
) -> Measured {
    let (mut rows, mut missing) = (Vec::new(), BTreeMap::new());
    for (name, of) in rounds {
        if of.counted.is_empty() {
            missing.insert((*name).to_owned(), of.lost);
        }
        for (at, (placement, counted)) in by_placement(&of.counted).into_iter().enumerate() {
            if let Some(mut row) = row(name, placement, &counted, of.lost) {
                row.is_main = at == 0;
                row.stable = counted.len() >= ROUNDS.min(plan.rounds) && row.ns.is_stable();
                row.ahead_of = ahead_of(&counted, rounds, name);
                rows.push(row);
            }
        }
    }
    Measured {
        name: scenario.name.clone(),
        group: scenario.group.to_owned(),
        about: scenario.about(),
        unit: scenario.unit().to_owned(),
        bytes: scenario.bytes(),
        rate: match scenario.schedule {
            Schedule::Rate(rate) => Some(rate),
            _ => None,
        },
        clients: scenario.load.clients,
        floor: scenario.floor().about().to_owned(),
        rows,
        refused,
        missing,
        ..Measured::default()
    }
}

/// The samples of each placement, the largest group first.
fn by_placement(counted: &[CountedSample]) -> Vec<(Option<Placement>, Vec<&CountedSample>)> {
    let mut groups: BTreeMap<Option<Placement>, Vec<&CountedSample>> = BTreeMap::new();
    for sample in counted {
        groups.entry(sample.placement).or_default().push(sample);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, counted)| std::cmp::Reverse(counted.len()));
    groups
}

fn row(
    name: &str,
    placement: Option<Placement>,
    counted: &[&CountedSample],
    lost: Lost,
) -> Option<Row> {
    let samples: Vec<f64> = counted.iter().map(|counted| counted.sample.ns).collect();
    let floor_ratios: Vec<f64> =
        counted.iter().map(|counted| counted.sample.ns / counted.floor).collect();
    let middle = |each: &dyn Fn(&CountedSample) -> Option<f64>| {
        Spread::of(counted.iter().filter_map(|counted| each(counted))).map(|spread| spread.median)
    };
    let [client, server] = [0, 1]
        .map(|end| middle(&|counted| counted.sample.cpu_ns.get(end).copied()).unwrap_or_default());
    Some(Row {
        contender: name.to_owned(),
        placement: placement.map_or_else(|| "any".to_owned(), |placement| placement.to_string()),
        rounds: counted.len(),
        lost,
        ns: Spread::of(samples.iter().copied())?,
        samples,
        floor_ns: Spread::of(counted.iter().map(|counted| counted.floor)),
        to_floor: Spread::of(floor_ratios.iter().copied()),
        floor_ratios,
        latency: latency(counted),
        cpu_client_ns: client,
        cpu_server_ns: server,
        sleeps: middle(&|counted| Some(counted.sample.sleeps)).unwrap_or_default(),
        wakes: middle(&|counted| counted.sample.wakes),
        parks: middle(&|counted| counted.sample.parks),
        system_calls: middle(&|counted| counted.sample.system_calls),
        kernel_server_ns: middle(&|counted| Some(counted.sample.kernel_server_ns))
            .unwrap_or_default(),
        sleeps_server: middle(&|counted| Some(counted.sample.sleeps_server)).unwrap_or_default(),
        resident_server: middle(&|counted| Some(counted.sample.resident_server as f64))
            .unwrap_or_default(),
        ..Row::default()
    })
}

/// Round by round, where the other one's sample is of the same placement.
fn ahead_of(
    counted: &[&CountedSample],
    rounds: &[(&'static str, Rounds)],
    name: &str,
) -> BTreeMap<String, Spread> {
    let mut all = BTreeMap::new();
    for (other, theirs) in rounds.iter().filter(|(other, _)| *other != name) {
        let ratios = counted.iter().filter_map(|mine| {
            let same = |theirs: &&CountedSample| {
                (theirs.round, theirs.placement) == (mine.round, mine.placement)
            };
            Some(theirs.counted.iter().find(same)?.sample.ns / mine.sample.ns)
        });
        if let Some(spread) = Spread::of(ratios) {
            all.insert((*other).to_owned(), spread);
        }
    }
    all
}

fn latency(counted: &[&CountedSample]) -> Option<Latency> {
    let mut all = hist::new();
    for counted in counted {
        hist::add(&mut all, &counted.sample.took);
    }
    let at = |quantile| all.value_at_quantile(quantile);
    (!all.is_empty()).then(|| Latency {
        count: all.len(),
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: all.max(),
        counts: hist::counts(&all),
    })
}

#[cfg(test)]
mod tests {
    use bellwire_floor::Cpus;

    use super::*;
    use crate::scenario;

    #[test]
    fn the_rates_of_all_clients_are_added() {
        let cpus = Cpus { client: 0, peer: 1 };
        let plan =
            Plan { contenders: vec![], rounds: 1, millis: None, quick: true, cpus, falsify: None };
        let row = Row { ns: Spread { median: 500.0, ..Spread::default() }, ..Row::default() };
        for (name, a_second) in
            [("rate-10k", 10_000.0), ("reactor-100-1k", 100_000.0), ("clients-8", 2_000_000.0)]
        {
            let all = scenario::all(None);
            let scenario = all.iter().find(|scenario| scenario.name == name).expect("it is there");
            let measured = measured(scenario, &plan, &[], BTreeMap::new());
            assert!((measured.a_second(&row) - a_second).abs() < 1.0, "{name}: {measured:?}");
        }
    }
}
