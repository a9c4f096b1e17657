use crate::Geometry;
use crate::wire::PAGE_SIZE;

/// How much one end puts up with in a session. Both ends declare theirs in the handshake, and both keep to
/// the smaller of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest message, sent or received, in bytes. Default: 64 MiB.
    pub max_message: u64,
    /// The largest lane. Default: 64 MiB, which carries messages of up to half of it less 48 bytes; longer ones
    /// travel as memfds of their own.
    pub max_lane: Geometry,
    /// The shared memory that one end may have in use for a session, in bytes: its page, its lane in all epochs
    /// that the other end has not left yet, and messages in memfds of their own that were not taken yet. What the
    /// other end took and keeps does not count. Default: 256 MiB.
    pub max_shared_bytes_per_session: u64,
}

/// Which end's limit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whose {
    /// This end's own.
    Own,
    /// The peer's, as it declared in the handshake.
    Peer,
}

/// A limit in bytes, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// In bytes.
    pub bytes: u64,
    /// Which end set it; the own one when both set the same.
    pub whose: Whose,
}

impl Limits {
    /// The limits that the handshake refuses to go below: one page, one small lane.
    pub const MIN_SHARED: u64 = 2 * Geometry::MIN as u64;

    /// The lane that the other end may open with when it would like this one.
    pub fn opening(&self, lane: Geometry) -> Geometry {
        let room = self.max_shared_bytes_per_session.saturating_sub(PAGE_SIZE as u64);
        let most = Geometry::new(1 << room.checked_ilog2().unwrap_or(0).min(30));
        // Not less than a page is left for it: the handshake has refused that.
        lane.min(self.max_lane).min(most.unwrap_or(Geometry::SMALLEST))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_message: 64 << 20,
            max_lane: Geometry::LARGE,
            max_shared_bytes_per_session: 256 << 20,
        }
    }
}

impl Limit {
    /// The smaller of the two ends' limits.
    pub fn smaller(own: u64, peer: u64) -> Self {
        if own <= peer {
            Self { bytes: own, whose: Whose::Own }
        } else {
            Self { bytes: peer, whose: Whose::Peer }
        }
    }
}

impl core::fmt::Display for Whose {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Own => "this end's",
            Self::Peer => "the peer's",
        })
    }
}
