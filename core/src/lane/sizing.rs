//! When a lane should have another size, and what is on its way meanwhile.

use alloc::collections::VecDeque;

use super::epoch::{Epoch, LARGE_LANE, LaneStats, LaneTerms};
use crate::wire::{ALIGN, HEADER, PAGE_SIZE, SWITCH_RESERVE};
use crate::{Geometry, Instant};

/// The largest lane that fullness alone makes: 1 MiB. Beyond it only a message that does not fit makes one.
pub const FULL_LIMIT: u64 = LARGE_LANE.size();
/// What is written before the sender looks where its peer is, at most: 64 KiB. A lane of megabytes that carries little
/// is to be found out, too.
const FAR: u64 = 64 << 10;
/// Of the last 32 records, how many must have met a full lane for the lane to grow.
pub(super) const FULL_SHARE: u32 = 16;

/// When a lane that every message fits becomes larger because there is no room left in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// Never.
    Never,
    /// When it is full often, up to [`FULL_LIMIT`].
    #[default]
    Often,
    /// At once, up to what was agreed.
    AtOnce,
}

/// What the sender keeps to decide on another size. Nothing of it is touched while records fit.
#[derive(Debug)]
pub(super) struct Resize {
    pub(super) terms: LaneTerms,
    /// Passed to the peer and not in use yet.
    pub(super) offered: Option<Epoch>,
    /// Epochs left behind that the peer reads yet: where each ends, and its size.
    pub(super) left: VecDeque<(u64, u64)>,
    /// Messages in memfds of their own that the peer has not taken: where their records end, and their size.
    pub(super) attached: VecDeque<(u64, u64)>,
    /// A bit for each of the last records: it met a full lane.
    pub(super) full: u32,
    /// What `records` was when the newest bit was set.
    pub(super) full_at: u64,
    /// The next epoch should be passed soon.
    pub(super) foreseen: bool,
    /// There is something to do that is not urgent.
    pub(super) has_chores: bool,
    /// The most that was in use since `since`.
    pub(super) peak: u64,
    pub(super) since: Option<Instant>,
    /// When and where the bytes are counted from that say whether the lane is busy.
    pub(super) pace: Option<(Instant, u64)>,
    /// The most that was in use meanwhile.
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
            has_chores: false,
            peak: 0,
            since: None,
            pace: None,
            depth: 0,
            stats: LaneStats::default(),
        }
    }

    /// Bytes of memory on their way: passed and not left or taken by the peer.
    pub(super) fn passing(&self) -> u64 {
        let offered = self.offered.map_or(0, |epoch| epoch.size.size());
        let bytes =
            |passed: &VecDeque<(u64, u64)>| passed.iter().map(|(_, size)| size).sum::<u64>();
        offered + bytes(&self.left) + bytes(&self.attached)
    }

    /// Forgets what the peer has left behind, now that its `head` is there.
    pub(super) fn settle(&mut self, head: u64) {
        for passed in [&mut self.left, &mut self.attached] {
            while passed.front().is_some_and(|(end, _)| *end <= head) {
                passed.pop_front();
            }
        }
    }

    /// Sets the bit of the record that would be the next one, once.
    pub(super) fn met_full(&mut self, records: u64) {
        let age = records - self.full_at;
        if age > 0 || self.full & 1 == 0 {
            self.stats.full += 1;
        }
        self.full = u32::try_from(age).ok().and_then(|age| self.full.checked_shl(age)).unwrap_or(0);
        self.full |= 1;
        self.full_at = records;
    }

    /// Begins to watch anew how much of the lane is used.
    pub(super) fn restart(&mut self, since: Option<Instant>) {
        (self.full, self.peak, self.since, self.foreseen) = (0, 0, since, false);
    }
}

/// What a memfd of `bytes` takes: whole pages, at least one.
pub(super) fn pages(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(PAGE_SIZE as u64)
}

/// How much is written before the sender looks where its peer is: a lane that keeps its size need not know.
pub(super) fn step(terms: &LaneTerms, size: Geometry) -> u64 {
    if terms.least == terms.most { size.size() } else { quarter(size).min(FAR) }
}

/// The longest payload that goes into an epoch of this size.
pub(super) fn longest(terms: &LaneTerms, size: Geometry) -> usize {
    usize::try_from(terms.message.bytes).unwrap_or(usize::MAX).min(size.max_payload())
}

/// A quarter of a lane, less what a record brings along: the shortest message that needs a lane of this size uses
/// that much.
pub(super) fn quarter(size: Geometry) -> u64 {
    let overhead = SWITCH_RESERVE + (HEADER + ALIGN) as u64;
    (size.size() / 4)
        .checked_sub(overhead)
        .filter(|rest| *rest > overhead)
        .unwrap_or(size.size() / 4)
}
