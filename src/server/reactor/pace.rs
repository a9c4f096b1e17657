//! How far a busy reactor goes before it looks who has rung meanwhile, and before another client has its share.

use std::time::Duration;

use bellwire_core::Instant;

use super::clients::Clients;
use crate::server::conversation::SLOW;
use crate::transport::clock;

/// How long the reactor works for one client in a round, while there is something to do for others or of others. What it
/// has begun then it ends.
pub(super) const LONGEST_SHARE: Duration = Duration::from_micros(50);
/// So long after the last look, and after so many messages at the latest: fewer than one system call in a thousand hot
/// calls, and an end to what a session that rings has to wait for others. Sooner where many sessions are polled.
const POLL_EVERY: Duration = Duration::from_micros(500);
const POLL_EVERY_OF_MANY: Duration = Duration::from_micros(100);
const POLL_AFTER: usize = 2048;
/// Rounds, or messages, before the clock is read; where messages are slow, it is read after each.
const ROUNDS_BEFORE_CLOCK: u32 = 32;
const WORK_BEFORE_CLOCK: usize = 16;

/// What was done since the last look.
pub(super) struct Pace {
    polled: Instant,
    work: usize,
    /// When the clock was read, and what was done since then.
    read: Instant,
    unseen: usize,
    rounds: u32,
    /// Messages took long of late.
    is_slow: bool,
    /// It is time to look who has rung.
    is_due: bool,
}

impl Pace {
    pub(super) fn new() -> Self {
        let now = clock::now();
        Self {
            polled: now,
            work: 0,
            read: now,
            unseen: 0,
            rounds: 0,
            is_slow: false,
            is_due: false,
        }
    }

    /// Whether messages took so long of late that the time is looked at after each.
    pub(super) fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// When the clock was read last.
    pub(super) fn read(&self) -> Instant {
        self.read
    }

    /// Counts what was done in a turn, in messages.
    #[inline]
    pub(super) fn count(&mut self, work: usize, clients: &Clients) {
        self.unseen += work;
        let is_timed = self.is_slow || clients.is_contended();
        if self.unseen >= WORK_BEFORE_CLOCK || (is_timed && work > 0) {
            self.look(clients);
        }
    }

    /// Counts something that takes long.
    pub(super) fn count_slow(&mut self, clients: &Clients) {
        self.unseen += 1;
        self.look(clients);
    }

    /// Counts a round. The time, when it is due to look who has rung.
    #[inline]
    pub(super) fn step(&mut self, clients: &Clients) -> Option<Instant> {
        self.rounds += 1;
        if self.rounds >= ROUNDS_BEFORE_CLOCK {
            self.look(clients);
        }
        if !std::mem::take(&mut self.is_due) {
            return None;
        }
        (self.polled, self.work) = (self.read, 0);
        Some(self.read)
    }

    /// Whether it is due to look who has rung.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    fn look(&mut self, clients: &Clients) {
        let now = clock::now();
        let messages = u32::try_from(self.unseen).unwrap_or(u32::MAX);
        self.is_slow = now.since(self.read) > SLOW * messages;
        self.work += std::mem::take(&mut self.unseen);
        (self.read, self.rounds) = (now, 0);
        let every = if clients.hot() > 1 { POLL_EVERY_OF_MANY } else { POLL_EVERY };
        self.is_due = self.work >= POLL_AFTER || now.since(self.polled) >= every;
    }
}
