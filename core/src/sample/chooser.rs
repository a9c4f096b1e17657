use core::time::Duration;

use crate::Instant;
use crate::probes::{Cap, Wish};

/// How long the rate of messages is measured before the choice follows it.
const WINDOW: Duration = Duration::from_millis(10);
/// Samples that may be taken at once after a pause, as a part of a second's.
const BURST_PART: u64 = 100;
/// More messages are never skipped on the average.
const MOST_SKIPPED: u64 = 1 << 20;
/// Of more messages a second than may be sampled whatever their share, at most each so-many-th is. A sample takes
/// microseconds: so it is a small part of the time of calls that take as long.
const SHARE: u64 = 32;
const SECOND: u64 = 1_000_000_000;

/// Which messages are sampled: at random, and no more a second than the cap.
///
/// A fixed step would meet the same message of every batch. So the number of messages that are skipped is drawn
/// between 0 and twice the mean that the rate of messages asks for. A message that is skipped costs a comparison and a
/// decrement; the clock is read at what may be a sample only.
#[derive(Debug)]
pub struct Chooser {
    wish: Wish,
    cap: Cap,
    /// Samples a second, at most: what the cap allows at this rate of messages.
    limit: u64,
    /// Messages to skip yet.
    skip: u64,
    /// What `skip` was when `seen` was last brought up to date.
    drawn: u64,
    /// Messages to skip on the average.
    mean: u64,
    /// Messages since the window began.
    seen: u64,
    began: Instant,
    /// Samples that may be taken now, in parts of a second's nanoseconds.
    allowance: u64,
    refilled: Instant,
    random: u64,
}

impl Chooser {
    /// One that draws from this seed.
    pub fn new(seed: u64) -> Self {
        Self {
            wish: Wish::default(),
            cap: Cap::default(),
            limit: 0,
            skip: 0,
            drawn: 0,
            mean: 0,
            seen: 0,
            began: Instant::default(),
            allowance: 0,
            refilled: Instant::default(),
            random: seed | 1,
        }
    }

    /// Whether this message is skipped; else the clock has to be looked at, and [`Chooser::choose`] asked.
    #[inline]
    pub fn skips(&mut self, wish: Wish) -> bool {
        if self.skip == 0 || wish != self.wish {
            return false;
        }
        self.skip -= 1;
        true
    }

    /// Whether this message, which is not skipped, is sampled.
    pub fn choose(&mut self, wish: Wish, now: Instant) -> bool {
        self.count_skipped();
        self.seen += 1;
        if wish != self.wish {
            // What was to be skipped was drawn for another tracer.
            let cap = wish.cap();
            (self.wish, self.cap, self.limit, self.mean) = (wish, cap, cap.few, 0);
        }
        self.measure(now);
        let chosen = self.spend(now);
        if !chosen {
            // Faster than was thought: do not read the clock for each message until the window is over.
            self.mean = (self.mean * 2 + 1).min(MOST_SKIPPED);
        }
        self.draw_skip();
        chosen
    }

    /// After a pause: what was to be skipped at the rate before it may be much too much.
    pub fn paused(&mut self, now: Instant) {
        self.count_skipped();
        if self.measure(now) {
            let left = self.skip;
            self.draw_skip();
            self.skip = self.skip.min(left);
            self.drawn = self.skip;
        }
    }

    /// Counts the messages that were skipped since this was last done.
    fn count_skipped(&mut self) {
        self.seen += self.drawn - self.skip;
        self.drawn = self.skip;
    }

    fn draw_skip(&mut self) {
        self.skip = self.draw();
        self.drawn = self.skip;
    }

    /// Follows the rate of messages, once per window. True when it did.
    fn measure(&mut self, now: Instant) -> bool {
        let nanos = crate::time::nanos(now.since(self.began));
        if now.since(self.began) < WINDOW {
            return false;
        }
        let rate = u128::from(self.seen) * u128::from(SECOND) / u128::from(nanos.max(1));
        let share = u64::try_from(rate).unwrap_or(u64::MAX) / SHARE;
        self.limit = share.max(self.cap.few).min(self.cap.most);
        let per_sample = rate / u128::from(self.limit.max(1));
        self.mean = u64::try_from(per_sample).unwrap_or(MOST_SKIPPED).min(MOST_SKIPPED);
        self.mean = self.mean.saturating_sub(1);
        (self.seen, self.began) = (0, now);
        true
    }

    /// Takes one sample of what is allowed, if there is one.
    fn spend(&mut self, now: Instant) -> bool {
        let most = SECOND.saturating_mul((self.limit / BURST_PART).max(1));
        let passed = crate::time::nanos(now.since(self.refilled));
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

    /// Between 0 and twice the mean.
    fn draw(&mut self) -> u64 {
        // xorshift64*: good enough to meet no pattern, and not secret.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let drawn = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        // Below 2^32 times a mean of at most 2^20.
        (drawn * (2 * self.mean + 1)) >> 32
    }
}
