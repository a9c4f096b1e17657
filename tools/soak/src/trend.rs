//! Whether a figure grows: a straight line through its samples, by least squares.

use serde::Serialize;

/// The line through some samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Trend {
    pub(super) samples: usize,
    pub(super) first: f64,
    pub(super) last: f64,
    /// The rise of the line per second.
    pub(super) slope: f64,
    /// The standard error of the slope.
    pub(super) error: f64,
    /// The rise of the line from the first sample to the last.
    pub(super) growth: f64,
}

impl Trend {
    /// Fits a line to `(seconds, value)`; a flat one if there are fewer than three points.
    #[allow(clippy::cast_precision_loss, reason = "samples are few")]
    pub(super) fn of(points: &[(f64, f64)]) -> Self {
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return Self::default();
        };
        let count = points.len() as f64;
        let flat = Self { samples: points.len(), first: first.1, last: last.1, ..Self::default() };
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (time, value) = (mean(|point| point.0), mean(|point| point.1));
        let spread = points.iter().map(|(t, _)| (t - time).powi(2)).sum::<f64>();
        if points.len() < 3 || spread <= 0.0 {
            return flat;
        }
        let slope = points.iter().map(|(t, v)| (t - time) * (v - value)).sum::<f64>() / spread;
        let residual = |(t, v): &(f64, f64)| (v - value - slope * (t - time)).powi(2);
        let residuals = points.iter().map(residual).sum::<f64>();
        let error = (residuals / (count - 2.0) / spread).sqrt();
        Self { slope, error, growth: slope * (last.0 - first.0), ..flat }
    }

    /// Returns whether the figure does not grow: by no more than `allowed` over all samples, or by no more than chance
    /// explains (three standard errors).
    pub(super) fn is_flat(&self, allowed: f64) -> bool {
        self.growth <= allowed || self.slope <= 3.0 * self.error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(of: impl Fn(f64) -> f64) -> Trend {
        let points: Vec<_> = (0..20).map(|at| (f64::from(at), of(f64::from(at)))).collect();
        Trend::of(&points)
    }

    #[test]
    fn a_leak_is_seen_through_noise_and_noise_is_no_leak() {
        let noise = |at: f64| (at * 7.0 % 5.0) - 2.0;
        let leak = line(|at| 100.0 + at + noise(at));
        assert!((leak.slope - 1.0).abs() < 0.1 && !leak.is_flat(4.0), "{leak:?}");
        assert!(line(|at| 100.0 + noise(at)).is_flat(0.0));
        assert!(line(|_| 7.0).is_flat(0.0));
    }

    #[test]
    fn a_rise_that_falls_back_to_its_start_shows_in_the_slope() {
        // Both end points are equal; the others are not.
        let points: Vec<_> = (0..20).map(|at| (f64::from(at), f64::from(at % 19))).collect();
        let leak = Trend::of(&points);
        assert!((leak.first, leak.last) == (0.0, 0.0) && !leak.is_flat(4.0), "{leak:?}");
    }

    #[test]
    fn a_shrinking_figure_is_not_a_leak_and_few_samples_decide_nothing() {
        assert!(line(|at| -at).is_flat(0.0));
        assert!(Trend::of(&[(0.0, 0.0), (1.0, 9.0)]).is_flat(0.0));
        assert_eq!(Trend::of(&[]), Trend::default());
    }
}
