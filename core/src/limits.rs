use crate::Geometry;
use crate::wire::PAGE_SIZE;

/// The limits of one end for a session. Both ends declare theirs in the handshake, and both keep to the smaller of
/// the two.
///
/// ```
/// use bellwire_core::{Geometry, Limits};
///
/// let limits = Limits { max_lane: Geometry::new(1 << 20)?, ..Limits::default() };
/// assert_eq!(limits.max_message, 64 << 20);
/// # Ok::<(), bellwire_core::GeometryError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest message, sent or received, in bytes. Default: 64 MiB.
    pub max_message: u64,
    /// The largest lane. Default: 64 MiB, which carries messages of up to half of it less 48 bytes; longer ones are
    /// attached.
    pub max_lane: Geometry,
    /// The most shared memory that one end may have in use for a session, in bytes: its page, its lane in all epochs
    /// that the other end has not left yet, and attachments that were not taken yet. What the other end took and
    /// keeps does not count. Default: 256 MiB. A client has at least [`Limits::MIN_SHARED`].
    pub max_shared_bytes_per_session: u64,
}

/// Which end's limit it is.
///
/// ```
/// use bellwire_core::LimitOwner;
///
/// let act = |whose| match whose {
///     LimitOwner::Own => "raise the limit here",
///     LimitOwner::Peer => "raise the limit of the provider",
/// };
/// assert_eq!(act(LimitOwner::Own), "raise the limit here");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitOwner {
    /// This end's own.
    Own,
    /// The peer's, as it declared in the handshake.
    Peer,
}

/// A limit in bytes, and which end set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// In bytes.
    pub bytes: u64,
    /// Which end set it; the own one when both set the same.
    pub owner: LimitOwner,
}

impl Limits {
    /// The minimum of the limits in the handshake: one page, one small lane.
    pub const MIN_SHARED: u64 = 2 * Geometry::MIN as u64;

    /// Returns the lane with which the other end may open when it requests this one.
    pub fn opening(&self, lane: Geometry) -> Geometry {
        self.lane_within_limit(lane).min(self.max_lane)
    }

    /// Returns the lane with which an end of these limits may open when it wants this one: no larger than what its page leaves
    /// of the shared memory.
    pub fn lane_within_limit(&self, lane: Geometry) -> Geometry {
        let room = self.max_shared_bytes_per_session.saturating_sub(PAGE_SIZE as u64);
        let most = Geometry::new(1 << room.checked_ilog2().unwrap_or(0).min(30));
        // At least a page remains for it: the handshake has refused less.
        lane.min(most.unwrap_or(Geometry::SMALLEST))
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
    /// Returns the smaller of the two ends' limits.
    pub fn smaller(own: u64, peer: u64) -> Self {
        if own <= peer {
            Self { bytes: own, owner: LimitOwner::Own }
        } else {
            Self { bytes: peer, owner: LimitOwner::Peer }
        }
    }
}

impl core::fmt::Display for LimitOwner {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Own => "this end's",
            Self::Peer => "the peer's",
        })
    }
}
