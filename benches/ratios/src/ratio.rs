//! A measurement beside its floor: the two alternate, and the ratio of each round counts.
//!
//! A noisy machine is slow for both; the ratio of two samples taken within milliseconds of each other, in
//! one placement, says more than either number.

use std::collections::BTreeMap;
use std::fmt;

use bellwire_floor::placement::{Lost, Placement, Probe, steady};
use bellwire_floor::{Prober, Spread};

pub type Failure = Box<dyn std::error::Error + Send + Sync>;
/// Nanoseconds for one operation, or why there is no sample.
pub type Sample = Result<f64, Failure>;

/// The result.
pub struct Report {
    name: &'static str,
    /// The rounds that count, by placement (`None` if that was not probed), the largest group first.
    groups: Vec<(Option<Placement>, Vec<Round>)>,
    /// All rounds, those that do not count included.
    total: usize,
    /// Rounds in which the placement changed.
    moved: usize,
    /// Rounds in which something else ran on the two CPUs.
    preempted: usize,
}

struct Round {
    floor: f64,
    measured: f64,
}

/// Takes `rounds` samples of each and compares them round by round.
///
/// Floor and measured swap places every round, since the second one finds the machine warmer. With a `prober`
/// (both spin) a round counts where the probes before, between and after agree and nothing was preempted; without
/// one (both sleep, or share a CPU) every round counts. A sample of 2 to 10 ms is short enough to be kept.
pub fn compare(
    name: &'static str,
    rounds: usize,
    mut floor: impl FnMut() -> Sample,
    mut measured: impl FnMut() -> Sample,
    mut prober: Option<&mut Prober>,
) -> Result<Report, Failure> {
    let mut probe = || prober.as_mut().map(|prober| prober.probe()).transpose();
    let mut kept: BTreeMap<_, Vec<Round>> = BTreeMap::new();
    let (mut moved, mut preempted) = (0, 0);
    for round in 0..rounds {
        let before = probe()?;
        let (round, between) = if round % 2 == 0 {
            let floor = floor()?;
            let between = probe()?;
            (Round { floor, measured: measured()? }, between)
        } else {
            let measured = measured()?;
            let between = probe()?;
            (Round { floor: floor()?, measured }, between)
        };
        let probes: Vec<Probe> = [before, between, probe()?].into_iter().flatten().collect();
        match steady(&probes) {
            _ if probes.is_empty() => kept.entry(None).or_default().push(round),
            Ok(placement) => kept.entry(Some(placement)).or_default().push(round),
            Err(Lost::Moved) => moved += 1,
            Err(Lost::Preempted) => preempted += 1,
        }
    }
    let mut groups: Vec<_> = kept.into_iter().collect();
    groups.sort_by_key(|(_, rounds)| std::cmp::Reverse(rounds.len()));
    Ok(Report { name, groups, total: rounds, moved, preempted })
}

impl Report {
    /// The median of the placement that most rounds had, those rounds, all rounds, and why the others do not count.
    pub fn line(&self) -> String {
        let Self { groups, total, moved, preempted, .. } = self;
        let (median, kept) = match groups.first() {
            Some((_, rounds)) => (format!("{:.3}", ratios(rounds).median), rounds.len()),
            None => ("none".to_owned(), 0),
        };
        let elsewhere: usize = groups.iter().skip(1).map(|(_, rounds)| rounds.len()).sum();
        format!(
            "{median} {kept} {total} {moved} moved, {preempted} preempted, {elsewhere} in other places"
        )
    }
}

/// For people: a line for each placement.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, groups, total, .. } = self;
        for (placement, rounds) in groups {
            let Spread { min, median, max, .. } = ratios(rounds);
            let floor = spread(rounds, |round| round.floor).median;
            let measured = spread(rounds, |round| round.measured).median;
            let place = placement.map_or_else(|| "any".to_owned(), |place| place.to_string());
            writeln!(
                f,
                "{name:<40} floor {floor:>8.1} ns  measured {measured:>8.1} ns  ratio {median:.3} [{min:.3}..{max:.3}]  \
                 {place}, {} of {total}",
                rounds.len()
            )?;
        }
        Ok(())
    }
}

fn ratios(rounds: &[Round]) -> Spread {
    spread(rounds, |round| round.measured / round.floor)
}

fn spread(rounds: &[Round], of: fn(&Round) -> f64) -> Spread {
    Spread::of(rounds.iter().map(of)).expect("a group has a round")
}
