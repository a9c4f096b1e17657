//! The rounds: each contender in turn, its floor beside it, the placement probed before and after.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwire_floor::Spread;
use bellwire_floor::placement::{Lost as LostTo, Placement, Probe, agreed};
use bellwire_floor::{Cpus, Prober};

use crate::Outcome;
use crate::contender::Entry;
use crate::floors::Floor;
use crate::progress::Progress;
use crate::report::again;
use crate::report::model::{Lost, Measured};
use crate::report::rows;
use crate::scenario::{Scenario, Wants};
use crate::stream::Stream;
use crate::testbed::{Sample, Testbed};

/// Samples that a round takes until one counts.
const TRIES: usize = 8;
/// How long a floor's sample is: as long as a short one of a contender.
const FLOOR: Duration = Duration::from_millis(5);

/// Options of the command line for all scenarios.
pub(crate) struct Plan {
    pub(crate) contenders: Vec<&'static Entry>,
    pub(crate) rounds: usize,
    /// The length of a sample, overriding the scenario's.
    pub(crate) millis: Option<u64>,
    /// One round, short, wherever the processors are.
    pub(crate) quick: bool,
    pub(crate) cpus: Cpus,
    /// For tests: the contender whose server falsifies one answer in this many.
    pub(crate) falsify: Option<(String, u64)>,
}

/// A sample that counts.
pub(crate) struct CountedSample {
    pub(crate) round: usize,
    pub(crate) placement: Option<Placement>,
    pub(crate) floor: f64,
    pub(crate) sample: Sample,
}

/// What the rounds of one contender gave.
#[derive(Default)]
pub(crate) struct Rounds {
    pub(crate) counted: Vec<CountedSample>,
    pub(crate) lost: Lost,
}

/// What a run has besides its plan.
pub(crate) struct Instruments {
    pub(crate) prober: Option<Prober>,
    pub(crate) progress: Progress,
    pub(crate) stream: Option<Stream>,
}

/// Measures one scenario with all contenders, and those whose rows are not stable once more, apart from the others.
pub(crate) fn measure(
    plan: &Plan,
    scenario: &Scenario,
    with: &mut Instruments,
) -> Outcome<Measured> {
    let first = attempt(plan, &plan.contenders, scenario, 1, with)?;
    let unstable = again::unstable(&first);
    if plan.quick || unstable.is_empty() {
        return Ok(first);
    }
    let chosen: Vec<_> = match plan.contenders.split_first() {
        // All are compared with the first one: its rounds must be theirs.
        Some((one, _)) if unstable.contains(one.name) => plan.contenders.clone(),
        Some((&one, others)) => {
            let others = others.iter().filter(|entry| unstable.contains(entry.name));
            std::iter::once(one).chain(others.copied()).collect()
        }
        None => return Ok(first),
    };
    let second = attempt(plan, &chosen, scenario, 2, with)?;
    Ok(again::merged(first, second))
}

/// Measures one scenario with these contenders.
fn attempt(
    plan: &Plan,
    contenders: &[&'static Entry],
    scenario: &Scenario,
    attempt: u32,
    with: &mut Instruments,
) -> Outcome<Measured> {
    let Instruments { prober, progress, stream } = with;
    let cpus = plan.cpus;
    let (mut testbeds, mut refused) = (Vec::new(), BTreeMap::new());
    for &entry in contenders {
        progress.say(&format!("{}: {} starts", scenario.name, entry.name));
        match (entry.refuses)(&scenario.load) {
            Some(why) => drop(refused.insert(entry.name.to_owned(), why.to_owned())),
            None => {
                let mut scenario = scenario.clone();
                let falsify = plan.falsify.as_ref().filter(|(name, _)| name == entry.name);
                scenario.load.falsify = falsify.map_or(0, |(_, often)| *often);
                testbeds.push((Testbed::set(entry, &scenario, cpus)?, Rounds::default()));
            }
        }
    }
    let mut floor = scenario.floor().start(cpus)?;
    let others = scenario.floor().others(cpus)?.into_iter();
    let mut others: Vec<_> = others.map(|(name, floor)| (name, floor, Vec::new())).collect();
    let wants = if plan.quick { Wants::Nothing } else { scenario.wants() };
    let prober = prober.as_mut().filter(|_| wants != Wants::Nothing);
    let stream = stream.as_mut();
    let mut baseline = Baseline { floor: &mut floor, prober, wants, stream, attempt };
    let show_round = |round: usize, name: &str| {
        let (scenario, of) = (&scenario.name, plan.rounds);
        progress.say(&format!("{scenario}: round {} of {of}, {name}", round + 1));
    };
    for round in 0..plan.rounds {
        for turn in 0..testbeds.len() {
            let at = (round + turn) % testbeds.len();
            let Some((testbed, rounds)) = testbeds.get_mut(at) else { continue };
            show_round(round, testbed.entry.name);
            let millis = plan.millis.unwrap_or(scenario.millis);
            baseline.round(round, testbed, scenario, millis, rounds)?;
        }
        for (name, floor, samples) in &mut others {
            show_round(round, name);
            samples.push(floor(FLOOR)?);
        }
    }
    let rounds = testbeds.into_iter().map(|(testbed, rounds)| (testbed.entry.name, rounds));
    let mut measured = rows::measured(scenario, plan, &rounds.collect::<Vec<_>>(), refused);
    let spread =
        |(name, _, samples): (&str, _, Vec<f64>)| Some((name.to_owned(), Spread::of(samples)?));
    measured.other_floors = others.into_iter().filter_map(spread).collect();
    Ok(measured)
}

/// The floor beside each sample.
struct Baseline<'a> {
    floor: &'a mut Floor,
    prober: Option<&'a mut Prober>,
    wants: Wants,
    stream: Option<&'a mut Stream>,
    attempt: u32,
}

impl Baseline<'_> {
    /// Takes samples until one counts, but not for ever.
    fn round(
        &mut self,
        round: usize,
        testbed: &mut Testbed,
        scenario: &Scenario,
        millis: u64,
        rounds: &mut Rounds,
    ) -> Outcome<()> {
        for _ in 0..TRIES {
            let mut probes: Vec<Probe> = Vec::new();
            probes.extend(self.probe()?);
            // Whichever comes second finds the machine warmer.
            let is_first = round.is_multiple_of(2);
            let before = if is_first { Some(self.floor_sample(&mut probes)?) } else { None };
            let sample = testbed.measure(scenario, millis)?;
            probes.extend(self.probe()?);
            let floor = match before {
                Some(floor) => floor,
                None => self.floor_sample(&mut probes)?,
            };
            match self.verdict(&probes, &sample) {
                Ok(placement) => {
                    let counted = CountedSample { round, placement, floor, sample };
                    if let Some(stream) = &mut self.stream {
                        stream.add(&scenario.name, testbed.entry.name, self.attempt, &counted)?;
                    }
                    rounds.counted.push(counted);
                    return Ok(());
                }
                Err(LostTo::Moved) => rounds.lost.moved += 1,
                Err(LostTo::Preempted) => rounds.lost.preempted += 1,
            }
        }
        Ok(())
    }

    /// Where the sample was taken, if it counts.
    fn verdict(&self, probes: &[Probe], sample: &Sample) -> Result<Option<Placement>, LostTo> {
        if self.prober.is_none() {
            return Ok(None);
        }
        let placement = agreed(probes)?;
        if self.wants == Wants::Quiet && sample.preempted {
            return Err(LostTo::Preempted);
        }
        Ok(Some(placement))
    }

    fn floor_sample(&mut self, probes: &mut Vec<Probe>) -> Outcome<f64> {
        let floor = (self.floor)(FLOOR)?;
        probes.extend(self.probe()?);
        Ok(floor)
    }

    fn probe(&mut self) -> Outcome<Option<Probe>> {
        Ok(self.prober.as_mut().map(|prober| prober.probe()).transpose()?)
    }
}
