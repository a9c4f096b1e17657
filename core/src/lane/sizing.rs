//! Decides when a lane changes its size, and tracks epochs and attachments that the peer has not taken yet.

use alloc::collections::VecDeque;

use super::epoch::{Epoch, LARGE_LANE, LaneStats, LaneTerms};
use crate::wire::{ALIGN, HEADER, PAGE_SIZE, SWITCH_RESERVE};
use crate::{Geometry, Instant};

/// The largest lane that backpressure alone creates: 1 MiB. Only a message that does not fit grows it further.
pub const FULL_LIMIT: u64 = LARGE_LANE.size();
/// Bytes that the sender writes at most before it loads the peer's `head`: 64 KiB. So it notices that a lane of
/// megabytes carries little.
const FAR: u64 = 64 << 10;
/// How many of the last 32 records must have found the lane full before it grows.
pub(super) const FULL_SHARE: u32 = 16;

/// When a lane that is large enough for every message grows because it is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// Never.
    Never,
    /// When it is often full, up to [`FULL_LIMIT`].
    #[default]
    Often,
    /// Immediately, up to the agreed maximum.
    AtOnce,
}

/// The sender's state for resizing decisions. Records that fit do not touch it.
#[derive(Debug)]
pub(super) struct Resize {
    pub(super) terms: LaneTerms,
    /// Passed to the peer but not in use yet.
    pub(super) offered: Option<Epoch>,
    /// Earlier epochs that the peer still reads: where each ends, and its size.
    pub(super) left: VecDeque<(u64, u64)>,
    /// Attachments that the peer has not taken: where their records end, and their size.
    pub(super) attached: VecDeque<(u64, u64)>,
    /// One bit for each of the last 32 records: set if it found the lane full.
    pub(super) full: u32,
    /// The value of `records` when the newest bit was set.
    pub(super) full_at: u64,
    /// The next epoch should be passed soon.
    pub(super) foreseen: bool,
    /// Maintenance that is not urgent is due.
    pub(super) maintenance_due: bool,
    /// The most bytes in use since `since`.
    pub(super) peak: u64,
    pub(super) since: Option<Instant>,
    /// Start of the measurement of whether the lane is busy: time and position.
    pub(super) pace: Option<(Instant, u64)>,
    /// The most bytes in use during that measurement.
    pub(super) depth: u64,
    pub(super) stats: LaneStats,
}

impl Resize {
    pub(super) fn new(terms: LaneTerms) -> Self {
        Self {
            terms,
            offered: None,
            left: VecDeque::new(),
            attached: VecDeque::new(),
            full: 0,
            full_at: 0,
            foreseen: false,
            maintenance_due: false,
            peak: 0,
            since: None,
            pace: None,
            depth: 0,
            stats: LaneStats::default(),
        }
    }

    /// Returns the bytes of passed memory that the peer has not released or taken.
    pub(super) fn passing(&self) -> u64 {
        let offered = self.offered.map_or(0, |epoch| epoch.size.size());
        let bytes =
            |passed: &VecDeque<(u64, u64)>| passed.iter().map(|(_, size)| size).sum::<u64>();
        offered + bytes(&self.left) + bytes(&self.attached)
    }

    /// Removes the epochs and attachments that the peer has passed, now that its `head` is there.
    pub(super) fn settle(&mut self, head: u64) {
        for passed in [&mut self.left, &mut self.attached] {
            while passed.front().is_some_and(|(end, _)| *end <= head) {
                passed.pop_front();
            }
        }
    }

    /// Sets the bit of the next record, once.
    pub(super) fn met_full(&mut self, records: u64) {
        let age = records - self.full_at;
        if age > 0 || self.full & 1 == 0 {
            self.stats.full += 1;
        }
        self.full = u32::try_from(age).ok().and_then(|age| self.full.checked_shl(age)).unwrap_or(0);
        self.full |= 1;
        self.full_at = records;
    }

    /// Restarts the measurement of how much of the lane is used.
    pub(super) fn restart(&mut self, since: Option<Instant>) {
        (self.full, self.peak, self.since, self.foreseen) = (0, 0, since, false);
    }
}

/// Returns the size of a memfd for `bytes`: whole pages, at least one.
pub(super) fn pages(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(PAGE_SIZE as u64)
}

/// Returns how much the sender writes before it loads the peer's `head`. A lane of fixed size need not know.
pub(super) fn step(terms: &LaneTerms, size: Geometry) -> u64 {
    if terms.least == terms.most { size.size() } else { quarter(size).min(FAR) }
}

/// Returns the longest payload of a record in an epoch of this size.
pub(super) fn longest(terms: &LaneTerms, size: Geometry) -> usize {
    usize::try_from(terms.message.bytes).unwrap_or(usize::MAX).min(size.max_payload())
}

/// Returns a quarter of a lane less a record's overhead: the shortest message that needs a lane of this size uses
/// that much.
pub(super) fn quarter(size: Geometry) -> u64 {
    let overhead = SWITCH_RESERVE + (HEADER + ALIGN) as u64;
    (size.size() / 4)
        .checked_sub(overhead)
        .filter(|rest| *rest > overhead)
        .unwrap_or(size.size() / 4)
}
