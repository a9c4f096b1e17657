//! Sides that take turns: a noisy machine is slow for each of them, so that the ratios of one round say more than the
//! figures do.

use std::fmt;
use std::time::Duration;

use crate::comparisons::timed;

/// One way to do a thing: takes a sample, in nanoseconds for each.
pub(crate) struct Side<'a> {
    name: &'static str,
    sample: Box<dyn FnMut() -> f64 + 'a>,
    /// How many times as long as the first side it is to take, at least.
    target: Option<f64>,
}

/// Some sides; each is compared with the first.
pub(crate) struct Comparison<'a> {
    name: &'static str,
    sides: Vec<Side<'a>>,
    by_least: bool,
}

/// The middle and the ends of some samples.
#[derive(Clone, Copy)]
struct Spread {
    least: f64,
    median: f64,
    most: f64,
}

impl<'a> Side<'a> {
    /// Each sample is of `count`, after `warm_up` that do not count.
    pub(crate) fn new(
        name: &'static str,
        warm_up: u32,
        count: u32,
        mut what: impl FnMut() + 'a,
    ) -> Self {
        Self::many(name, count, move || {
            timed(warm_up, &mut what);
            timed(count, &mut what)
        })
    }

    /// The same where `what` does `count` of them at once, and says how long they took.
    pub(crate) fn many(
        name: &'static str,
        count: u32,
        mut what: impl FnMut() -> Duration + 'a,
    ) -> Self {
        let sample = Box::new(move || what().as_nanos() as f64 / f64::from(count));
        Self { name, sample, target: None }
    }

    pub(crate) fn target(self, target: f64) -> Self {
        Self { target: Some(target), ..self }
    }
}

impl<'a> Comparison<'a> {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, sides: Vec::new(), by_least: false }
    }

    pub(crate) fn side(mut self, side: Side<'a>) -> Self {
        self.sides.push(side);
        self
    }

    /// Judges by the least sample of each side, which nothing interrupted, instead of the median ratio: it says the same
    /// of the code, whatever else the machine does.
    pub(crate) fn by_least(self, by_least: bool) -> Self {
        Self { by_least, ..self }
    }

    /// Prints the medians and their spread over so many rounds; whether each target is met. Whoever was first in one
    /// round is last in the next.
    pub(crate) fn run(mut self, rounds: usize) -> bool {
        let mut samples = vec![Vec::new(); self.sides.len()];
        for round in 0..rounds {
            let count = self.sides.len();
            for turn in 0..count {
                let at = if round % 2 == 0 { turn } else { count - 1 - turn };
                let sample = (self.sides[at].sample)();
                samples[at].push(sample);
            }
        }
        println!("{}, {rounds} rounds", self.name);
        let mut met = true;
        for (side, taken) in self.sides.iter().zip(&samples) {
            let ratio = Spread::of(taken.iter().zip(&samples[0]).map(|(one, first)| one / first));
            let [one, first] = [taken, &samples[0]].map(|taken| Spread::of(taken.iter().copied()));
            let judged = if self.by_least { one.least / first.least } else { ratio.median };
            let reached = side.target.is_none_or(|target| judged >= target);
            met &= reached;
            print!("  {:<12}{one} ns", side.name);
            print!("{:>6}{ratio} times bellwire's", "");
            match side.target {
                Some(target) if reached => println!(", {judged:.1}, target {target} or more: met"),
                Some(target) => println!(", {judged:.1}, target {target} or more: MISSED"),
                None => println!(),
            }
        }
        met
    }
}

impl Spread {
    fn of(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut samples: Vec<_> = samples.into_iter().collect();
        samples.sort_by(f64::total_cmp);
        let last = samples.len() - 1;
        Self { least: samples[0], median: samples[samples.len() / 2], most: samples[last] }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = if self.median < 100.0 { 1 } else { 0 };
        let Self { least, median, most } = self;
        write!(f, "{median:>10.places$} [{least:.places$} to {most:.places$}]")
    }
}
