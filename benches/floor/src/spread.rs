//! The middle and the ends of some samples.

use serde::{Deserialize, Serialize};

/// Of at least one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The middle one, or the mean of the middle two.
    pub median: f64,
    /// The most.
    pub max: f64,
    /// The least and the most of the middle half.
    pub middle: (f64, f64),
}

/// The most by which the middle rounds of a row may differ.
const AGREED: f64 = 1.35;

impl Spread {
    /// `None` of nothing.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut samples: Vec<f64> =
            samples.into_iter().filter(|sample| sample.is_finite()).collect();
        samples.sort_by(f64::total_cmp);
        let count = samples.len();
        let outside = count / 4;
        let at = |index: usize| samples.get(index).copied();
        Some(Self {
            min: *samples.first()?,
            median: middle(&samples)?,
            max: *samples.last()?,
            middle: (at(outside)?, at(count - 1 - outside)?),
        })
    }

    /// Whether the middle rounds agree.
    pub fn is_stable(&self) -> bool {
        self.middle.1 <= self.middle.0 * AGREED
    }
}

fn middle(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    let upper = *sorted.get(half)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some((upper + sorted.get(half - 1)?) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_half_decides_whether_a_row_is_stable() {
        let noisy_ends = Spread::of([100.0, 104.0, 110.0, 5_000.0, 103.0, 90.0, 10.0]);
        let noisy_ends = noisy_ends.expect("there are samples");
        assert_eq!((noisy_ends.min, noisy_ends.median, noisy_ends.max), (10.0, 103.0, 5_000.0));
        assert!(noisy_ends.is_stable(), "{noisy_ends:?}");
        let torn =
            Spread::of([100.0, 100.0, 100.0, 140.0, 140.0, 140.0]).expect("there are samples");
        assert!(!torn.is_stable(), "{torn:?}");
        assert_eq!(torn.median, 120.0);
        assert_eq!(Spread::of([]), None);
    }
}
