//! The descriptor budget: what a session gets, the fewer descriptors are left.

use crate::transport::object::Borrowed;
use crate::transport::shortage;

/// From this share on, in eighths, no descriptor is spent to learn when a client frees memory.
const UNTOLD_FROM: usize = 2;
/// From this share on, a session has no event of its own.
const BY_SOCKET_FROM: usize = 4;
/// From this share on, no further processes are watched.
const UNWATCHED_FROM: usize = 5;

/// The current restrictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FdBudget {
    eighths: usize,
}

impl FdBudget {
    /// Returns the budget. `newest` is a descriptor opened just now; `held` is the number that the server has.
    pub(super) fn now(newest: Borrowed<'_>, held: usize) -> Self {
        Self { eighths: shortage::eighths_taken(newest, held) }
    }

    /// Returns whether a session gets an event as its doorbell.
    pub(super) fn makes_events(self) -> bool {
        self.eighths < BY_SOCKET_FROM
    }

    /// Returns whether to watch when a client frees memory.
    pub(super) fn watches_memory(self) -> bool {
        self.eighths < UNTOLD_FROM
    }

    /// Returns whether to watch another process.
    pub(super) fn watches_processes(self) -> bool {
        self.eighths < UNWATCHED_FROM
    }
}
