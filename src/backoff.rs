use std::time::Duration;

use bellwire_core::{Instant, Random, nanos};

use crate::Backoff;
use crate::transport::{Os, prelude::*};

/// When to reconnect: after a random delay below a bound that doubles with each failure ("full jitter"), so that a
/// thousand clients of a restarted provider do not reconnect all at once.
#[derive(Clone, Debug)]
pub(crate) struct BackoffTimer {
    initial: Duration,
    max: Duration,
    bound: Duration,
    due: Option<Instant>,
    random: Random,
}

impl BackoffTimer {
    pub(crate) fn of(backoff: Backoff) -> Self {
        // Jitter has to differ between clients that start together; the clock and the process id do.
        let seed = Os::now().as_nanos() ^ u64::from(std::process::id()).rotate_left(40);
        Self::new(backoff.initial, backoff.max, seed)
    }

    fn new(initial: Duration, max: Duration, seed: u64) -> Self {
        Self { initial, max, bound: initial, due: None, random: Random::new(seed) }
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_none_or(|due| now >= due)
    }

    /// Returns when the next attempt is due; `None` for now.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(crate) fn failed(&mut self, now: Instant) {
        let wait = Duration::from_nanos(self.random.draw() % nanos(self.bound).max(1));
        self.due = Some(now.after(wait));
        self.bound = self.bound.saturating_mul(2).min(self.max);
    }

    pub(crate) fn succeeded(&mut self) {
        self.bound = self.initial;
        self.due = None;
    }

    /// Makes the next attempt due now, and leaves how long the pause after it may be.
    pub(crate) fn retried(&mut self) {
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn waits_grow_to_the_bound_and_start_again_after_success() {
        let mut backoff = BackoffTimer::new(10 * MS, 500 * MS, 7);
        let now = Instant::from_nanos(0);
        assert!(backoff.is_due(now));
        let mut longest = Duration::ZERO;
        for _ in 0..1000 {
            backoff.failed(now);
            longest = longest.max(backoff.due().map_or(Duration::ZERO, |due| due.since(now)));
        }
        assert!(longest > 400 * MS && longest <= 500 * MS, "{longest:?}");
        backoff.succeeded();
        assert!(backoff.is_due(now));
        backoff.failed(now);
        assert!(backoff.due().is_some_and(|due| due.since(now) <= 10 * MS));
    }

    #[test]
    fn the_longest_duration_is_a_valid_bound() {
        let mut backoff = BackoffTimer::new(Duration::MAX, Duration::MAX, 7);
        backoff.failed(Instant::from_nanos(0));
        backoff.failed(Instant::from_nanos(0));
        assert!(!backoff.is_due(Instant::from_nanos(0)));
    }

    #[test]
    fn two_clients_do_not_wait_alike() {
        let waits = |seed| {
            let mut backoff = BackoffTimer::new(10 * MS, 500 * MS, seed);
            backoff.failed(Instant::from_nanos(0));
            backoff.due()
        };
        assert_ne!(waits(11), waits(12_345));
    }
}
