use core::time::Duration;

use crate::time::{Instant, nanos};

/// How long a waiter may spin before it parks.
///
/// Spinning answers in a fraction of a microsecond and takes a whole processor while it lasts, unless other threads want that;
/// parking costs tens of microseconds to be woken from. `docs/adr/0004-spin.md` has the measurements, and
/// `docs/adr/0028-give-way.md` those of spinning beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpinPolicy {
    /// The longest spin before a park. Zero never spins. Default: 60 µs; above 1 ms is cut to 1 ms.
    pub max: Duration,
    /// An answer within this time was worth spinning for; later ones count against it. Default: 10 µs, and a quarter of
    /// a nanosecond more for each byte that was exchanged since the wait before: copying them takes long, and whoever
    /// sleeps meanwhile is woken on top. More than twice what a wake-up costs lets a spin last that long.
    pub worth: Duration,
}

impl SpinPolicy {
    /// Parks at once, always.
    pub const NEVER: Self = Self { max: Duration::ZERO, worth: Duration::ZERO };
}

impl Default for SpinPolicy {
    fn default() -> Self {
        Self { max: Duration::from_micros(60), worth: Duration::from_micros(10) }
    }
}

/// Decides before each wait how long to spin, from what a wake-up was seen to cost on this machine and from
/// how soon the peer moved in the last waits.
///
/// A spin is bounded by twice the cost of a wake-up, or by what the policy says is worth it: who waits longer would have done better to
/// park, and loses at most as much as the park itself costs. When spinning keeps failing, or answers keep coming late,
/// it stops, and is tried again in rare, ever rarer, probes of three waits, no longer than what is worth it, or when a park turns
/// out to have been for a moment only. So two ends on one processor soon stop spinning, and a busy pair soon starts.
#[derive(Debug)]
pub struct Spin {
    max: u64,
    worth: u64,
    /// What a wake-up costs, in nanoseconds: a moving average.
    wake: u64,
    /// Waits in a row that spinning did not pay for; at `COLD` it stops.
    cold: u32,
    /// Spins left in the probe that is under way.
    probing: u32,
    /// Parks since the last probe.
    parks: u32,
    /// How many probes in a row failed.
    failed_probes: u32,
    /// How long the bytes last exchanged may have taken, in nanoseconds.
    copying: u64,
    /// Until when this end gives way to nobody.
    keeps_until: Option<Instant>,
    /// Until when somebody else is taken to compute here.
    crowded_until: Option<Instant>,
}

const COLD: u32 = 16;
/// A spin that ran out costs most: four of them end the spinning.
const RAN_OUT: u32 = 4;
const PROBE: u32 = 3;
const PROBE_EVERY: u32 = 64;
/// No longer than 64 << 6 parks without a probe.
const MAX_RARER: u32 = 6;
/// Parks for a moment only bring the next one after at most 2 << 10 of them: of two ends on one processor every park is such.
const MAX_FAILED_PROBES: u32 = 10;
/// A first guess, until the first park is measured: 25 µs.
const WAKE: u64 = 25_000;
const LONGEST: u64 = 1_000_000;
/// Threads that wait for answers in turns are back within some hundred microseconds, even if they are many. One that
/// computes keeps the processor for a slice of the scheduler's, which is longer than this.
const LONG_AWAY: u64 = 1_000_000;
/// Then nobody is given way to for so many times as long: one part in so many is lost to it at most.
const KEEPS_FOR: u64 = 256;
/// Who is back within 1.5 µs was away for the system call only: nobody else wanted the processor. Two switches of threads and
/// the other's first 64 looks take longer.
const NOBODY: u64 = 1_500;
/// Then it is not asked again for so many times as long: one part in so many is spent on that at most.
const VAIN_FOR: u64 = 16;
/// Bytes that a nanosecond is allowed for. Both ends copy them, in and out, at 4 to 10 a nanosecond.
const BYTES_A_NANOSECOND: u64 = 4;

impl Spin {
    /// A new session's spin: optimistic.
    pub fn new(policy: SpinPolicy) -> Self {
        let max = nanos(policy.max).min(LONGEST);
        let worth = nanos(policy.worth);
        Self {
            max,
            worth,
            wake: WAKE,
            cold: 0,
            probing: 0,
            parks: 0,
            failed_probes: 0,
            copying: 0,
            keeps_until: None,
            crowded_until: None,
        }
    }

    /// So many bytes were exchanged since the last wait, both ways.
    #[inline]
    pub fn exchanged(&mut self, bytes: u64) {
        // A wait in vain says nothing of the next message.
        if bytes > 0 {
            self.copying = bytes / BYTES_A_NANOSECOND;
        }
    }

    /// What is worth spinning for, in nanoseconds.
    fn worth(&self) -> u64 {
        self.worth.saturating_add(self.copying)
    }

    /// How long to spin now, in nanoseconds; zero means to park at once.
    pub fn budget(&mut self) -> u64 {
        if self.max == 0 {
            return 0;
        }
        if self.cold >= COLD && self.probing == 0 {
            if self.parks < PROBE_EVERY << self.failed_probes.min(MAX_RARER) {
                return 0;
            }
            self.probe();
        }
        let worth = self.worth();
        // A probe asks whether answers come soon again. Any other spin may save a wake-up on top.
        let worth = if self.probing > 0 { worth } else { self.wake.saturating_mul(2).max(worth) };
        self.max.min(worth)
    }

    /// The peer moved while this end was spinning, `after` nanoseconds into the wait.
    pub fn hit(&mut self, after: u64) {
        if after <= self.worth() {
            self.cold = 0;
            self.probing = 0;
            self.failed_probes = 0;
        } else {
            self.cold = self.cold.saturating_add(1).min(COLD);
            self.probe_step();
        }
    }

    /// The spin ran out.
    pub fn ran_out(&mut self) {
        self.cold = self.cold.saturating_add(RAN_OUT).min(COLD);
        self.probe_step();
    }

    /// A park ended. `gap` is how long after the wait began the peer rang, `latency` how long this end took
    /// to run again after that, both in nanoseconds, where the peer's stamp tells; it is not believed further
    /// than the policy's limit.
    pub fn parked(&mut self, gap: Option<u64>, latency: Option<u64>) {
        self.parks = self.parks.saturating_add(1);
        if let Some(latency) = latency {
            let latency = latency.clamp(1_000, LONGEST);
            self.wake = self.wake - self.wake / 8 + latency / 8;
        }
        let soon = gap.is_some_and(|gap| gap <= self.worth());
        if soon && self.cold >= COLD && self.probing == 0 && self.parks >= 2 << self.failed_probes {
            self.probe();
        }
    }

    /// Whether to let others run that want this processor, now that the spin takes long enough to look at the clock.
    pub fn gives_way(&self, now: Instant) -> bool {
        self.keeps_until.is_none_or(|until| now >= until)
    }

    /// Others were given way to, from `before` to `after`.
    pub fn gave_way(&mut self, before: Instant, after: Instant) {
        let away = nanos(after.since(before));
        let times = match away {
            _ if away > LONG_AWAY => KEEPS_FOR,
            _ if away < NOBODY => VAIN_FOR,
            _ => 0,
        };
        let long = Duration::from_nanos(away.saturating_mul(times));
        self.keeps_until = (times > 0).then(|| after.after(long));
        if away > LONG_AWAY {
            self.crowded_until = self.keeps_until;
        }
    }

    /// Makes a spin as short as is worth it while somebody else computes here: who sleeps is given the processor when it is
    /// rung, who spins is not.
    pub fn shorten(&self, looks: &mut Looks, now: Instant) {
        if self.crowded_until.is_some_and(|until| now < until) {
            looks.budget = looks.budget.min(self.worth());
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

/// One spin: counts looks, so that the clock is read only once in a while.
///
/// A clock costs some 20 ns, a fifth of a hot call's wait: an answer that comes within the first
/// 64 looks costs none.
#[derive(Debug)]
pub struct Looks {
    budget: u64,
    looks: u32,
    began: Option<Instant>,
    /// From the first look at the clock to the last, in nanoseconds.
    spun: u64,
}

/// Looks between two looks at the clock: 0.3 to 3 µs, as long as a processor's pause is.
const LOOKS_BEFORE_CLOCK: u32 = 64;

impl Looks {
    /// A spin of at most `budget` nanoseconds.
    pub fn new(budget: u64) -> Self {
        Self { budget, looks: 0, began: None, spun: 0 }
    }

    /// Counts a look that found nothing. True when it is time for [`Looks::tick`].
    #[inline]
    pub fn count(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        self.looks.is_multiple_of(LOOKS_BEFORE_CLOCK)
    }

    /// Takes the time. True when the budget is spent.
    pub fn tick(&mut self, now: Instant) -> bool {
        self.spun = nanos(now.since(*self.began.get_or_insert(now)));
        self.spun >= self.budget
    }

    /// When the clock was first looked at.
    pub fn began(&self) -> Option<Instant> {
        self.began
    }

    /// How long it has been spinning, in nanoseconds, to within the looks between two looks at the clock.
    pub fn spun(&self) -> u64 {
        self.spun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hot_pair_keeps_spinning() {
        let mut spin = Spin::new(SpinPolicy::default());
        for _ in 0..1000 {
            assert!(spin.budget() > 0);
            spin.hit(200);
        }
    }

    #[test]
    fn a_probe_lasts_no_longer_than_what_is_worth_it() {
        let mut spin = Spin::new(SpinPolicy::default());
        let mut spins = Vec::new();
        for _ in 0..200 {
            let budget = spin.budget();
            if budget > 0 {
                spins.push(budget);
                spin.ran_out();
            }
            spin.parked(Some(90_000), Some(25_000));
        }
        assert_eq!(spins[..4], [50_000; 4]);
        assert_eq!(spins[4..], [10_000; 6], "two probes");
        while spin.budget() == 0 {
            spin.parked(Some(90_000), Some(25_000));
        }
        spin.hit(300);
        assert_eq!(spin.budget(), 50_000, "answers come soon again");
    }

    #[test]
    fn a_pair_on_one_processor_stops_spinning_after_four_waits() {
        let mut spin = Spin::new(SpinPolicy::default());
        let mut spun = 0;
        for _ in 0..10_000 {
            if spin.budget() > 0 {
                spun += 1;
                spin.ran_out();
            }
            // On one processor the ringer runs at once, because this end parked.
            spin.parked(Some(2_000), Some(2_000));
        }
        assert!((4..10_000 / 20).contains(&spun), "spun {spun} times");
    }

    #[test]
    fn a_pair_that_stays_on_one_processor_spins_in_one_wait_of_six_hundred() {
        let mut spin = Spin::new(SpinPolicy::default());
        let mut spun = 0;
        for wait in 0..110_000 {
            if spin.budget() > 0 {
                spun += u32::from(wait >= 10_000);
                spin.ran_out();
            }
            spin.parked(Some(2_000), Some(2_000));
        }
        assert!((3..100_000 / 600).contains(&spun), "spun {spun} times");
    }

    #[test]
    fn answers_that_come_late_stop_the_spinning_and_soon_ones_start_it_again() {
        let mut spin = Spin::new(SpinPolicy::default());
        for _ in 0..16 {
            assert!(spin.budget() > 0);
            spin.hit(26_000);
        }
        assert_eq!(spin.budget(), 0);
        spin.parked(Some(900), Some(25_000));
        spin.parked(Some(900), Some(25_000));
        assert!(spin.budget() > 0, "a park for a moment only starts a probe");
        spin.hit(300);
        assert!(spin.budget() > 0);
    }

    #[test]
    fn long_messages_may_take_longer() {
        let mut spin = Spin::new(SpinPolicy::default());
        for _ in 0..60 {
            spin.parked(None, Some(4_000));
        }
        for _ in 0..100 {
            spin.exchanged(128 << 10);
            assert_eq!(spin.budget(), 10_000 + (32 << 10));
            spin.hit(30_000);
        }
        for _ in 0..16 {
            assert!(spin.budget() > 0);
            spin.exchanged(128);
            spin.hit(30_000);
        }
        assert_eq!(spin.budget(), 0, "short ones may not");
    }

    #[test]
    fn a_message_too_long_to_be_spun_for_is_not() {
        let mut spin = Spin::new(SpinPolicy::default());
        for _ in 0..4 {
            spin.exchanged(u64::MAX);
            assert_eq!(spin.budget(), 60_000);
            spin.ran_out();
        }
        assert_eq!(spin.budget(), 0);
    }

    #[test]
    fn who_was_away_for_long_gives_way_again_after_256_times_as_long() {
        let at = |micros: u64| Instant::from_nanos(1_000 * micros);
        let mut spin = Spin::new(SpinPolicy::default());
        assert!(spin.gives_way(at(0)));
        spin.gave_way(at(0), at(1_000));
        assert!(spin.gives_way(at(1_000)), "threads that wait as well were given way to");
        spin.gave_way(at(1_000), at(3_000));
        assert!(!spin.gives_way(at(514_999)));
        let spun = |now: Instant| {
            let mut looks = Looks::new(60_000);
            spin.shorten(&mut looks, now);
            [looks.tick(now), looks.tick(now.after(Duration::from_micros(10)))]
        };
        assert_eq!(spun(at(514_000)), [false, true], "no longer than is worth it");
        assert_eq!(spun(at(515_000)), [false, false]);
        assert!(spin.gives_way(at(515_000)));
        spin.gave_way(at(515_000), at(515_002));
        assert!(spin.gives_way(at(515_002)));
    }

    #[test]
    fn who_finds_nobody_gives_way_again_after_16_times_as_long() {
        let at = Instant::from_nanos;
        let mut spin = Spin::new(SpinPolicy::default());
        spin.gave_way(at(0), at(1_000));
        assert!(!spin.gives_way(at(16_999)));
        assert!(spin.gives_way(at(17_000)));
        spin.gave_way(at(17_000), at(18_500));
        assert!(spin.gives_way(at(18_500)), "somebody was there");
    }

    #[test]
    fn zero_never_spins() {
        let mut spin = Spin::new(SpinPolicy::NEVER);
        spin.parked(Some(1), Some(1));
        assert_eq!(spin.budget(), 0);
    }

    #[test]
    fn the_budget_is_twice_the_wake_up_seen_and_never_above_the_limit() {
        let mut spin = Spin::new(SpinPolicy::default());
        for _ in 0..100 {
            spin.parked(None, Some(8_000));
        }
        let budget = spin.budget();
        assert!((14_000..20_000).contains(&budget), "{budget}");
        for _ in 0..100 {
            spin.parked(None, Some(u64::MAX));
        }
        assert_eq!(spin.budget(), 60_000);
    }

    #[test]
    fn what_the_policy_says_is_worth_it_is_spun_for_however_cheap_a_wake_up_is() {
        let ms = Duration::from_millis(1);
        let mut spin = Spin::new(SpinPolicy { max: ms, worth: ms / 2 });
        for _ in 0..100 {
            spin.parked(None, Some(4_000));
        }
        assert_eq!(spin.budget(), 500_000);
    }
}
