//! Limits how long a busy reactor works before it polls its descriptors, and before the next client has its share.

use std::time::Duration;

use bellwire_core::Instant;

use super::clients::Clients;
use crate::server::session::SLOW;
use crate::transport::{Os, prelude::*};

/// How long the reactor works for one client in a round while other clients have work or may have. It finishes what
/// it has begun.
pub(super) const LONGEST_SHARE: Duration = Duration::from_micros(50);
/// The reactor polls after this time, or after so many messages: less than one system call per thousand hot calls,
/// and a bound on how long a session that rings waits for others. Sooner when many sessions are polled.
const POLL_EVERY: Duration = Duration::from_micros(500);
const POLL_EVERY_OF_MANY: Duration = Duration::from_micros(100);
const POLL_AFTER: usize = 2048;
/// Rounds, or messages, before the clock is read; with slow messages, it is read after each.
const ROUNDS_BEFORE_CLOCK: u32 = 32;
const WORK_BEFORE_CLOCK: usize = 16;

/// A yield to woken clients that lasts longer than this, and than this for each message that follows, went to threads
/// that compute.
const LONG_YIELD: Duration = POLL_EVERY_OF_MANY;
const YIELD_PER_MESSAGE: Duration = Duration::from_micros(50);
/// After it, this thread yields to clients no more for that many times as long.
const NO_YIELD_FACTOR: u32 = 16;

/// The work since the last poll.
#[derive(Default)]
pub(super) struct PollBudget {
    polled: Instant,
    work: usize,
    /// When the clock was read, and the work since then.
    read: Instant,
    unseen: usize,
    rounds: u32,
    /// Whether messages have recently been slow.
    is_slow: bool,
    /// Whether the descriptors have to be polled.
    is_due: bool,
    /// How long the last yield to woken clients took, and until when there is none.
    away: Duration,
    keeps_until: Option<Instant>,
}

impl PollBudget {
    pub(super) fn new() -> Self {
        let now = Os::now();
        Self { polled: now, read: now, ..Self::default() }
    }

    /// Returns whether messages have recently been so slow that the clock is read after each.
    pub(super) fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Returns when the clock was last read.
    pub(super) fn read(&self) -> Instant {
        self.read
    }

    /// Counts the work of a turn, in messages.
    #[inline]
    pub(super) fn count(&mut self, work: usize, clients: &Clients) {
        self.unseen += work;
        let is_timed = self.is_slow || clients.is_contended();
        if self.unseen >= WORK_BEFORE_CLOCK || (is_timed && work > 0) {
            self.read_clock(clients);
        }
    }

    /// Counts a slow operation.
    pub(super) fn count_slow(&mut self, clients: &Clients) {
        self.unseen += 1;
        self.read_clock(clients);
    }

    /// Counts a round. Returns the time when the descriptors have to be polled.
    #[inline]
    pub(super) fn step(&mut self, clients: &Clients) -> Option<Instant> {
        self.rounds += 1;
        if self.rounds >= ROUNDS_BEFORE_CLOCK {
            self.read_clock(clients);
        }
        if !std::mem::take(&mut self.is_due) {
            return None;
        }
        let (away, messages) = (std::mem::take(&mut self.away), std::mem::take(&mut self.work));
        let messages = u32::try_from(messages).unwrap_or(u32::MAX);
        if away > LONG_YIELD && away > YIELD_PER_MESSAGE.saturating_mul(messages) {
            self.keeps_until = Some(self.read.after(away * NO_YIELD_FACTOR));
        }
        self.polled = self.read;
        Some(self.read)
    }

    /// Returns whether to yield to clients that were woken. Any other thread may take the processor, too.
    pub(super) fn may_yield(&self) -> bool {
        self.keeps_until.is_none_or(|until| self.read >= until)
    }

    /// Reports such a yield, just after a [step](PollBudget::step).
    pub(super) fn yielded(&mut self, after: Instant) {
        self.away = after.since(self.read);
    }

    /// Returns whether the descriptors have to be polled.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    fn read_clock(&mut self, clients: &Clients) {
        let now = Os::now();
        let messages = u32::try_from(self.unseen).unwrap_or(u32::MAX);
        self.is_slow = now.since(self.read) > SLOW * messages;
        self.work += std::mem::take(&mut self.unseen);
        (self.read, self.rounds) = (now, 0);
        let every = if clients.active() > 1 { POLL_EVERY_OF_MANY } else { POLL_EVERY };
        self.is_due = self.work >= POLL_AFTER || now.since(self.polled) >= every;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls at `read`, after so many messages. Returns whether this thread may yield then.
    fn polls(budget: &mut PollBudget, read: Instant, messages: usize) -> bool {
        (budget.read, budget.work, budget.is_due) = (read, messages, true);
        assert_eq!(budget.step(&Clients::default()), Some(read));
        budget.may_yield()
    }

    #[test]
    fn yields_that_threads_which_compute_took_are_not_repeated_soon() {
        let at = |micros: u64| Instant::from_nanos(1_000 * micros);
        let mut budget = PollBudget::new();
        assert!(polls(&mut budget, at(1_000), 1));
        budget.yielded(at(1_100));
        assert!(polls(&mut budget, at(1_200), 0), "a short one");
        budget.yielded(at(1_500));
        assert!(polls(&mut budget, at(1_600), 6), "clients took it, and sent 6 messages");
        budget.yielded(at(1_900));
        assert!(!polls(&mut budget, at(2_000), 5));
        assert!(!polls(&mut budget, at(2_000 + 16 * 300 - 1), 0));
        assert!(polls(&mut budget, at(2_000 + 16 * 300), 0));
    }
}
