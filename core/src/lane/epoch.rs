use core::time::Duration;

use crate::wire::HEADER;
use crate::{Geometry, Limit, Limits};

/// Epochs besides the current one that an end may have entered before its peer followed. A switch beyond that waits
/// for the peer, as for a full lane.
pub const MAX_OUTSTANDING: usize = if cfg!(loom) { 1 } else { 4 };
/// Attachments that may be outstanding in a lane.
pub const MAX_ATTACHED: usize = if cfg!(loom) { 1 } else { 64 };

/// The preferred lane size for messages in parts: 1 MiB. Copying through it takes a half to a third of the time that
/// 256 KiB takes on a machine with 1 MiB of cache per core, supposedly because the lines that the sender overwrites
/// have left the reader's private cache by then.
pub(super) const LARGE_LANE: Geometry = match Geometry::new(1 << 20) {
    Ok(size) => size,
    Err(_) => Geometry::DEFAULT,
};
/// The lane size for messages in parts at first: 256 KiB.
pub(super) const STREAM_LANE: Geometry = match Geometry::new(256 << 10) {
    Ok(size) => size,
    Err(_) => Geometry::DEFAULT,
};
/// Bytes that pass through [`STREAM_LANE`] before [`LARGE_LANE`] pays off: 8 MiB. Faulting in its pages takes about
/// half a millisecond; it saves about 4 µs per message of 64 KiB.
pub(super) const WORTH_LARGE: u64 = 8 << 20;
/// A lane is deep if more than this many bytes were in use at once. A larger lane does not speed up a shallow one.
pub(super) const DEEP: u64 = 32 << 10;
/// A lane is busy if [`WORTH_LARGE`] passes through it in less than this time: 64 MiB a second.
pub(super) const BUSY: Duration = Duration::from_millis(125);
/// The longest record of a message in parts, in bytes.
const PART: u64 = 32 << 10;

/// One memfd of a lane. The handshake's is number 1; each later one adds 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Epoch {
    /// Its number.
    pub number: u32,
    /// Its size.
    pub size: Geometry,
}

/// The terms of one lane from the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneTerms {
    /// Its size when the session opens.
    pub size: Geometry,
    /// The owner never makes the lane smaller than this.
    pub least: Geometry,
    /// The lane never becomes larger than this.
    pub most: Geometry,
    /// The longest message.
    pub message: Limit,
    /// Shared memory that the owner may have in use.
    pub shared: Limit,
}

/// What a lane carried and how often it was resized, as one end sees it.
///
/// ```
/// use bellwire_core::lane::LaneStats;
///
/// let is_often_full = |lane: &LaneStats| lane.grows > 2;
/// assert!(!is_often_full(&LaneStats::default()));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneStats {
    /// The number of the memfd in use, counted from 1.
    pub epoch: u32,
    /// Its size in bytes.
    pub size: u64,
    /// The most bytes in use at once, in any epoch. The sender samples it four times per lap, at least every 64 KiB,
    /// and when the lane is full; the receiver, whenever it finds new records.
    pub high_water: u64,
    /// How often the lane grew.
    pub grows: u64,
    /// How often the lane shrank.
    pub shrinks: u64,
    /// Attachments sent or received.
    pub attaches: u64,
    /// Bytes of records sent or received, including headers and padding.
    pub bytes: u64,
    /// Records that found the lane full and were not written immediately. Only the sender counts them.
    pub full: u64,
}

/// Maps the positions of one epoch to offsets in its memfd.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    pub(super) epoch: Epoch,
    /// The position at which the epoch starts.
    pub(super) base: u64,
}

impl Epoch {
    /// Returns the epoch of the handshake.
    pub const fn first(size: Geometry) -> Self {
        Self { number: 1, size }
    }

    /// Returns the epoch that follows this one.
    pub const fn next(self, size: Geometry) -> Self {
        Self { number: self.number.wrapping_add(1), size }
    }

    /// Encodes the epoch for the `id` of a Switch record: the number in the low half, the size in bytes in the high
    /// half.
    pub const fn to_wire(self) -> u64 {
        self.number as u64 | self.size.size() << 32
    }

    /// Parses the `id` of a peer's Switch record; `None` when the size is not valid for a lane.
    pub fn from_wire(id: u64) -> Option<Self> {
        let size = Geometry::new(id >> 32).ok()?;
        Some(Self { number: u32::try_from(id & 0xffff_ffff).ok()?, size })
    }
}

impl LaneTerms {
    /// Returns the terms of a lane that keeps its size.
    pub fn fixed(size: Geometry) -> Self {
        let message = Limit::smaller(size.max_payload() as u64, u64::MAX);
        let shared = Limit::smaller(u64::MAX, u64::MAX);
        Self { size, least: size, most: size, message, shared }
    }

    /// Returns the terms of the lane that `own` writes and `peer` reads.
    pub fn agreed(size: Geometry, least: Geometry, own: &Limits, peer: &Limits) -> Self {
        Self {
            size,
            least: least.min(size),
            most: own.max_lane.min(peer.max_lane).max(size),
            message: Limit::smaller(own.max_message, peer.max_message),
            shared: Limit::smaller(
                own.max_shared_bytes_per_session,
                peer.max_shared_bytes_per_session,
            ),
        }
    }
}

impl Epoch {
    /// Returns the longest part of a message: a quarter of the lane, at most 32 KiB including its header. So the
    /// sender can write one part while the receiver copies another.
    pub(super) fn part(self) -> usize {
        let record = (self.size.size() / 4).min(PART) - HEADER as u64;
        usize::try_from(record).unwrap_or(usize::MAX)
    }
}

impl Ring {
    pub(super) const fn first(size: Geometry) -> Self {
        Self { epoch: Epoch::first(size), base: 0 }
    }

    #[inline]
    pub(super) const fn size(&self) -> u64 {
        self.epoch.size.size()
    }

    /// Returns the offset of `position` in the memfd.
    #[inline]
    pub(super) const fn offset(&self, position: u64) -> usize {
        self.epoch.size.offset(position.wrapping_sub(self.base))
    }

    /// Returns the bytes from `position` to the end of the memfd.
    #[inline]
    pub(super) const fn room_to_end(&self, position: u64) -> u64 {
        self.epoch.size.room_to_end(position.wrapping_sub(self.base))
    }
}
