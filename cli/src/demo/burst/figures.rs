use bellwire::{LaneStats, SessionStats};
use serde::Serialize;

use super::arrivals::Arrivals;
use super::workload::Memory;

/// The burst's figures, as the consumer saw them.
#[derive(Clone, Debug, Default, Serialize)]
pub(in super::super) struct Burst {
    pub(in super::super) seconds: f64,
    pub(in super::super) snapshots: Vec<Shown>,
    pub(in super::super) sent: Sent,
    pub(in super::super) answers: Arrivals,
    /// Answers from another handler run than their request's: the handler ran too often or too rarely.
    pub(in super::super) out_of_turn: u64,
    pub(in super::super) lanes: Vec<LaneSpan>,
    #[serde(skip)]
    pub(in super::super) lane_changes: Vec<LaneChange>,
    pub(in super::super) shared: Shared,
    /// A signal came before its end.
    #[serde(skip)]
    pub(in super::super) is_interrupted: bool,
}

/// A requested snapshot that has arrived, complete.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(in super::super) struct Shown {
    pub(in super::super) cgroups: usize,
    pub(in super::super) generation: u64,
    pub(in super::super) bytes: usize,
    /// From the order to the check.
    pub(in super::super) nanos: u64,
}

/// The requests.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(in super::super) struct Sent {
    pub(in super::super) messages: u64,
    pub(in super::super) bytes: u64,
    pub(in super::super) longest: usize,
    /// In memfds of their own.
    pub(in super::super) attached: u64,
}

/// Bellwire's memory of both processes together.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(in super::super) struct Shared {
    pub(in super::super) before: Memory,
    pub(in super::super) most: Memory,
    pub(in super::super) after: Memory,
}

/// The sizes of one lane, in bytes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(in super::super) struct LaneSpan {
    pub(in super::super) session: &'static str,
    pub(in super::super) lane: &'static str,
    pub(in super::super) first: u64,
    pub(in super::super) most: u64,
    /// After the trim.
    pub(in super::super) last: u64,
}

/// A lane that continued in another epoch.
#[derive(Clone, Debug, Serialize)]
pub(in super::super) struct LaneChange {
    pub(in super::super) session: &'static str,
    pub(in super::super) lane: &'static str,
    pub(in super::super) epoch: u32,
    /// Bytes.
    pub(in super::super) from: u64,
    pub(in super::super) to: u64,
    pub(in super::super) why: String,
}

/// One session at the end.
#[derive(Clone, Debug, Default, Serialize)]
pub(in super::super) struct SessionFigures {
    pub(in super::super) session: &'static str,
    pub(in super::super) made: u64,
    pub(in super::super) answered: u64,
    pub(in super::super) failed: u64,
    pub(in super::super) in_flight: u64,
    pub(in super::super) requests: Lane,
    pub(in super::super) answers: Lane,
}

/// One lane at the end. Sizes are bytes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(in super::super) struct Lane {
    pub(in super::super) epoch: u32,
    pub(in super::super) size: u64,
    pub(in super::super) high_water: u64,
    pub(in super::super) grows: u64,
    pub(in super::super) shrinks: u64,
    pub(in super::super) attaches: u64,
    pub(in super::super) bytes: u64,
}

impl SessionFigures {
    pub(in super::super) fn new(session: &'static str, stats: &SessionStats) -> Self {
        Self {
            session,
            made: stats.made,
            answered: stats.answered,
            failed: stats.refused + stats.failed,
            in_flight: stats.in_flight,
            requests: stats.requests.into(),
            answers: stats.answers.into(),
        }
    }
}

impl From<LaneStats> for Lane {
    fn from(stats: LaneStats) -> Self {
        Self {
            epoch: stats.epoch,
            size: stats.size,
            high_water: stats.high_water,
            grows: stats.grows,
            shrinks: stats.shrinks,
            attaches: stats.attaches,
            bytes: stats.bytes,
        }
    }
}
