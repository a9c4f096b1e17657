use core::hint;
use core::time::Duration;

use crate::time::{Instant, nanos};

/// How long a waiter may spin before it parks.
///
/// Spinning notices an answer within a fraction of a microsecond but occupies a processor meanwhile, unless other
/// threads want it. Waking from a park costs tens of microseconds. `docs/adr/0004-adaptive-spinning.md` has the
/// measurements, and `docs/adr/0028-yield-while-spinning.md` those of spinning next to other threads.
///
/// ```
/// use bellwire_core::SpinPolicy;
/// use std::time::Duration;
///
/// // Never spins: for a machine that is full.
/// let never = SpinPolicy { max: Duration::ZERO, ..SpinPolicy::default() };
/// assert_ne!(never.max, SpinPolicy::default().max);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpinPolicy {
    /// The longest spin before a park. Zero never spins. Default: 60 µs; values above 1 ms are cut to 1 ms. A client that opens a
    /// session spins up to twice as long for each of the provider's two answers.
    pub max: Duration,
    /// Spinning pays if the answer comes within this time; later ones count against spinning. Default: 10 µs, plus a
    /// quarter of a nanosecond for each byte exchanged since the previous wait, because both ends copy them, and a
    /// sleeping waiter would add its wake-up. A value above twice the wake-up cost extends the spin to it.
    pub pays_within: Duration,
}

impl SpinPolicy {
    /// Always parks immediately.
    pub const NEVER: Self = Self { max: Duration::ZERO, pays_within: Duration::ZERO };
}

impl Default for SpinPolicy {
    fn default() -> Self {
        Self { max: Duration::from_micros(60), pays_within: Duration::from_micros(10) }
    }
}

/// Decides before each wait how long to spin, from the measured cost of a wake-up on this machine and from how soon
/// the peer answered recently.
///
/// The spin limit is twice the cost of a wake-up, or the policy's `pays_within` if that is longer: a longer wait would have
/// been cheaper as a park, and the loss is bounded by the cost of the park. When spins keep failing, or answers keep
/// arriving late, spinning stops. Probes of three waits, each no longer than `pays_within`, then retry it at growing
/// intervals, or after a park that turned out to be very short. So two ends on one processor soon stop spinning, and
/// a busy pair soon starts.
#[derive(Debug)]
pub struct Spin {
    max: u64,
    pays_within: u64,
    /// The cost of a wake-up in nanoseconds: a moving average.
    wake: u64,
    /// Consecutive waits for which spinning did not pay; at `COLD`, spinning stops.
    cold: u32,
    /// Spins left in the current probe.
    probing: u32,
    /// Parks since the last probe.
    parks: u32,
    /// Consecutive failed probes.
    failed_probes: u32,
    /// How long copying the last exchanged bytes may have taken, in nanoseconds.
    copying: u64,
    /// Until when this end does not yield.
    keeps_until: Option<Instant>,
    /// Until when another thread is assumed to compute on this processor.
    busy_until: Option<Instant>,
    /// Whether the last yield brought the answer, or let another thread run: then the next wait yields at once.
    yields_first: bool,
    /// Such waits so far, and whether the current one has yielded.
    waits: u32,
    has_yielded: bool,
}

const COLD: u32 = 16;
/// A spin that ran out costs most: four of them stop the spinning.
const RAN_OUT: u32 = 4;
const PROBE: u32 = 3;
const PROBE_EVERY: u32 = 64;
/// At most 64 << 6 parks between probes.
const MAX_PROBE_SHIFT: u32 = 6;
/// Short parks trigger a probe after at most 2 << 10 of them: with both ends on one processor, every park is short.
const MAX_FAILED_PROBES: u32 = 10;
/// The initial estimate until the first park is measured: 25 µs.
const WAKE: u64 = 25_000;
const LONGEST: u64 = 1_000_000;
/// Threads that wait for answers in turn yield back within a few hundred microseconds, even if they are many. A
/// computing thread keeps the processor for a scheduler slice, which is longer than this.
const LONG_YIELD: u64 = 1_000_000;
/// After such an absence, this end does not yield for that many times as long, to lose at most this fraction to the
/// other thread.
const NO_YIELD_FACTOR: u64 = 256;
/// A yield that returns within 1.5 µs took only the system call: no other thread wanted the processor. Two context
/// switches and the other thread's first 64 polls take longer.
const FUTILE_YIELD: u64 = 1_500;
/// After such a yield, this end does not yield again for that many times as long, to spend at most this fraction on
/// it.
const FUTILE_YIELD_BACKOFF: u64 = 16;
/// Waits that yield at once, to one that polls first: on one processor those polls take 2 µs.
const POLL_FIRST_EVERY: u32 = 64;
/// Bytes per nanosecond allowed for copying. Both ends copy them, in and out, at 4 to 10 bytes a nanosecond.
const BYTES_A_NANOSECOND: u64 = 4;

impl Spin {
    /// Creates the policy of a new session, which starts spinning.
    pub fn new(policy: SpinPolicy) -> Self {
        let max = nanos(policy.max).min(LONGEST);
        let pays_within = nanos(policy.pays_within);
        Self {
            max,
            pays_within,
            wake: WAKE,
            cold: 0,
            probing: 0,
            parks: 0,
            failed_probes: 0,
            copying: 0,
            keeps_until: None,
            busy_until: None,
            yields_first: false,
            waits: 1,
            has_yielded: false,
        }
    }

    /// Reports the bytes exchanged in both directions since the last wait.
    #[inline]
    pub fn exchanged(&mut self, bytes: u64) {
        // A wait without a message does not predict the next message.
        if bytes > 0 {
            self.copying = bytes / BYTES_A_NANOSECOND;
        }
    }

    /// Returns the longest spin that pays, in nanoseconds.
    fn pays_within(&self) -> u64 {
        self.pays_within.saturating_add(self.copying)
    }

    /// Returns how long to spin now, in nanoseconds; zero means to park immediately.
    pub fn budget(&mut self) -> u64 {
        if self.max == 0 {
            return 0;
        }
        if self.cold >= COLD && self.probing == 0 {
            if self.parks < PROBE_EVERY << self.failed_probes.min(MAX_PROBE_SHIFT) {
                return 0;
            }
            self.probe();
        }
        let pays = self.pays_within();
        // A probe tests whether answers arrive soon again. Any other spin may also save a wake-up.
        let longest = if self.probing > 0 { pays } else { self.wake.saturating_mul(2).max(pays) };
        self.max.min(longest)
    }

    /// Reports that the peer answered during a spin, `after` nanoseconds into the wait.
    pub fn hit(&mut self, after: u64) {
        if self.yields_first {
            self.yields_first = self.has_yielded || !self.polls_first();
            self.has_yielded = false;
            self.waits = self.waits.wrapping_add(1);
        }
        if after <= self.pays_within() {
            self.cold = 0;
            self.probing = 0;
            self.failed_probes = 0;
        } else {
            self.cold = self.cold.saturating_add(1).min(COLD);
            self.probe_step();
        }
    }

    /// Reports that the spin ran out.
    pub fn ran_out(&mut self) {
        self.cold = self.cold.saturating_add(RAN_OUT).min(COLD);
        self.probe_step();
    }

    /// Reports that a park ended. `gap` is the time from the start of the wait to the peer's ring, `latency` the time
    /// from the ring until this end ran again, both in nanoseconds and from the peer's timestamp. Values above the
    /// policy's limit are cut to it.
    pub fn parked(&mut self, gap: Option<u64>, latency: Option<u64>) {
        self.parks = self.parks.saturating_add(1);
        if let Some(latency) = latency {
            let latency = latency.clamp(1_000, LONGEST);
            self.wake = self.wake - self.wake / 8 + latency / 8;
        }
        let soon = gap.is_some_and(|gap| gap <= self.pays_within());
        if soon && self.cold >= COLD && self.probing == 0 && self.parks >= 2 << self.failed_probes {
            self.probe();
        }
    }

    /// Returns whether to read the clock after each poll, and to yield if [`Spin::should_yield`] says so: what this end waits
    /// for, or others that wait, run on its processor.
    #[inline]
    pub fn yields_first(&self) -> bool {
        self.yields_first && !self.polls_first()
    }

    /// One wait in so many polls first all the same, and so notices that the peer runs elsewhere.
    fn polls_first(&self) -> bool {
        self.waits % POLL_FIRST_EVERY == 0
    }

    /// Returns whether to yield, now that the spin is long enough to read the clock.
    pub fn should_yield(&self, now: Instant) -> bool {
        self.keeps_until.is_none_or(|until| now >= until)
    }

    /// Reports a yield that lasted from `before` to `after`, and whether the peer has moved meanwhile.
    pub fn yielded(&mut self, before: Instant, after: Instant, moved: bool) {
        let away = nanos(after.since(before));
        let times = match away {
            _ if away > LONG_YIELD => NO_YIELD_FACTOR,
            _ if away < FUTILE_YIELD && !moved => FUTILE_YIELD_BACKOFF,
            _ => 0,
        };
        (self.yields_first, self.has_yielded) = (times == 0, true);
        let long = Duration::from_nanos(away.saturating_mul(times));
        self.keeps_until = (times > 0).then(|| after.after(long));
        if away > LONG_YIELD {
            self.busy_until = self.keeps_until;
        }
    }

    /// Goes on with a spin whose polls found nothing for a while. Returns false when it has run out. `poll_after_yield` yields the
    /// processor, polls, and returns whether that found anything.
    pub fn tick(
        &mut self,
        counter: &mut SpinCounter,
        clock: impl Fn() -> Instant,
        poll_after_yield: impl FnOnce() -> bool,
    ) -> bool {
        let now = clock();
        self.shorten(counter, now);
        if counter.tick(now) {
            self.ran_out();
            return false;
        }
        if self.should_yield(now) {
            let moved = poll_after_yield();
            self.yielded(now, clock(), moved);
        }
        true
    }

    /// Spins with a poll of a few loads. Returns whether it found anything.
    pub fn watch(
        &mut self,
        clock: impl Fn() -> Instant,
        yield_now: impl Fn(),
        mut poll: impl FnMut() -> bool,
    ) -> bool {
        let budget = self.budget();
        if budget == 0 {
            return false;
        }
        let mut counter = SpinCounter::new(budget);
        loop {
            if poll() {
                self.hit(counter.spun());
                return true;
            }
            hint::spin_loop();
            let is_due = counter.count() || self.yields_first();
            let poll_after_yield = || {
                yield_now();
                poll()
            };
            if is_due && !self.tick(&mut counter, &clock, poll_after_yield) {
                return false;
            }
        }
    }

    /// Spins with a poll that takes longer than reading the clock: a system call. Returns whether it found anything; a wait that
    /// is not spun for counts as a park.
    ///
    /// # Errors
    /// Those of `poll`.
    pub fn poll<E>(
        &mut self,
        clock: impl Fn() -> Instant,
        yield_now: impl Fn(),
        mut poll: impl FnMut() -> Result<bool, E>,
    ) -> Result<bool, E> {
        let budget = self.budget();
        if budget == 0 {
            self.parked(None, None);
            return Ok(false);
        }
        let mut counter = SpinCounter::new(budget);
        loop {
            if poll()? {
                self.hit(counter.spun());
                return Ok(true);
            }
            let yields = || {
                yield_now();
                false
            };
            if !self.tick(&mut counter, &clock, yields) {
                return Ok(false);
            }
        }
    }

    /// Limits a spin to `pays_within` while another thread computes on this processor: the scheduler runs a sleeping thread
    /// when it is rung, but not a spinning one.
    pub fn shorten(&self, counter: &mut SpinCounter, now: Instant) {
        if self.busy_until.is_some_and(|until| now < until) {
            counter.budget = counter.budget.min(self.pays_within());
        }
    }

    fn probe(&mut self) {
        self.probing = PROBE;
        self.parks = 0;
    }

    fn probe_step(&mut self) {
        if self.probing > 0 {
            self.probing -= 1;
            if self.probing == 0 {
                self.failed_probes = (self.failed_probes + 1).min(MAX_FAILED_PROBES);
            }
        }
    }
}

/// Counts the polls of one spin, so that the clock is read only once in a while.
///
/// Reading the clock costs about 20 ns, a fifth of a hot call's wait. An answer within the first 64 polls does
/// without it.
#[derive(Debug)]
pub struct SpinCounter {
    budget: u64,
    polls: u32,
    began: Option<Instant>,
    /// From the first reading of the clock to the last, in nanoseconds.
    spun: u64,
}

/// Polls between two readings of the clock: 0.3 to 3 µs, depending on the processor's pause instruction.
const POLLS_BEFORE_CLOCK: u32 = 64;

impl SpinCounter {
    /// Creates the counter of a spin of at most `budget` nanoseconds.
    pub fn new(budget: u64) -> Self {
        Self { budget, polls: 0, began: None, spun: 0 }
    }

    /// Counts a poll that found nothing. Returns true when it is time for [`SpinCounter::tick`].
    #[inline]
    pub fn count(&mut self) -> bool {
        self.polls = self.polls.wrapping_add(1);
        self.polls % POLLS_BEFORE_CLOCK == 0
    }

    /// Notes the time. Returns true when the budget is spent.
    pub fn tick(&mut self, now: Instant) -> bool {
        self.spun = nanos(now.since(*self.began.get_or_insert(now)));
        self.spun >= self.budget
    }

    /// Returns when the clock was first read.
    pub fn began(&self) -> Option<Instant> {
        self.began
    }

    /// Returns how long the spin has lasted, in nanoseconds, to within
    /// `POLLS_BEFORE_CLOCK` polls.
    pub fn spun(&self) -> u64 {
        self.spun
    }
}

#[cfg(test)]
mod tests;
