use std::time::Duration;

/// Random numbers determined by a seed: [SplitMix64](https://prng.di.unimi.it/splitmix64.c).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Returns a number from `least` up to but excluding `bound`.
    pub(super) fn between(&mut self, least: u64, bound: u64) -> u64 {
        least + self.below(bound.saturating_sub(least))
    }

    pub(super) fn millis(&mut self, least: u64, bound: u64) -> Duration {
        Duration::from_millis(self.between(least, bound))
    }
}
