//! What a serving end counts.

use crate::OwnMemory;
use crate::wire::Counter;

/// Counters of the serving end. Invariant: `accepted = answered + refused + posted + in flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServeCounts {
    /// Requests taken, one-way ones included.
    pub accepted: u64,
    /// Requests that a handler answered or failed.
    pub answered: u64,
    /// Requests answered without running a handler.
    pub refused: u64,
    /// Of `answered`, requests that the handler failed or whose answer could not be sent.
    pub errors: u64,
    /// Of `errors` and `post_errors`, handlers that panicked.
    pub panics: u64,
    /// One-way requests that were handled.
    pub posted: u64,
    /// Of `posted`, those whose handler failed, or that were refused without running it.
    pub post_errors: u64,
}

impl ServeCounts {
    /// Returns the requests taken and not yet answered or handled.
    pub fn in_flight(&self) -> u64 {
        self.accepted - self.answered - self.refused - self.posted
    }

    /// Exports the counters to the page.
    #[inline]
    pub fn export<O: OwnMemory>(&self, own: &O) {
        own.export_counter(Counter::Requests.offset(), self.accepted);
        own.export_counter(Counter::Answered.offset(), self.answered);
        if self.posted > 0 {
            own.export_counter(Counter::Posted.offset(), self.posted);
        }
        if self.refused + self.errors > 0 {
            own.export_counter(Counter::Refused.offset(), self.refused);
            own.export_counter(Counter::Errors.offset(), self.errors);
            own.export_counter(Counter::Panics.offset(), self.panics);
        }
    }
}
