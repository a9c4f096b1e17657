//! The result of a run, as in its JSON.

use std::collections::BTreeMap;

use bellwire_floor::Spread;
use serde::{Deserialize, Serialize};

use crate::contender::ContenderInfo;
use crate::system::{State, System};

/// The number of this layout.
pub(crate) const SCHEMA: u32 = 1;

/// A run. Times are in ns.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) schema: u32,
    /// What made it.
    pub(crate) command: String,
    /// When it began, in UTC.
    pub(crate) began: String,
    /// How many seconds it took.
    pub(crate) took_s: f64,
    pub(crate) system: System,
    /// The machine before the run, after each scenario, and so at the end.
    #[serde(default)]
    pub(crate) states: Vec<State>,
    pub(crate) rounds: u32,
    /// Whether it was made in a hurry: such figures are meaningless.
    pub(crate) quick: bool,
    pub(crate) contenders: BTreeMap<String, ContenderInfo>,
    pub(crate) scenarios: Vec<Measured>,
}

/// What a scenario says.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) name: String,
    pub(crate) group: String,
    /// What one operation is.
    pub(crate) about: String,
    pub(crate) unit: String,
    /// Bytes of an operation's message.
    pub(crate) bytes: Option<usize>,
    /// So many a second of each client, where that is the same for all.
    pub(crate) rate: Option<u64>,
    #[serde(default)]
    pub(crate) clients: usize,
    /// What stands beside it.
    pub(crate) floor: String,
    /// The machine's time by other means, ns.
    #[serde(default)]
    pub(crate) other_floors: BTreeMap<String, Spread>,
    pub(crate) rows: Vec<Row>,
    /// Contenders that cannot do it, and why.
    pub(crate) refused: BTreeMap<String, String>,
    /// Contenders without a valid round.
    pub(crate) missing: BTreeMap<String, Lost>,
}

/// The result of a contender's rounds in one placement; counts are of one operation, and of both ends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) contender: String,
    /// Where the two processors were: rows of different places cannot be compared.
    pub(crate) placement: String,
    /// Whether most of its rounds were here: the row that speaks for the contender.
    pub(crate) is_main: bool,
    /// Whether it may be published: enough rounds, and the middle ones agree.
    pub(crate) stable: bool,
    /// Rounds that counted here.
    pub(crate) rounds: usize,
    /// Samples that were taken and do not count, over all placements.
    pub(crate) lost: Lost,
    /// What an operation took.
    pub(crate) ns: Spread,
    /// The same of each round, in order.
    pub(crate) samples: Vec<f64>,
    pub(crate) floor_ns: Option<Spread>,
    /// Ratio to the floor beside it, for each round.
    pub(crate) to_floor: Option<Spread>,
    pub(crate) floor_ratios: Vec<f64>,
    /// The time of each other contender divided by this one's, in the rounds in which both count: above 1, this one
    /// is faster.
    pub(crate) ahead_of: BTreeMap<String, Spread>,
    pub(crate) latency: Option<Latency>,
    pub(crate) cpu_client_ns: f64,
    pub(crate) cpu_server_ns: f64,
    /// Voluntary context switches.
    pub(crate) sleeps: f64,
    pub(crate) wakes: Option<f64>,
    pub(crate) parks: Option<f64>,
    pub(crate) system_calls: Option<f64>,
    /// Of the server alone: time in the kernel, voluntary context switches, and resident memory in bytes.
    #[serde(default)]
    pub(crate) kernel_server_ns: f64,
    #[serde(default)]
    pub(crate) sleeps_server: f64,
    #[serde(default)]
    pub(crate) resident_server: f64,
    /// What was measured before, if that was not stable and this is the second attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_attempt: Option<Attempt>,
}

/// Rounds that another attempt took the place of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Attempt {
    pub(crate) placement: String,
    pub(crate) stable: bool,
    pub(crate) lost: Lost,
    pub(crate) ns: Spread,
    pub(crate) samples: Vec<f64>,
}

/// Why samples do not count.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Lost {
    /// The placement changed, or was unclear.
    pub(crate) moved: usize,
    /// Something else ran on one of the processors.
    #[serde(rename = "crowded")]
    pub(crate) preempted: usize,
}

/// Of all operations that were timed one by one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) count: u64,
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
    /// How often so many ns occurred.
    pub(crate) counts: Vec<(u64, u64)>,
}

impl Report {
    /// What may not be published, a line each.
    pub(crate) fn unstable(&self) -> Vec<String> {
        let rows = self.main_rows().filter(|(_, row)| !row.stable).map(|(measured, row)| {
            let Spread { middle: (low, high), .. } = row.ns;
            format!(
                "{}, {}: {} rounds count, the middle ones lie from {low:.1} to {high:.1} ns",
                measured.name, row.contender, row.rounds
            )
        });
        let missing = self.scenarios.iter().flat_map(|measured| {
            measured.missing.iter().map(|(contender, lost)| {
                let Lost { moved, preempted } = lost;
                let name = &measured.name;
                format!(
                    "{name}, {contender}: no round counts, {moved} samples moved, {preempted} preempted"
                )
            })
        });
        rows.chain(missing).collect()
    }

    /// The row of each contender that speaks for it, in each scenario.
    pub(crate) fn main_rows(&self) -> impl Iterator<Item = (&Measured, &Row)> {
        self.scenarios
            .iter()
            .flat_map(|measured| measured.main_rows().map(move |row| (measured, row)))
    }
}

impl Measured {
    /// Operations a second of all clients: as many as were asked for, or as they can do.
    #[expect(clippy::cast_precision_loss, reason = "a million of each client at most")]
    pub(crate) fn a_second(&self, row: &Row) -> f64 {
        self.rate.map_or(1e9 / row.ns.median, |rate| rate as f64 * self.clients as f64)
    }

    /// A row's time by that of the first contender, in rounds of the same placement.
    pub(crate) fn by_first(&self, row: &Row) -> Option<f64> {
        let first = &self.main_rows().next()?.contender;
        let is_it = |other: &&Row| other.contender == *first && other.placement == row.placement;
        Some(self.rows.iter().find(is_it)?.ahead_of.get(&row.contender)?.median)
    }

    /// The row of each contender that speaks for it.
    pub(crate) fn main_rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.is_main)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A report of one row with these samples, beside these floors.
    pub(crate) fn report(samples: &[f64], floors: Option<&[f64]>) -> Report {
        let spread = |samples: &[f64]| Spread::of(samples.iter().copied());
        let ratios: Vec<f64> = floors.map_or_else(Vec::new, |of| {
            samples.iter().zip(of).map(|(ns, floor)| ns / floor).collect()
        });
        let ns = spread(samples).expect("there are samples");
        let row = Row {
            contender: "bellwire".to_owned(),
            placement: "one cache".to_owned(),
            is_main: true,
            stable: ns.is_stable(),
            rounds: samples.len(),
            ns,
            samples: samples.to_vec(),
            floor_ns: floors.and_then(spread),
            to_floor: spread(&ratios),
            floor_ratios: ratios,
            ..Row::default()
        };
        let measured =
            Measured { name: "ping-pong-64".to_owned(), rows: vec![row], ..Measured::default() };
        Report { scenarios: vec![measured], ..Report::default() }
    }

    #[test]
    fn a_torn_or_missing_row_is_reported() {
        let mut report = report(&[100.0, 100.0, 100.0, 200.0, 200.0, 200.0], None);
        assert_eq!(report.unstable().len(), 1, "{:?}", report.unstable());
        for measured in &mut report.scenarios {
            measured.missing.insert("seqpacket".to_owned(), Lost::default());
        }
        assert_eq!(report.unstable().len(), 2, "{:?}", report.unstable());
    }
}
