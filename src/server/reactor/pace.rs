//! How far a busy reactor goes before it looks who has rung meanwhile.

use std::time::Duration;

use bellwire_core::Instant;

use crate::transport::clock;

/// So long after the last look, and after so many messages at the latest: fewer than one system call in a thousand hot
/// calls, and an end to what a session that rings has to wait for others.
const POLL_EVERY: Duration = Duration::from_micros(500);
const POLL_AFTER: usize = 2048;
/// Rounds, or messages, before the clock is read.
const ROUNDS_BEFORE_CLOCK: u32 = 32;
const WORK_BEFORE_CLOCK: usize = 16;

/// What was done since the last look.
pub(super) struct Pace {
    polled: Instant,
    work: usize,
    /// The same since the clock was read.
    unseen: usize,
    rounds: u32,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { polled: clock::now(), work: 0, unseen: 0, rounds: 0 }
    }

    /// Counts a round in which so many messages were taken. The time, when a look is due.
    #[inline]
    pub(super) fn step(&mut self, work: usize) -> Option<Instant> {
        self.rounds += 1;
        self.unseen += work;
        if self.rounds < ROUNDS_BEFORE_CLOCK && self.unseen < WORK_BEFORE_CLOCK {
            return None;
        }
        self.look(clock::now())
    }

    fn look(&mut self, now: Instant) -> Option<Instant> {
        self.work += std::mem::take(&mut self.unseen);
        self.rounds = 0;
        if self.work < POLL_AFTER && now.since(self.polled) < POLL_EVERY {
            return None;
        }
        (self.polled, self.work) = (now, 0);
        Some(now)
    }
}
