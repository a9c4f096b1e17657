//! What the processes of the benchmark tell each other: one JSON object a line.

use std::fmt;

use bellwire::Service;
use serde::{Deserialize, Serialize};

/// Bytes of a request, and of its answer.
pub(super) const LEN: usize = 64;

/// What the servers serve.
#[derive(Debug)]
pub(super) struct Mirror;

impl Service for Mirror {
    const NAME: &'static str = "bench-mirror";
    type Request = [u8; LEN];
    type Response = [u8; LEN];
}

/// How calls follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Load {
    /// One after the other, on one session after the other.
    Closed,
    /// So many a second on each session.
    Paced { rate: u32 },
}

/// What a server says once it serves.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Serving {
    /// Why it does not wait with what it was asked to.
    pub(super) why_not: Option<String>,
}

/// What a caller says once it is connected.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Connected {
    pub(super) sessions: usize,
    /// Why there are not more.
    pub(super) short: Option<String>,
}

/// What a caller is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) load: Load,
    pub(super) millis: u64,
}

/// What a caller has done.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) calls: u64,
    pub(super) nanos: u64,
    /// How many calls took so many nanoseconds, to within a thousandth.
    pub(super) took: Vec<(u64, u64)>,
    /// Why it could not go on.
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
