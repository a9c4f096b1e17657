use std::mem;
use std::time::{Duration, Instant};

use bellwire::{SessionStats, SnapshotCache};
use bellwire_cgroups::{CgroupsSnapshot, Index};
use hdrhistogram::Histogram;

use super::figures::{Calls, Second, Times, Totals};
use super::services::DemoTick;
use crate::exit::{Exit, Failure};

/// How many error messages are kept.
const MESSAGES: usize = 5;

/// The consumer's counters: of the whole run and of the current second.
pub(super) struct Tally {
    begun: Instant,
    second: u64,
    totals: Totals,
    /// Nanoseconds.
    rtt: Histogram<u64>,
    /// Of the current second.
    rtt_now: Histogram<u64>,
    changes: Histogram<u64>,
    now: Running,
    lookup_time: Duration,
    event_time: Duration,
    unchanged_time: Duration,
    generation: u64,
}

/// The current second.
#[derive(Default)]
struct Running {
    lookups: u64,
    lookup_time: Duration,
    unchanged: u64,
    unchanged_time: Duration,
    changed: u64,
    session: SessionStats,
}

impl Tally {
    pub(super) fn new() -> Result<Self, Failure> {
        let histogram = || {
            Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)
                .map_err(|error| Failure::of(Exit::Failed, "no histogram", &error))
        };
        Ok(Self {
            begun: Instant::now(),
            second: 0,
            totals: Totals::default(),
            rtt: histogram()?,
            rtt_now: histogram()?,
            changes: histogram()?,
            now: Running::default(),
            lookup_time: Duration::ZERO,
            event_time: Duration::ZERO,
            unchanged_time: Duration::ZERO,
            generation: 0,
        })
    }

    /// Begins the first second.
    pub(super) fn start(&mut self) {
        self.begun = Instant::now();
    }

    pub(super) fn answered(&mut self, took: Duration) {
        self.totals.calls.verified += 1;
        self.rtt_now.saturating_record(nanos(took));
    }

    pub(super) fn wrong_answer(&mut self) {
        self.totals.calls.wrong += 1;
        self.error("call: the answer is not that of the request");
    }

    pub(super) fn unchanged(&mut self, refreshes: u32, took: Duration) {
        self.totals.refreshes.unchanged += u64::from(refreshes);
        self.unchanged_time += took;
        self.now.unchanged += u64::from(refreshes);
        self.now.unchanged_time += took;
    }

    /// Counts a change. `took` also covers the refreshes before the one that found it: about a microsecond.
    pub(super) fn changed(&mut self, unchanged: u32, took: Duration) {
        self.totals.refreshes.unchanged += u64::from(unchanged);
        self.now.changed += 1;
        self.changes.saturating_record(nanos(took));
    }

    pub(super) fn unavailable(&mut self, what: &str) {
        self.totals.refreshes.unavailable += 1;
        self.error(&format!("refresh: {what}"));
    }

    /// Validates the current snapshot once more, if it is new.
    pub(super) fn record_snapshot(&mut self, cache: &SnapshotCache<CgroupsSnapshot>) {
        let current = cache.current().filter(|current| current.generation() != self.generation);
        let Some(current) = current else { return };
        let again = Index::validate(current.bytes());
        let same = again.is_ok_and(|again| again.view().iter().eq(current.index().view().iter()));
        self.snapshot(current.generation(), same);
    }

    /// Counts a new snapshot that was validated again.
    fn snapshot(&mut self, generation: u64, same_again: bool) {
        let refreshes = &mut self.totals.refreshes;
        refreshes.changed += 1;
        refreshes.revalidated += u64::from(same_again);
        refreshes.not_revalidated += u64::from(!same_again);
        refreshes.went_back += u64::from(generation <= self.generation);
        if refreshes.first_generation == 0 {
            refreshes.first_generation = generation;
        }
        refreshes.last_generation = generation;
        self.generation = generation;
    }

    pub(super) fn lookups(&mut self, made: u64, wrong: u64, absent_found: u64, took: Duration) {
        let lookups = &mut self.totals.lookups;
        lookups.made += made + 1;
        lookups.of_absent += 1;
        lookups.wrong += wrong + absent_found;
        lookups.absent_found += absent_found;
        self.lookup_time += took;
        self.now.lookups += made + 1;
        self.now.lookup_time += took;
        if wrong + absent_found > 0 {
            self.error("look-up: the answer is not the cgroup asked for");
        }
    }

    /// Checks an event.
    pub(super) fn event(&mut self, sequence: u64, contents: u64) {
        let events = &mut self.totals.events;
        if events.taken == 0 {
            events.before = sequence - 1;
        }
        events.taken += 1;
        let is_next = sequence == events.before + events.taken + events.missed;
        events.last = sequence;
        if !is_next || contents != DemoTick::contents(sequence) {
            events.wrong += 1;
            self.error("event: another one than expected");
        }
    }

    pub(super) fn missed(&mut self, events: u64) {
        self.totals.events.missed += events;
    }

    pub(super) fn took_events(&mut self, took: Duration) {
        self.event_time += took;
    }

    pub(super) fn error(&mut self, what: &str) {
        self.totals.errors += 1;
        if self.totals.messages.len() < MESSAGES {
            self.totals.messages.push(what.to_owned());
        }
    }

    pub(super) fn second_is_over(&self) -> bool {
        self.begun.elapsed().as_secs() > self.second
    }

    /// Ends the current second.
    pub(super) fn second(
        &mut self,
        generation: u64,
        cgroups: usize,
        session: SessionStats,
    ) -> Second {
        self.second = self.begun.elapsed().as_secs();
        let now = mem::replace(&mut self.now, Running { session, ..Running::default() });
        let calls = session.made.saturating_sub(now.session.made);
        let rings = session.rings.saturating_sub(now.session.rings);
        let second = Second {
            second: self.second,
            generation,
            cgroups,
            lookups_per_second: per_second(now.lookups, now.lookup_time),
            refreshes_per_second: per_second(now.unchanged, now.unchanged_time),
            changed: now.changed,
            calls,
            rtt_p50_nanos: self.rtt_now.value_at_quantile(0.5),
            rtt_p99_nanos: self.rtt_now.value_at_quantile(0.99),
            rings_per_call: ratio(rings, calls),
            errors: self.totals.errors,
        };
        // Both have the same bounds, so it cannot fail.
        let _ = self.rtt.add(&self.rtt_now);
        self.rtt_now.reset();
        second
    }

    /// Ends the run.
    pub(super) fn totals(mut self, session: SessionStats) -> Totals {
        let _ = self.rtt.add(&self.rtt_now);
        let mut totals = self.totals;
        totals.seconds = self.begun.elapsed().as_secs_f64();
        totals.calls = Calls {
            made: session.made,
            answered: session.answered,
            failed: session.refused + session.failed,
            in_flight: session.in_flight,
            rings: session.rings,
            parks: session.parks,
            ..totals.calls
        };
        totals.rtt_nanos = times(&self.rtt);
        totals.events.nanos_each = each(totals.events.taken, self.event_time);
        totals.lookups.nanos_each = each(totals.lookups.made, self.lookup_time);
        totals.refreshes.unchanged_nanos_each =
            each(totals.refreshes.unchanged, self.unchanged_time);
        totals.refreshes.changed_nanos = times(&self.changes);
        totals
    }
}

fn times(histogram: &Histogram<u64>) -> Times {
    if histogram.is_empty() {
        return Times::default();
    }
    let at = |quantile| histogram.value_at_quantile(quantile);
    Times {
        min: histogram.min(),
        mean: histogram.mean(),
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: histogram.max(),
    }
}

fn nanos(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1)
}

fn per_second(count: u64, took: Duration) -> f64 {
    if took.is_zero() { 0.0 } else { float(count) / took.as_secs_f64() }
}

fn each(count: u64, took: Duration) -> f64 {
    if count == 0 { 0.0 } else { took.as_secs_f64() * 1e9 / float(count) }
}

pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { float(part) / float(whole) }
}

#[allow(clippy::cast_precision_loss, reason = "counts of one run are far below 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_that_do_not_grow_are_counted() {
        let mut tally = Tally::new().unwrap();
        for generation in [1, 2, 5, 5, 4] {
            tally.snapshot(generation, true);
        }
        let totals = tally.totals(SessionStats::default());
        assert_eq!(totals.refreshes.went_back, 2);
        assert_eq!((totals.refreshes.first_generation, totals.refreshes.last_generation), (1, 4));
    }

    #[test]
    fn rates_are_those_of_the_time_spent_on_it() {
        let mut tally = Tally::new().unwrap();
        tally.lookups(999, 0, 0, Duration::from_millis(10));
        tally.unchanged(500, Duration::from_millis(5));
        let second = tally.second(1, 3, SessionStats::default());
        assert!((second.lookups_per_second - 100_000.0).abs() < 1.0);
        assert!((second.refreshes_per_second - 100_000.0).abs() < 1.0);
        assert_eq!(second.errors, 0);
    }

    #[test]
    fn a_wrong_look_up_is_an_error() {
        let mut tally = Tally::new().unwrap();
        tally.lookups(3, 1, 1, Duration::from_millis(1));
        let totals = tally.totals(SessionStats::default());
        assert_eq!((totals.lookups.wrong, totals.lookups.absent_found, totals.errors), (2, 1, 1));
    }
}
