use core::time::Duration;

use crate::wire::HEADER;
use crate::{Geometry, Limit, Limits};

/// Epochs that an end may have passed without its peer having followed, the one in use apart. What would need
/// one more waits for the peer as for a full lane.
pub const MOST_OUTSTANDING: usize = if cfg!(loom) { 1 } else { 4 };
/// Messages in memfds of their own that may be on their way in a lane at once.
pub const MOST_ATTACHED: usize = if cfg!(loom) { 1 } else { 64 };

/// The lane that a message in parts likes best: 1 MiB. A copy through it takes half to a third of what one through 256 KiB takes,
/// where each core has 1 MiB of cache: what is written over has left the reader's own by then, supposedly.
pub(super) const LARGE_LANE: Geometry = match Geometry::new(1 << 20) {
    Ok(size) => size,
    Err(_) => Geometry::DEFAULT,
};
/// The one that it is given at first: 256 KiB.
pub(super) const STREAM_LANE: Geometry = match Geometry::new(256 << 10) {
    Ok(size) => size,
    Err(_) => Geometry::DEFAULT,
};
/// What has gone through that one before the other is worth making: 8 MiB. Its pages take some half a millisecond, a
/// message of 64 KiB some 4 µs less.
pub(super) const WORTH_LARGE: u64 = 8 << 20;
/// A lane is deep that more than this was in at once, in bytes. Where less is on its way, a larger lane makes nothing faster.
pub(super) const DEEP: u64 = 32 << 10;
/// A lane is busy through which [`WORTH_LARGE`] went in less than this: 64 MiB a second.
pub(super) const BUSY: Duration = Duration::from_millis(125);
/// The longest record of a message in parts, in bytes.
const PART: u64 = 32 << 10;

/// One memfd of a lane. The handshake's is number 1, each that follows one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Epoch {
    /// Its number.
    pub number: u32,
    /// Its size.
    pub size: Geometry,
}

/// What the handshake agreed on for one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneTerms {
    /// Its size when the session opens.
    pub size: Geometry,
    /// Its owner never makes it smaller than this.
    pub least: Geometry,
    /// It never becomes larger than this.
    pub most: Geometry,
    /// The longest message.
    pub message: Limit,
    /// Shared memory that its owner may have in use.
    pub shared: Limit,
}

/// What a lane has carried and how it was resized, seen from one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneStats {
    /// The number of the memfd in use; the first is 1.
    pub epoch: u32,
    /// Its size in bytes.
    pub size: u64,
    /// The most bytes that were in use at once, in any epoch. The sender looks four times a lap, every 64 KiB at least, and when the
    /// lane is full; the receiver, whenever it finds new records.
    pub high_water: u64,
    /// How often the lane became larger.
    pub grows: u64,
    /// How often it became smaller.
    pub shrinks: u64,
    /// Messages that travelled in memfds of their own.
    pub attaches: u64,
    /// Bytes of records, headers and padding included, written or taken.
    pub bytes: u64,
    /// Records that met a full lane, and were not written at once. Only the sender knows.
    pub full: u64,
}

/// Where the positions of one epoch lie in its memfd.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    pub(super) epoch: Epoch,
    /// The first position in it.
    pub(super) base: u64,
}

impl Epoch {
    /// The handshake's.
    pub const fn first(size: Geometry) -> Self {
        Self { number: 1, size }
    }

    /// The one after this.
    pub const fn next(self, size: Geometry) -> Self {
        Self { number: self.number.wrapping_add(1), size }
    }

    /// As it stands in the `id` of a switch record: the number low, the size in bytes high.
    pub const fn to_wire(self) -> u64 {
        self.number as u64 | self.size.size() << 32
    }

    /// Parses the `id` of a peer's switch record; `None` when the size is not a lane's.
    pub fn from_wire(id: u64) -> Option<Self> {
        let size = Geometry::new(id >> 32).ok()?;
        Some(Self { number: u32::try_from(id & 0xffff_ffff).ok()?, size })
    }
}

impl LaneTerms {
    /// A lane that keeps its size.
    pub fn fixed(size: Geometry) -> Self {
        let message = Limit::smaller(size.max_payload() as u64, u64::MAX);
        let shared = Limit::smaller(u64::MAX, u64::MAX);
        Self { size, least: size, most: size, message, shared }
    }

    /// The lane that `own` writes and `peer` reads.
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
    /// The longest part of a message in parts: a quarter of the lane, at most 32 KiB with its header. The sender
    /// writes one while the receiver copies another.
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

    /// Where `position` lies, in bytes from the memfd's start.
    #[inline]
    pub(super) const fn offset(&self, position: u64) -> usize {
        self.epoch.size.offset(position.wrapping_sub(self.base))
    }

    /// Bytes from `position` to the memfd's end.
    #[inline]
    pub(super) const fn room_to_end(&self, position: u64) -> u64 {
        self.epoch.size.room_to_end(position.wrapping_sub(self.base))
    }
}
