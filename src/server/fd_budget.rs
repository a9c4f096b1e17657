//! The descriptor budget: what a session gets, the fewer descriptors are left.

use crate::transport::object::Borrowed;
use crate::transport::{Os, prelude::*};

/// From this share on, in eighths, no descriptor is spent to learn when a client frees memory; from the second one on, not for a
/// user with less than a sixteenth of the descriptors either: others have taken them.
const NO_RELEASE_EVENTS_FROM: usize = 2;
const NO_RELEASE_EVENTS_OF_FEW_FROM: usize = 6;
const FEW: usize = 16;
/// From this share on, a session has no event of its own.
const BY_SOCKET_FROM: usize = 4;
/// From this share on, no further processes are watched.
const UNWATCHED_FROM: usize = 5;

/// The current restrictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FdBudget {
    eighths: usize,
    held: usize,
}

impl FdBudget {
    /// Returns the budget. `newest` is a descriptor opened just now; `held` is the number that the server has.
    pub(super) fn now(newest: Borrowed<'_>, held: usize) -> Self {
        Self { eighths: Os::fd_usage_eighths(newest, held), held }
    }

    /// Returns whether a session gets an event as its doorbell.
    pub(super) fn makes_events(self) -> bool {
        self.eighths < BY_SOCKET_FROM
    }

    /// Returns whether to watch when a client frees memory, whose user has so many sessions and pieces of memory.
    pub(super) fn watches_memory(self, of_user: usize) -> bool {
        let has_few = of_user.saturating_mul(FEW) <= self.held;
        self.eighths < if has_few { NO_RELEASE_EVENTS_OF_FEW_FROM } else { NO_RELEASE_EVENTS_FROM }
    }

    /// Returns whether to watch another process.
    pub(super) fn watches_processes(self) -> bool {
        self.eighths < UNWATCHED_FROM
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_with_few_descriptors_is_watched_though_others_have_taken_a_quarter() {
        let budget = FdBudget { eighths: 3, held: 6000 };
        assert!(budget.watches_memory(10));
        assert!(!budget.watches_memory(1000), "it has taken them itself");
        assert!(!FdBudget { eighths: 6, held: 15_000 }.watches_memory(10), "few are left");
        assert!(!FdBudget { eighths: 5, held: 28 }.watches_memory(12));
    }
}
