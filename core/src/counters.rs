//! The counters of a calling end: the outcome of its requests, and the latency of some of them.
//!
//! Invariant: `made = answered + refused + failed + posted + in flight`. Each count is also stored in the end's own page,
//! where an observer reads it; no peer acts on it.

use crate::time::nanos;
use crate::wire::{Counter, Latency, Status};
use crate::{Instant, OwnMemory, Random};

/// One in this many calls is timed, on average, among those answered without a sleep.
pub const TIMED_ONE_IN: u64 = 64;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Its handler answered without an error.
    Answered,
    /// It was answered without running a handler.
    Refused,
    /// Its handler failed, or its answer could not be sent.
    Error,
    /// Its deadline passed.
    Late,
    /// An answer arrived that could not be read, or that nobody wanted any more.
    Unused,
    /// It ended in any other way, without an answer.
    Failed,
}

/// The counters of a calling end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Requests sent.
    pub made: u64,
    /// Requests that their handler answered without an error.
    pub answered: u64,
    /// Requests answered without running a handler.
    pub refused: u64,
    /// Requests that ended in any other way.
    pub failed: u64,
    /// Of `failed`, requests that the handler failed or whose answer could not be sent.
    pub errors: u64,
    /// Of `failed`, requests whose deadline passed.
    pub late: u64,
    /// Answers that were useless when they arrived: their request was abandoned, or they could not be read.
    pub dropped: u64,
    /// Calls that ended before their request was sent.
    pub unsent: u64,
    /// One-way requests sent.
    pub posted: u64,
}

/// Counts requests and how they end, and times some of them.
#[derive(Debug, Default)]
pub struct CallCounters {
    counts: CallCounts,
    stopwatch: Stopwatch,
}

/// Chooses which requests to time: each one after a sleep of its session, and one in 64 of the others at random,
/// which counts for 64. Every call is thus timed with a probability known in advance, and the weighted sums are
/// unbiased for busy and idle sessions.
#[derive(Debug, Default)]
struct Stopwatch {
    running: Option<Timed>,
    /// The request to time next, unless there is a sleep before it.
    due: u64,
    /// The number of sleeps before the last request.
    parks: u64,
    random: Random,
    latency: Latency,
}

#[derive(Clone, Copy, Debug)]
struct Timed {
    id: u64,
    began: Instant,
    /// How many calls the timed one stands for.
    weight: u64,
}

impl From<Status> for Outcome {
    fn from(status: Status) -> Self {
        match status {
            Status::Ok => Self::Answered,
            status if status.ran() => Self::Error,
            _ => Self::Refused,
        }
    }
}

impl CallCounters {
    /// Returns the counts.
    pub fn counts(&self) -> CallCounts {
        self.counts
    }

    /// Returns the latencies of calls, from writing the request to reading its answer.
    pub fn latency(&self) -> Latency {
        self.stopwatch.latency
    }

    /// Counts the written request `id`; this end has slept `parks` times so far.
    #[inline]
    pub fn sent<O: OwnMemory>(
        &mut self,
        own: &O,
        id: u64,
        parks: u64,
        now: impl FnOnce() -> Instant,
    ) {
        self.counts.made += 1;
        own.export_counter(Counter::Requests.offset(), self.counts.made);
        if self.counts.made >= self.stopwatch.due || parks != self.stopwatch.parks {
            self.stopwatch.start(id, self.counts.made, parks, now);
        }
    }

    /// Counts a one-way request.
    #[inline]
    pub fn posted<O: OwnMemory>(&mut self, own: &O) {
        self.counts.made += 1;
        self.counts.posted += 1;
        own.export_counter(Counter::Requests.offset(), self.counts.made);
        own.export_counter(Counter::Posted.offset(), self.counts.posted);
    }

    /// Counts the outcome of request `id`.
    #[inline]
    pub fn ended<O: OwnMemory>(
        &mut self,
        own: &O,
        id: u64,
        outcome: Outcome,
        now: impl FnOnce() -> Instant,
    ) {
        match outcome {
            Outcome::Answered => {
                self.counts.answered += 1;
                own.export_counter(Counter::Answered.offset(), self.counts.answered);
            }
            outcome => self.ended_badly(own, outcome),
        }
        if self.stopwatch.running.is_some_and(|timed| timed.id == id) {
            self.stopwatch.stop(own, outcome, now);
        }
    }

    #[cold]
    fn ended_badly<O: OwnMemory>(&mut self, own: &O, outcome: Outcome) {
        let counts = &mut self.counts;
        match outcome {
            Outcome::Answered => {}
            Outcome::Refused => counts.refused += 1,
            Outcome::Error => {
                (counts.failed, counts.errors) = (counts.failed + 1, counts.errors + 1);
            }
            Outcome::Late => (counts.failed, counts.late) = (counts.failed + 1, counts.late + 1),
            Outcome::Unused => {
                (counts.failed, counts.dropped) = (counts.failed + 1, counts.dropped + 1);
            }
            Outcome::Failed => counts.failed += 1,
        }
        for (counter, value) in [
            (Counter::Refused, counts.refused),
            (Counter::Failed, counts.failed),
            (Counter::Errors, counts.errors),
            (Counter::Late, counts.late),
            (Counter::Dropped, counts.dropped),
        ] {
            own.export_counter(counter.offset(), value);
        }
    }

    /// Counts a call that ended before its request was sent.
    #[cold]
    pub fn unsent<O: OwnMemory>(&mut self, own: &O) {
        self.counts.unsent += 1;
        own.export_counter(Counter::Unsent.offset(), self.counts.unsent);
    }

    /// Counts answers that arrived for abandoned requests.
    #[inline]
    pub fn dropped<O: OwnMemory>(&mut self, own: &O, answers: u64) {
        if answers > 0 {
            self.counts.dropped += answers;
            own.export_counter(Counter::Dropped.offset(), self.counts.dropped);
        }
    }
}

impl Stopwatch {
    #[cold]
    fn start(&mut self, id: u64, made: u64, parks: u64, now: impl FnOnce() -> Instant) {
        let slept = parks != self.parks;
        self.parks = parks;
        // One at a time: another one that is due is postponed.
        if self.running.is_some() {
            return;
        }
        let began = now();
        let is_first = made == 1;
        self.running =
            Some(Timed { id, began, weight: if slept || is_first { 1 } else { TIMED_ONE_IN } });
        if made >= self.due {
            // Sessions that start together diverge by their clocks.
            self.random.mix(began.as_nanos().max(1));
            // From 1 to 127: the step is 64 calls on average.
            self.due = made + 1 + (self.random.draw() >> 32) % (2 * TIMED_ONE_IN - 1);
        }
    }

    #[cold]
    fn stop<O: OwnMemory>(&mut self, own: &O, outcome: Outcome, now: impl FnOnce() -> Instant) {
        let Some(timed) = self.running.take() else { return };
        // The time spent waiting for an abandoned request says nothing about its latency.
        if matches!(outcome, Outcome::Late | Outcome::Unused | Outcome::Failed) {
            return;
        }
        let bucket = Latency::bucket(nanos(now().since(timed.began)));
        if let Some(calls) = self.latency.0.get_mut(bucket) {
            *calls += timed.weight;
            own.export_counter(Latency::offset(bucket), *calls);
        }
    }
}
