//! A measurement beside its floor: the two alternate, and the ratio of each round counts.
//!
//! A noisy machine is slow for both; the ratio of two samples taken within milliseconds of each other, in
//! one placement, says more than either number.

use std::error::Error as StdError;
use std::fmt;

use super::placement::{self, Lost, Placement, Prober};

/// Nanoseconds for one operation, or why there is no sample.
pub type Sample = Result<f64, Box<dyn StdError + Send + Sync>>;

/// A comparison to make.
#[derive(Clone, Debug)]
pub struct Ratio {
    name: String,
}

impl Ratio {
    /// A comparison named `name`.
    pub fn new(name: impl Into<String>) -> Ratio {
        Ratio { name: name.into() }
    }

    /// Takes `rounds` samples of each and compares them round by round.
    ///
    /// Floor and measured swap places every round, since the second one finds the machine warmer. With a `prober`
    /// (both spin) a round counts where the probes before, between and after agree and nothing was preempted; without
    /// one (both sleep, or share a CPU) every round counts. A sample of 2 to 10 ms is short enough to be kept.
    pub fn run(
        &self,
        rounds: usize,
        mut floor: impl FnMut() -> Sample,
        mut measured: impl FnMut() -> Sample,
        mut prober: Option<&mut Prober>,
    ) -> Result<Report, Box<dyn StdError + Send + Sync>> {
        let mut kept = Vec::new();
        let (mut moved, mut crowded) = (0, 0);
        for round in 0..rounds {
            let mut probes = Vec::new();
            probes.extend(look(&mut prober)?);
            let round = if round % 2 == 0 {
                let floor = floor()?;
                probes.extend(look(&mut prober)?);
                Round { floor, measured: measured()? }
            } else {
                let measured = measured()?;
                probes.extend(look(&mut prober)?);
                Round { floor: floor()?, measured }
            };
            probes.extend(look(&mut prober)?);
            match placement::steady(&probes) {
                _ if probes.is_empty() => kept.push((None, round)),
                Ok(placement) => kept.push((Some(placement), round)),
                Err(Lost::Moved) => moved += 1,
                Err(Lost::Crowded) => crowded += 1,
            }
        }
        Ok(Report { name: self.name.clone(), groups: groups(&kept), total: rounds, moved, crowded })
    }
}

fn look(prober: &mut Option<&mut Prober>) -> super::Result<Option<placement::Probe>> {
    prober.as_mut().map(|prober| prober.probe()).transpose()
}

#[derive(Clone, Copy)]
struct Round {
    floor: f64,
    measured: f64,
}

/// The result.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was compared.
    pub name: String,
    /// The rounds that counted, by placement, the largest group first.
    pub groups: Vec<Group>,
    /// All rounds, those that did not count included.
    pub total: usize,
    /// Rounds in which the placement changed.
    pub moved: usize,
    /// Rounds in which something else ran on the two CPUs.
    pub crowded: usize,
}

/// The rounds of one placement.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Where the CPUs were; `None` if that was not probed.
    pub placement: Option<Placement>,
    /// How many rounds.
    pub kept: usize,
    /// The floor, ns.
    pub floor: Spread,
    /// The measured code, ns.
    pub measured: Spread,
    /// Measured by floor, of each round.
    pub ratio: Spread,
}

/// The middle and the ends of some samples.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The one in the middle.
    pub median: f64,
    /// The most.
    pub max: f64,
}

impl Report {
    /// The group that speaks for the whole: the one with most rounds.
    pub fn best(&self) -> Option<&Group> {
        self.groups.first()
    }
}

/// One line, aligned with others of its kind; a line more for every other placement.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(best) = self.best() else {
            let Report { name, total, moved, crowded, .. } = self;
            return write!(
                f,
                "{name:<28} none of {total} rounds counts ({moved} moved, {crowded} crowded): \
                 stop what else runs here and try again"
            );
        };
        write!(f, "{:<28} {best}/{:<3}", self.name, self.total)?;
        if self.moved + self.crowded > 0 {
            write!(f, "  ({} moved, {} crowded)", self.moved, self.crowded)?;
        }
        for group in self.groups.iter().skip(1) {
            write!(f, "\n{:<28} {group}/{:<3}", "  also", self.total)?;
        }
        Ok(())
    }
}

/// The rounds by placement, the largest group first.
fn groups(kept: &[(Option<Placement>, Round)]) -> Vec<Group> {
    let mut placements: Vec<_> = kept.iter().map(|&(placement, _)| placement).collect();
    placements.sort();
    placements.dedup();
    let mut groups: Vec<_> = placements
        .into_iter()
        .filter_map(|placement| {
            let rounds = kept.iter().filter(|(at, _)| *at == placement);
            Group::of(placement, &rounds.map(|&(_, round)| round).collect::<Vec<_>>())
        })
        .collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.kept));
    groups
}

impl Group {
    fn of(placement: Option<Placement>, rounds: &[Round]) -> Option<Group> {
        Some(Group {
            placement,
            kept: rounds.len(),
            floor: Spread::of(rounds.iter().map(|round| round.floor))?,
            measured: Spread::of(rounds.iter().map(|round| round.measured))?,
            ratio: Spread::of(rounds.iter().map(|round| round.measured / round.floor))?,
        })
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Group { placement, kept, floor, measured, ratio } = self;
        let place = placement.map_or_else(|| "any".to_owned(), |placement| placement.to_string());
        write!(
            f,
            "floor {:>10.1} ns  measured {:>10.1} ns  ratio {:>6.3} [{:.3}..{:.3}]  {place:<10}  kept {kept:>3}",
            floor.median, measured.median, ratio.median, ratio.min, ratio.max
        )
    }
}

impl Spread {
    /// `None` of nothing.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut samples: Vec<f64> = samples.into_iter().collect();
        samples.sort_by(f64::total_cmp);
        let median = *samples.get(samples.len() / 2)?;
        Some(Spread { min: *samples.first()?, median, max: *samples.last()? })
    }
}
