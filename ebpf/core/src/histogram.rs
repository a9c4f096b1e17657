//! Histograms with the buckets of `bpf/trace.h`: eight per power of two, so a percentile is off by at most an eighth.

/// The binary logarithm of the number of buckets per power of two.
const SUB_BITS: u32 = 3;
const SUBS: usize = 1 << SUB_BITS;
/// The number of buckets.
pub(crate) const BUCKETS: usize = SUBS * 38;

/// The times of one stage, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// How many messages.
    pub count: u64,
    /// Their times together.
    pub sum: u64,
    /// The longest time.
    pub max: u64,
    buckets: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { count: 0, sum: 0, max: 0, buckets: vec![0; BUCKETS] }
    }
}

impl Histogram {
    /// Creates a histogram from the kernel programs' counts.
    pub(crate) fn new(sum: u64, max: u64, buckets: &[u64]) -> Self {
        Self { count: buckets.iter().sum(), sum, max, buckets: buckets.to_vec() }
    }

    /// Returns the counts since `earlier`. The maximum is the all-time one, unless the buckets bound it more closely.
    pub fn since(&self, earlier: &Self) -> Self {
        let buckets: Vec<u64> =
            // A count may decrease when the slot is reused for another session.
            self.buckets.iter().zip(&earlier.buckets).map(|(now, then)| now.saturating_sub(*then)).collect();
        let last = buckets.iter().rposition(|count| *count > 0);
        let bound = last.map_or(0, |at| start(at + 1).saturating_sub(1));
        Self {
            count: self.count.saturating_sub(earlier.count),
            sum: self.sum.saturating_sub(earlier.sum),
            max: self.max.min(bound),
            buckets,
        }
    }

    /// Returns a quantile in nanoseconds: the middle of its bucket.
    pub fn quantile(&self, quantile: f64) -> u64 {
        let total: u64 = self.buckets.iter().sum();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rank among counts far below 2^52"
        )]
        let rank = ((total as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return start(at).midpoint(start(at + 1)).min(self.max);
            }
        }
        0
    }

    /// Returns counts by powers of two: the first holds 0 and 1, the next 2 and 3.
    pub fn powers(&self) -> Vec<u64> {
        let mut powers: Vec<u64> = Vec::new();
        for (at, count) in self.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            let power = usize::try_from(start(at).max(1).ilog2()).unwrap_or(0);
            if powers.len() <= power {
                powers.resize(power + 1, 0);
            }
            if let Some(slot) = powers.get_mut(power) {
                *slot += count;
            }
        }
        powers
    }
}

/// Returns the first value of a bucket.
fn start(bucket: usize) -> u64 {
    let (power, sub) = (bucket / SUBS, (bucket % SUBS) as u64);
    match power.checked_sub(1) {
        None => sub,
        Some(shift) => (SUBS as u64 + sub) << shift,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[(usize, u64)], max: u64) -> Histogram {
        let mut histogram = Histogram { max, ..Histogram::default() };
        for &(bucket, count) in values {
            histogram.buckets[bucket] = count;
            histogram.count += count;
        }
        histogram
    }

    #[test]
    fn buckets_are_contiguous_and_grow_by_an_eighth() {
        for at in 0..BUCKETS - 1 {
            let (from, to) = (start(at), start(at + 1));
            assert!(from < to, "{at}");
            assert!(at < 2 * SUBS || (to - from) * SUBS as u64 <= from, "{at}: {from}..{to}");
        }
        assert_eq!(start(SUBS), 8);
        assert_eq!(start(2 * SUBS), 16);
    }

    #[test]
    fn a_quantile_is_the_middle_of_its_bucket() {
        let histogram = of(&[(8, 50), (80, 49), (160, 1)], u64::MAX);
        assert_eq!(histogram.quantile(0.5), 8);
        assert!((start(80)..start(81)).contains(&histogram.quantile(0.9)));
        assert!((start(160)..start(161)).contains(&histogram.quantile(1.0)));
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }

    #[test]
    fn counts_since_an_earlier_time_have_their_own_maximum() {
        let earlier = of(&[(200, 1)], start(200));
        let later = of(&[(200, 1), (40, 3)], start(200));
        let since = later.since(&earlier);
        assert_eq!(since.count, 3);
        assert!(since.max < start(41));
    }
}
