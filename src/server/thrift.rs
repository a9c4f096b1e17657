//! How a server does with fewer descriptors for each session, the more of them are taken.

use crate::transport::object::Borrowed;
use crate::transport::shortage;

/// From this share of the descriptors on, in eighths, none is spent on learning when a client gives memory back.
const UNTOLD_FROM: usize = 2;
/// From this share on, a session does without an event of its own.
const BY_SOCKET_FROM: usize = 4;
/// From this share on a process of which nobody knows yet is not watched.
const UNWATCHED_FROM: usize = 5;

/// What is spared now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Thrift {
    eighths: usize,
}

impl Thrift {
    /// By what is taken: `newest` was made a moment ago, `held` is what the server has.
    pub(super) fn now(newest: Borrowed<'_>, held: usize) -> Self {
        Self { eighths: shortage::eighths_taken(newest, held) }
    }

    /// Whether a session gets an event to be rung by.
    pub(super) fn makes_events(self) -> bool {
        self.eighths < BY_SOCKET_FROM
    }

    /// Whether it is watched when a client gives memory back.
    pub(super) fn watches_memory(self) -> bool {
        self.eighths < UNTOLD_FROM
    }

    /// Whether another process is watched.
    pub(super) fn watches_processes(self) -> bool {
        self.eighths < UNWATCHED_FROM
    }
}
