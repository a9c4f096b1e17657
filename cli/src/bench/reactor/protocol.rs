//! The messages between the processes of the benchmark: one JSON object a line.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The length of a request and of its answer in bytes.
pub(super) const LEN: usize = 64;

/// The benchmark's service.
#[derive(Debug, bellwire::Service)]
#[service(name = "bench-mirror", request = [u8; LEN], response = [u8; LEN])]
pub(super) struct Mirror;

/// The schedule of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Load {
    /// One call after the other, on one session after the other.
    Closed,
    /// This many calls a second on each session.
    Paced { rate: u32 },
}

/// A server's message when it serves.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Serving {
    /// Why it does not use the requested wait mechanism.
    pub(super) why_not: Option<String>,
}

/// A load process's message when it is connected.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Connected {
    pub(super) sessions: usize,
    /// Why there are not more sessions.
    pub(super) short: Option<String>,
}

/// An order to a load process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) load: Load,
    pub(super) millis: u64,
}

/// The result of a load process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) calls: u64,
    pub(super) nanos: u64,
    /// How many calls took how many nanoseconds, to within a thousandth.
    pub(super) took: Vec<(u64, u64)>,
    /// Why it had to stop.
    pub(super) failed: Option<String>,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed"),
            Self::Paced { rate } => write!(f, "{rate}/s each"),
        }
    }
}
