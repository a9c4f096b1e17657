//! One-way requests: they get no answer, and the peer's Head says which were taken.

use super::CallMachine;
use crate::lane::Lanes;
use crate::{PeerFault, PeerMemory};

impl CallMachine {
    #[inline]
    pub(super) fn posted(&mut self, lanes: &Lanes) {
        self.forget_taken(lanes.seen_taken());
        self.unconsumed.push_back(lanes.position());
    }

    #[inline]
    fn forget_taken(&mut self, taken: u64) {
        while self.unconsumed.front().is_some_and(|end| *end <= taken) {
            self.unconsumed.pop_front();
        }
    }

    /// Returns how many one-way requests the peer has not taken.
    ///
    /// # Errors
    /// [`PeerFault`] when the peer's `head` is invalid.
    pub fn unconsumed<P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        peer: &P,
    ) -> Result<usize, PeerFault> {
        self.forget_taken(lanes.taken(peer)?);
        Ok(self.unconsumed.len())
    }

    /// Returns how many of the one-way requests end after `taken`.
    pub fn unconsumed_after(&self, taken: u64) -> usize {
        self.unconsumed.len() - self.unconsumed.partition_point(|end| *end <= taken)
    }

    /// Returns where the last one-way request ends, unless the peer is known to have taken all of them.
    pub fn last_post_end(&self) -> Option<u64> {
        self.unconsumed.back().copied()
    }
}
