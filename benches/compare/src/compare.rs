//! What changed between two runs, and whether it is more than the noise.
//!
//! Where there is a floor, ratios to it are compared: the machine may have been slower as a whole. A change is real
//! if the middle halves of both runs' rounds do not overlap, and their medians differ by more than [`LEAST`].

use std::fmt;

use bellwire_cli::out::nanos;
use bellwire_floor::Spread;

use crate::report::model::{Measured, Report, Row};

/// Medians that are nearer to each other than this part are alike, however still the machine was.
pub(crate) const LEAST: f64 = 0.05;

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Faster,
    Slower,
    /// Within the noise.
    Alike,
    /// One of the rows is not stable.
    Unstable,
}

/// A row of both runs.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) scenario: String,
    pub(crate) contender: String,
    pub(crate) placement: String,
    pub(crate) verdict: Verdict,
    /// The new median by the old one: below 1 is faster.
    pub(crate) ratio: f64,
    /// What is compared: ratios to the floor, or times.
    by_floor: bool,
    old: Spread,
    new: Spread,
}

/// All rows that both runs have, and a line for each that only one has.
pub(crate) fn compare(old: &Report, new: &Report) -> (Vec<Change>, Vec<String>) {
    let (mut changes, mut alone) = (Vec::new(), Vec::new());
    for (measured, row) in new.main_rows() {
        match find(old, measured, row) {
            Some(before) => changes.push(change(measured, before, row)),
            None => alone.push(line("only the new run has", measured, row)),
        }
    }
    for (measured, row) in old.main_rows() {
        if find(new, measured, row).is_none() {
            alone.push(line("only the old run has", measured, row));
        }
    }
    (changes, alone)
}

fn line(what: &str, measured: &Measured, row: &Row) -> String {
    format!("{what} {}, {}, {}", measured.name, row.contender, row.placement)
}

/// The row of another run: same scenario, contender and placement.
fn find<'a>(report: &'a Report, measured: &Measured, row: &Row) -> Option<&'a Row> {
    let other = report.scenarios.iter().find(|other| other.name == measured.name)?;
    other
        .rows
        .iter()
        .find(|other| other.contender == row.contender && other.placement == row.placement)
}

fn change(measured: &Measured, before: &Row, after: &Row) -> Change {
    let (by_floor, old, new) = match (before.to_floor, after.to_floor) {
        (Some(old), Some(new)) => (true, old, new),
        _ => (false, before.ns, after.ns),
    };
    // A secondary row is as stable as its main one.
    let is_stable = |row: &Row, spread: &Spread| (row.stable || !row.is_main) && spread.is_stable();
    let ratio = new.median / old.median;
    let apart = new.middle.0 > old.middle.1 || new.middle.1 < old.middle.0;
    let verdict = if !is_stable(before, &old) || !is_stable(after, &new) {
        Verdict::Unstable
    } else if !apart || (ratio - 1.0).abs() <= LEAST {
        Verdict::Alike
    } else if ratio > 1.0 {
        Verdict::Slower
    } else {
        Verdict::Faster
    };
    Change {
        scenario: measured.name.clone(),
        contender: after.contender.clone(),
        placement: after.placement.clone(),
        verdict,
        ratio,
        by_floor,
        old,
        new,
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.verdict {
            Verdict::Faster => "faster",
            Verdict::Slower => "SLOWER",
            Verdict::Alike => "alike",
            Verdict::Unstable => "unstable",
        };
        let Self { scenario, contender, placement, ratio, old, new, .. } = self;
        let show =
            |value: f64| if self.by_floor { format!("{value:.2} floors") } else { nanos(value) };
        let spread = |of: &Spread| {
            format!("{} ({} to {})", show(of.median), show(of.middle.0), show(of.middle.1))
        };
        write!(
            f,
            "{word:<8}  {scenario}, {contender}, {placement}: {} before, {} now, ×{ratio:.2}",
            spread(old),
            spread(new)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::tests::report;

    fn verdict(old: &[f64], new: &[f64]) -> Verdict {
        let (changes, alone) = compare(&report(old, None), &report(new, None));
        assert!(alone.is_empty(), "{alone:?}");
        changes.first().expect("both have the row").verdict
    }

    #[test]
    fn a_real_change_is_distinguished_from_noise() {
        let old = [100.0, 101.0, 103.0, 99.0, 102.0, 98.0, 130.0];
        assert_eq!(verdict(&old, &old), Verdict::Alike);
        assert_eq!(verdict(&old, &old.map(|ns| ns * 1.2)), Verdict::Slower);
        assert_eq!(verdict(&old, &old.map(|ns| ns / 1.2)), Verdict::Faster);
        // More than twice the least, and still within the spread of the rounds.
        let noisy = [100.0, 90.0, 112.0, 95.0, 110.0, 92.0, 121.0];
        assert_eq!(verdict(&noisy, &noisy.map(|ns| ns * 1.11)), Verdict::Alike);
        // Quiet rounds, whose difference is too small to matter.
        let still = [100.0, 100.1, 100.2, 99.9, 100.0, 100.1, 100.0];
        assert_eq!(verdict(&still, &still.map(|ns| ns * 1.03)), Verdict::Alike);
        assert_eq!(
            verdict(&old, &[100.0, 200.0, 100.0, 200.0, 100.0, 200.0, 200.0]),
            Verdict::Unstable
        );
    }

    #[test]
    fn a_machine_that_was_slower_as_a_whole_is_no_change() {
        let (old, new) = ([100.0; 5], [150.0; 5]);
        let change = |floor| compare(&report(&old, Some(&[50.0; 5])), &report(&new, Some(floor))).0;
        let alike = change(&[75.0; 5]);
        assert_eq!(alike.first().map(|change| change.verdict), Some(Verdict::Alike), "{alike:?}");
        let slower = change(&[50.0; 5]);
        assert_eq!(
            slower.first().map(|change| change.verdict),
            Some(Verdict::Slower),
            "{slower:?}"
        );
    }

    #[test]
    fn rows_of_other_placements_are_not_compared() {
        let mut new = report(&[100.0; 5], None);
        for row in new.scenarios.iter_mut().flat_map(|measured| &mut measured.rows) {
            row.placement = "two caches".to_owned();
        }
        let (changes, alone) = compare(&report(&[100.0; 5], None), &new);
        assert!(changes.is_empty(), "{changes:?}");
        assert_eq!(alone.len(), 2, "{alone:?}");
    }
}
