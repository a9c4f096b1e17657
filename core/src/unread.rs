use core::time::Duration;

use crate::lane::Lanes;
use crate::{Instant, PeerFault, PeerMemory};

/// Since when a peer has taken nothing, although something was published for it: it is stopped, hangs, or never reads.
///
/// Only taking counts. A peer that goes on sending, or ringing, and takes nothing holds as much of this end's memory
/// as one that is stopped. One that takes a single record is waited for anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    taken: u64,
    since: Option<Instant>,
}

/// What [`Unread::look`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Left {
    /// The peer has taken all that was published: there is nothing to wait for.
    Nothing,
    /// It may take it yet: look again at this time.
    Until(Instant),
    /// It has taken nothing for as long as it may.
    TooLong,
}

impl Unread {
    /// Looks, now that it is `now`, whether the peer has taken nothing for `limit`, counted from the first look that
    /// found it so. Look after a [commit](Lanes::commit), and at the time that was told last.
    ///
    /// # Errors
    /// [`PeerFault`] when the peer's `head` is a lie.
    pub fn look<P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        peer: &P,
        now: Instant,
        limit: Duration,
    ) -> Result<Left, PeerFault> {
        let taken = lanes.taken(peer)?;
        let moved = taken != self.taken;
        self.taken = taken;
        if taken == lanes.position() {
            self.since = None;
            return Ok(Left::Nothing);
        }
        let since = match self.since {
            Some(since) if !moved => since,
            _ => now,
        };
        self.since = Some(since);
        let until = since.after(limit);
        Ok(if until <= now { Left::TooLong } else { Left::Until(until) })
    }
}
