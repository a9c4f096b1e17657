//! Sides that take turns: a noisy machine is slow for each of them, so that the ratios of one round say more than the
//! figures do.

use std::fmt;
use std::time::Duration;

use crate::comparisons::timed;

/// One way to do a thing: its name, and what takes a sample, in nanoseconds for each.
pub(crate) type Side<'a> = (&'static str, Box<dyn FnMut() -> f64 + 'a>);

/// Each sample is of `count`, after `warm_up` that do not count.
pub(crate) fn side<'a>(
    name: &'static str,
    warm_up: u32,
    count: u32,
    mut what: impl FnMut() + 'a,
) -> Side<'a> {
    many(name, count, move || {
        timed(warm_up, &mut what);
        timed(count, &mut what)
    })
}

/// The same where `what` does `count` of them at once, and says how long they took.
pub(crate) fn many<'a>(
    name: &'static str,
    count: u32,
    mut what: impl FnMut() -> Duration + 'a,
) -> Side<'a> {
    (name, Box::new(move || what().as_nanos() as f64 / f64::from(count)))
}

/// The middle and the ends of some samples.
#[derive(Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) median: f64,
    most: f64,
}

/// Prints what each side takes over so many rounds, and its ratio to the first; returns both. Whoever was first in one round
/// is last in the next.
pub(crate) fn compare<const N: usize>(
    name: &'static str,
    rounds: usize,
    mut sides: [Side<'_>; N],
) -> [[Spread; 2]; N] {
    let mut samples = [const { Vec::new() }; N];
    for round in 0..rounds {
        for turn in 0..N {
            let at = if round % 2 == 0 { turn } else { N - 1 - turn };
            samples[at].push(sides[at].1());
        }
    }
    println!("{name}, {rounds} rounds");
    let spreads = samples.each_ref().map(|taken| {
        let ratios = taken.iter().zip(&samples[0]).map(|(one, first)| one / first);
        [Spread::of(taken.iter().copied()), Spread::of(ratios)]
    });
    for ((name, _), [one, ratio]) in sides.iter().zip(&spreads) {
        println!("  {name:<12}{one} ns      {ratio} times bellwire's");
    }
    spreads
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
