use std::time::Duration;

use bellwire_core::{Instant, Random, nanos};
use bellwire_probes::{Cap, SamplingMask};

/// The window over which the rate of messages is measured.
const WINDOW: Duration = Duration::from_millis(10);
/// The allowance after a pause, as a fraction of the samples per second.
const BURST_PART: u64 = 100;
/// The largest mean number of skipped messages.
const MAX_SKIPPED: u64 = 1 << 20;
/// If more messages arrive than the cap allows samples, at most one in this many is sampled. A sample takes
/// microseconds, so this limits its share of the time of calls that take as long.
pub(super) const SHARE: u64 = 32;
const SECOND: u64 = 1_000_000_000;

/// Chooses at random which messages to sample, within a cap per second.
///
/// A fixed step would hit the same message of every batch. So the number of skipped messages is drawn between 0 and
/// twice the mean that fits the message rate. A skipped message costs a comparison and a decrement; the clock is read
/// only for a candidate.
#[derive(Debug)]
pub(super) struct Chooser {
    mask: SamplingMask,
    cap: Cap,
    /// The most samples per second that the cap allows at this rate of messages.
    limit: u64,
    /// Messages still to skip.
    skip: u64,
    /// The value of `skip` when `seen` was last updated.
    drawn: u64,
    /// The mean number of messages to skip.
    mean: u64,
    /// Messages since the window started.
    seen: u64,
    began: Instant,
    /// Samples that may be taken now, in billionths of a sample.
    allowance: u64,
    refilled: Instant,
    random: Random,
}

impl Chooser {
    /// Creates a chooser with this random seed.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            mask: SamplingMask::default(),
            cap: Cap::default(),
            limit: 0,
            skip: 0,
            drawn: 0,
            mean: 0,
            seen: 0,
            began: Instant::default(),
            allowance: 0,
            refilled: Instant::default(),
            random: Random::new(seed),
        }
    }

    /// Returns whether this message is skipped; otherwise, read the clock and call [`Chooser::choose`].
    #[inline]
    pub(super) fn skips(&mut self, mask: SamplingMask) -> bool {
        if self.skip == 0 || mask != self.mask {
            return false;
        }
        self.skip -= 1;
        true
    }

    /// Returns whether this message, which is not skipped, is sampled.
    pub(super) fn choose(&mut self, mask: SamplingMask, now: Instant) -> bool {
        self.count_skipped();
        self.seen += 1;
        if mask != self.mask {
            // The number to skip was drawn for another tracer.
            let cap = mask.cap();
            (self.mask, self.cap, self.limit, self.mean) = (mask, cap, cap.few, 0);
        }
        self.measure(now);
        let chosen = self.spend(now);
        if !chosen {
            // The rate is higher than estimated: do not read the clock for each message until the window ends.
            self.mean = (self.mean * 2 + 1).min(MAX_SKIPPED);
        }
        self.draw_skip();
        chosen
    }

    /// Handles a pause: the number to skip, drawn at the earlier rate, may be far too large.
    pub(super) fn paused(&mut self, now: Instant) {
        self.count_skipped();
        if self.measure(now) {
            let left = self.skip;
            self.draw_skip();
            self.skip = self.skip.min(left);
            self.drawn = self.skip;
        }
    }

    /// Counts the messages skipped since the last call.
    fn count_skipped(&mut self) {
        self.seen += self.drawn - self.skip;
        self.drawn = self.skip;
    }

    fn draw_skip(&mut self) {
        self.skip = self.draw();
        self.drawn = self.skip;
    }

    /// Updates the measured rate once per window. Returns true when it did.
    fn measure(&mut self, now: Instant) -> bool {
        let nanos = nanos(now.since(self.began));
        if now.since(self.began) < WINDOW {
            return false;
        }
        let rate = u128::from(self.seen) * u128::from(SECOND) / u128::from(nanos.max(1));
        let share = u64::try_from(rate).unwrap_or(u64::MAX) / SHARE;
        self.limit = share.max(self.cap.few).min(self.cap.most);
        let per_sample = rate / u128::from(self.limit.max(1));
        self.mean = u64::try_from(per_sample).unwrap_or(MAX_SKIPPED).min(MAX_SKIPPED);
        self.mean = self.mean.saturating_sub(1);
        (self.seen, self.began) = (0, now);
        true
    }

    /// Takes one sample from the allowance, if there is one.
    fn spend(&mut self, now: Instant) -> bool {
        let most = SECOND.saturating_mul((self.limit / BURST_PART).max(1));
        let passed = nanos(now.since(self.refilled));
        self.refilled = now;
        self.allowance = self.allowance.saturating_add(passed.saturating_mul(self.limit)).min(most);
        match self.allowance.checked_sub(SECOND) {
            Some(left) => {
                self.allowance = left;
                true
            }
            None => self.limit == u64::MAX,
        }
    }

    /// Draws between 0 and twice the mean.
    fn draw(&mut self) -> u64 {
        let drawn = self.random.draw() >> 32;
        // Below 2^32 times a mean of at most 2^20.
        (drawn * (2 * self.mean + 1)) >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASK: SamplingMask = SamplingMask::SAMPLES;
    const START: Instant = Instant::from_nanos(1 << 50);

    /// Sends `count` messages this far apart, and returns which of them were chosen.
    fn stream(chooser: &mut Chooser, from: Instant, apart: Duration, count: u32) -> Vec<u32> {
        let chosen = |at: &u32| {
            let now = from.after(apart * *at);
            !chooser.skips(MASK) && chooser.choose(MASK, now)
        };
        (0..count).filter(chosen).collect()
    }

    #[test]
    fn a_fast_stream_is_sampled_at_its_cap() {
        let mut chooser = Chooser::new(7);
        // A second of ten million messages.
        let cap = MASK.cap();
        let chosen =
            stream(&mut chooser, START, Duration::from_nanos(100), 10_000_000).len() as u64;
        assert!(chosen <= cap.most + cap.most / 50, "{chosen} in a second");
        assert!(chosen >= cap.most / 2, "{chosen} in a second");
    }

    #[test]
    fn calls_that_take_as_long_as_a_sample_are_sampled_seldom() {
        let mut chooser = Chooser::new(7);
        // A second of 50 000 messages: 5 000 would be each tenth of them.
        let chosen = stream(&mut chooser, START, Duration::from_micros(20), 50_000).len();
        assert!(chosen > 1_300 && chosen < 1_700, "{chosen} of 50 000");
    }

    #[test]
    fn the_median_call_is_not_sampled_from_a_hundred_a_second_on() {
        for (rate, apart) in [(100, 10_000), (400, 2_500), (1_700, 588)] {
            let mut chooser = Chooser::new(7);
            // Ten seconds.
            let apart = Duration::from_micros(apart);
            let chosen = stream(&mut chooser, START, apart, rate * 10).len() as u64;
            assert!(chosen > 100 && chosen <= u64::from(rate) * 3, "{chosen} of {rate} a second");
        }
    }

    #[test]
    fn a_request_for_more_samples_is_granted_regardless_of_the_share() {
        let mut chooser = Chooser::new(7);
        let high = |at: &u32| {
            let now = START.after(Duration::from_micros(40) * *at);
            !chooser.skips(SamplingMask::SAMPLES_50000)
                && chooser.choose(SamplingMask::SAMPLES_50000, now)
        };
        assert_eq!((0..25_000).filter(high).count(), 25_000);
    }

    #[test]
    fn a_slow_stream_is_sampled_whole() {
        let mut chooser = Chooser::new(7);
        let chosen = stream(&mut chooser, START, Duration::from_millis(50), 1_000);
        assert_eq!(chosen.len(), 1_000);
    }

    #[test]
    fn a_cap_without_limit_samples_every_message() {
        let mut chooser = Chooser::new(7);
        let every = |at: u64| {
            let now = START.after(Duration::from_nanos(at * 100));
            !chooser.skips(SamplingMask::ALL) && chooser.choose(SamplingMask::ALL, now)
        };
        assert!((0..1_000_000).all(every));
    }

    #[test]
    fn no_place_in_a_batch_is_preferred() {
        const BATCH: usize = 8;
        let mut chooser = Chooser::new(7);
        let mut places = [0_u32; BATCH];
        for at in stream(&mut chooser, START, Duration::from_nanos(500), 4_000_000) {
            places[at as usize % BATCH] += 1;
        }
        let total: u32 = places.iter().sum();
        for place in places {
            // Each has an eighth of some 10 000; a step that divides the batch would give one of them all.
            assert!(place > total / 12 && place < total / 6, "{places:?}");
        }
    }

    #[test]
    fn after_a_pause_a_slow_stream_is_sampled_soon() {
        let mut chooser = Chooser::new(7);
        stream(&mut chooser, START, Duration::from_nanos(20), 50_000_000);
        let later = START.after(Duration::from_secs(2));
        // A sender this slow sleeps between two messages.
        let chosen = (0..100).filter(|at| {
            let now = later.after(Duration::from_millis(50 * *at));
            chooser.paused(now);
            !chooser.skips(MASK) && chooser.choose(MASK, now)
        });
        assert!(chosen.count() > 80);
    }

    #[test]
    fn a_tracer_that_raises_its_cap_gets_the_next_message() {
        let mut chooser = Chooser::new(7);
        stream(&mut chooser, START, Duration::from_nanos(20), 50_000_000);
        let later = START.after(Duration::from_secs(2));
        assert!(!chooser.skips(SamplingMask::ALL) && chooser.choose(SamplingMask::ALL, later));
    }
}
