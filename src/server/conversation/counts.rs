//! What a session counts.

use bellwire_core::serve::ServeCounts;

use super::Conversation;
use crate::ServerStats;

/// What a session has counted of what only grows, as far as it was taken over.
pub(super) type Settled = [u64; 13];

impl Conversation {
    /// How many bytes were written and taken since the last time.
    pub(in crate::server) fn take_exchanged(&mut self) -> u64 {
        let now = self.lanes.exchanged();
        now.wrapping_sub(std::mem::replace(&mut self.exchanged, now))
    }

    /// Adds what was counted since the last time.
    pub(in crate::server) fn settle(&mut self, stats: &mut ServerStats) {
        let ServeCounts { accepted, answered, refused, errors, panics } = self.serve.counts();
        let (requests, answers) = (self.lanes.received(), self.lanes.sent());
        let counts = [
            (&mut stats.accepted, accepted),
            (&mut stats.answered, answered),
            (&mut stats.refused, refused),
            (&mut stats.errors, errors),
            (&mut stats.panics, panics),
            (&mut stats.rings, self.rings),
            (&mut stats.bytes_received, requests.bytes),
            (&mut stats.bytes_sent, answers.bytes),
            (&mut stats.attaches_received, requests.attaches),
            (&mut stats.attaches_sent, answers.attaches),
            (&mut stats.grows, requests.grows + answers.grows),
            (&mut stats.shrinks, requests.shrinks + answers.shrinks),
            (&mut stats.lane_full, answers.full),
        ];
        for ((sum, now), settled) in counts.into_iter().zip(&mut self.settled) {
            *sum = sum.wrapping_add(now.wrapping_sub(*settled));
            *settled = now;
        }
        stats.request_high_water = stats.request_high_water.max(requests.high_water);
        stats.answer_high_water = stats.answer_high_water.max(answers.high_water);
    }
}
