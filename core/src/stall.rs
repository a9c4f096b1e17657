use core::time::Duration;

use crate::lane::Lanes;
use crate::{Instant, PeerFault, PeerMemory};

/// Detects a peer that takes nothing although something was published for it: it is stopped, hangs, or never reads.
///
/// Only taking counts. A peer that keeps sending or ringing but takes nothing holds as much of this end's memory as a
/// stopped one. Taking a single record restarts the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallDetector {
    taken: u64,
    since: Option<Instant>,
}

/// The outcome of [`StallDetector::check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum StallStatus {
    /// The peer has taken everything that was published.
    CaughtUp,
    /// It may still take it: check again at this time.
    CheckAt(Instant),
    /// It has taken nothing for the limit.
    Stalled,
}

impl StallDetector {
    /// Checks at time `now` whether the peer has taken nothing for `limit`, counted from the first check that found
    /// it so. Call it after a [commit](Lanes::commit) and at the time that it last returned.
    ///
    /// # Errors
    /// [`PeerFault`] when the peer's `head` is invalid.
    pub fn check<P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        peer: &P,
        now: Instant,
        limit: Duration,
    ) -> Result<StallStatus, PeerFault> {
        let taken = lanes.taken(peer)?;
        let moved = taken != self.taken;
        self.taken = taken;
        if taken == lanes.position() {
            self.since = None;
            return Ok(StallStatus::CaughtUp);
        }
        let since = match self.since {
            Some(since) if !moved => since,
            _ => now,
        };
        self.since = Some(since);
        let until = since.after(limit);
        Ok(if until <= now { StallStatus::Stalled } else { StallStatus::CheckAt(until) })
    }
}
