//! What the processes of one measurement are started for.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What is sent, and by how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) work: Work,
    /// Measuring processes, one connection each.
    pub(crate) clients: usize,
    pub(crate) placing: Placing,
    /// For the harness's own tests: the server falsifies one answer in so many; 0 means none.
    pub(crate) falsify: u64,
}

/// Which processors the processes may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Placing {
    /// The measuring ends one, the server another.
    Pinned,
    /// All of them one.
    OneCpu,
    /// Any: the scheduler decides.
    Unpinned,
    /// Any, beside a process that never sleeps.
    Busy,
}

/// What one operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Work {
    /// A request of so many bytes and its answer of as many, so many in flight together.
    Calls { size: usize, depth: usize },
    /// A request of 64 bytes and its answer, on each of so many connections of one client in turn.
    Sessions { each: usize },
    /// A message of 2 to 1 000 items of 8 bytes and its answer, so many in flight together. An item is an operation.
    Batches { depth: usize },
    /// A message of this many bytes without an answer, as fast as the receiver takes them.
    Stream { size: usize },
    /// A message of this many bytes without an answer, once in a while.
    OneWay { size: usize },
    /// Getting the newest snapshot, of so many cgroups.
    Refresh { cgroups: usize, changed: bool },
    /// Getting an event of so many bytes, of which every reader gets each.
    Events { size: usize },
    /// Finding a cgroup in a snapshot of so many.
    LookUp { cgroups: usize },
    /// Opening a connection, up to its first answer.
    Connect,
    /// A call of so many bytes on a connection that has carried 64-byte ones.
    Grow { size: usize },
}

impl Load {
    /// The most bytes that one message has.
    pub(crate) fn longest(&self) -> usize {
        match self.work {
            Work::Calls { size, .. }
            | Work::Stream { size }
            | Work::OneWay { size }
            | Work::Events { size }
            | Work::Grow { size } => size.max(SMALLEST),
            Work::Batches { .. } => crate::contender::ITEMS * size_of::<u64>(),
            Work::Sessions { .. } | Work::Connect | Work::LookUp { .. } | Work::Refresh { .. } => {
                SMALL
            }
        }
    }

    /// Whether its messages get no answer.
    pub(crate) fn is_one_way(&self) -> bool {
        matches!(self.work, Work::Stream { .. } | Work::OneWay { .. })
    }

    /// The most requests that one client has in flight.
    pub(crate) fn depth(&self) -> usize {
        match self.work {
            Work::Calls { depth, .. } | Work::Batches { depth } => depth,
            _ => 1,
        }
    }
}

/// The shortest message: its number.
pub(crate) const SMALLEST: usize = 8;
/// What a request has where the load does not say.
pub(crate) const SMALL: usize = 64;

/// One measurement, for each of its processes: what is sent, and where they meet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) load: Load,
    dir: PathBuf,
}

impl Case {
    pub(crate) fn new(load: Load, dir: impl Into<PathBuf>) -> Self {
        Self { load, dir: dir.into() }
    }

    /// An empty directory, mode 0700, removed afterwards. Its path is short enough for a socket in it.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A name for what is in no directory, such as a message queue: it begins with `bellwire-bench-`.
    pub(crate) fn name(&self) -> String {
        let last = self.dir.file_name().unwrap_or_default().to_string_lossy();
        format!("bellwire-bench-{}", last.trim_start_matches("bellwire-bench-"))
    }
}
