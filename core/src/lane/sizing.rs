//! The own lane: what [`Lanes`] does to change its size. Decides when, and tracks epochs and attachments that the peer has not
//! taken yet.

use alloc::collections::VecDeque;

use super::Lanes;
use super::epoch::{
    BUSY, DEEP, Epoch, LARGE_LANE, LaneStats, LaneTerms, Ring, STREAM_LANE, WORTH_LARGE,
};
use super::sender::PushError;
use crate::wire::{ALIGN, HEADER, Header, Kind, PAGE_SIZE, SWITCH_RESERVE, Status};
use crate::{Geometry, Instant, OwnMemory, PeerMemory};
use core::time::Duration;

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
    Immediate,
}

impl Lanes {
    /// Returns the epoch of the own lane.
    pub fn epoch(&self) -> Epoch {
        self.sender.ring.epoch
    }

    /// Returns the epoch to pass for a lane of `size`, if the agreed limits allow one more now.
    ///
    /// # Errors
    /// [`PushError::Full`] until the peer has followed, [`PushError::TooLarge`], [`PushError::Peer`].
    pub fn next_epoch<P: PeerMemory>(
        &mut self,
        peer: &P,
        size: Geometry,
    ) -> Result<Epoch, PushError> {
        self.sender.can_offer(peer, size, size.max_payload() as u64)?;
        Ok(self.epoch().next(size))
    }

    /// Returns the epoch that was passed to the peer but is not in use yet.
    pub fn offered(&self) -> Option<Epoch> {
        self.sender.resize.offered
    }

    /// Records that the memory of [`Lanes::next_epoch`] was passed to the peer.
    pub fn offer(&mut self, epoch: Epoch) {
        self.sender.resize.offered = Some(epoch);
        self.sender.resize.pregrow = false;
    }

    /// Writes the Switch record into the current memory and enters the offered epoch: from now on, `own` must be its
    /// memory. Returns `None` when no epoch is offered or the lane is closed.
    pub fn switch<O: OwnMemory>(&mut self, own: &O) -> Option<Epoch> {
        let sender = &mut self.sender;
        if sender.closed {
            return None;
        }
        let next = sender.resize.offered.take()?;
        let header = Header::new(Kind::Switch, Status::Ok, next.to_wire(), 0);
        own.write(sender.ring.offset(sender.written), &header.to_bytes());
        sender.written += HEADER as u64;
        sender.resize.left.push_back((sender.written, sender.ring.size()));
        sender.resize.restart(None);
        let (before, after) = (sender.ring.epoch.size, next.size);
        sender.resize.stats.grows += u64::from(after > before);
        sender.resize.stats.shrinks += u64::from(after < before);
        sender.ring = Ring { epoch: next, base: sender.written };
        sender.load_head_at = sender.written + step(&sender.resize.terms, next.size);
        sender.longest = longest(&sender.resize.terms, next.size);
        Some(next)
    }

    /// Returns whether maintenance that is not urgent is due: see [`maintenance`](crate::resize::maintain). True
    /// once, until the sender loads the peer's `head` again.
    #[inline]
    pub fn take_maintenance(&mut self) -> bool {
        self.sender.resize.maintenance_due
            && core::mem::take(&mut self.sender.resize.maintenance_due)
    }

    /// Returns the epoch to pass before it is needed, because the lane was three quarters full; `None` if the agreed
    /// limits do not allow it now.
    pub fn wants_pregrow<P: PeerMemory>(&mut self, peer: &P) -> Option<Epoch> {
        if self.sender.resize.offered.is_some() {
            return None;
        }
        let size = self.sender.advised()?;
        self.sender.can_pregrow(peer, size).then(|| self.sender.ring.epoch.next(size))
    }

    /// Returns the size that the own, grown lane should have because it is busy and deep, if it is smaller and the
    /// agreed limits allow the next epoch now. Call it periodically.
    pub fn wanted_for_throughput<P: PeerMemory>(
        &mut self,
        peer: &P,
        now: Instant,
    ) -> Option<Geometry> {
        let sender = &mut self.sender;
        let size = sender.ring.epoch.size;
        let (since, from) = *sender.resize.throughput.get_or_insert((now, sender.written));
        if sender.written - from < WORTH_LARGE {
            return None;
        }
        sender.resize.throughput = Some((now, sender.written));
        let depth = core::mem::take(&mut sender.resize.depth);
        if depth <= DEEP || now.since(since) >= BUSY {
            return None;
        }
        sender.resize.since = Some(now);
        let wanted = LARGE_LANE.min(sender.resize.terms.most);
        let is_possible =
            size < wanted && (sender.resize.offered.is_some() || sender.can_pregrow(peer, wanted));
        is_possible.then_some(wanted)
    }

    /// Returns the size to grow the own lane to instead of waiting for room.
    pub fn should_grow(&self) -> Option<Geometry> {
        let advised = self.sender.advised()?;
        let is_often = self.sender.resize.full.count_ones() >= FULL_SHARE;
        (is_often || self.sender.resize.offered.is_some_and(|offered| offered.size >= advised))
            .then_some(advised)
    }

    /// Returns the size that the own lane should have for a message in parts, if it is smaller.
    pub fn wanted_for_parts(&self) -> Option<Geometry> {
        let sender = &self.sender;
        let size = sender.ring.epoch.size;
        let is_worth = size >= STREAM_LANE && sender.written - sender.ring.base >= WORTH_LARGE;
        let wanted = if is_worth { LARGE_LANE } else { STREAM_LANE };
        let wanted = wanted.min(sender.resize.terms.most);
        (size < wanted).then_some(wanted)
    }

    /// Returns the next larger size of the own lane, up to the agreed maximum.
    pub fn next_size(&self) -> Option<Geometry> {
        let size = self.sender.ring.epoch.size;
        (size < self.sender.resize.terms.most).then(|| size.doubled())
    }

    /// Returns whether the own lane is larger than the agreed minimum.
    pub fn is_grown(&self) -> bool {
        self.sender.ring.epoch.size > self.sender.resize.terms.least
    }

    /// Returns whether the own lane is grown but used less than a quarter of its ring for `span`. Call it
    /// periodically.
    pub fn is_idle(&mut self, now: Instant, span: Duration) -> bool {
        let resize = &mut self.sender.resize;
        if self.sender.ring.epoch.size <= resize.terms.least {
            return false;
        }
        if resize.peak >= quarter(self.sender.ring.epoch.size) {
            resize.restart(Some(now));
        }
        now.since(*resize.since.get_or_insert(now)) >= span
    }

    /// Returns the agreed minimum size of the own lane.
    pub fn least(&self) -> Geometry {
        self.sender.resize.terms.least
    }
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
    pub(super) pregrow: bool,
    /// Maintenance that is not urgent is due.
    pub(super) maintenance_due: bool,
    /// The most bytes in use since `since`.
    pub(super) peak: u64,
    pub(super) since: Option<Instant>,
    /// Start of the measurement of whether the lane is busy: time and position.
    pub(super) throughput: Option<(Instant, u64)>,
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
            pregrow: false,
            maintenance_due: false,
            peak: 0,
            since: None,
            throughput: None,
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
    pub(super) fn remove_passed(&mut self, head: u64) {
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
        (self.full, self.peak, self.since, self.pregrow) = (0, 0, since, false);
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
