//! The counters of a session.

use bellwire_core::serve::ServeCounts;

use super::ServerSession;
use crate::ServerStats;

/// The values of the cumulative counters at the last flush.
pub(super) type FlushedStats = [u64; 15];

impl ServerSession {
    /// Returns the bytes exchanged since the last call.
    pub(in crate::server) fn take_exchanged(&mut self) -> u64 {
        let now = self.end().lanes().exchanged();
        now.wrapping_sub(std::mem::replace(&mut self.exchanged, now))
    }

    /// Adds what was counted since the last flush.
    pub(in crate::server) fn flush_stats(&mut self, stats: &mut ServerStats) {
        let ServeCounts { accepted, answered, refused, errors, panics, posted, post_errors } =
            self.driver.counts();
        let (requests, answers) = (self.end().lanes().received(), self.end().lanes().sent());
        let counts = [
            (&mut stats.accepted, accepted),
            (&mut stats.answered, answered),
            (&mut stats.refused, refused),
            (&mut stats.errors, errors),
            (&mut stats.panics, panics),
            (&mut stats.posted, posted),
            (&mut stats.post_errors, post_errors),
            (&mut stats.rings, self.rings()),
            (&mut stats.bytes_received, requests.bytes),
            (&mut stats.bytes_sent, answers.bytes),
            (&mut stats.attaches_received, requests.attaches),
            (&mut stats.attaches_sent, answers.attaches),
            (&mut stats.grows, requests.grows + answers.grows),
            (&mut stats.shrinks, requests.shrinks + answers.shrinks),
            (&mut stats.lane_full, answers.full),
        ];
        for ((sum, now), flushed_stats) in counts.into_iter().zip(&mut self.flushed_stats) {
            *sum = sum.wrapping_add(now.wrapping_sub(*flushed_stats));
            *flushed_stats = now;
        }
        stats.request_high_water = stats.request_high_water.max(requests.high_water);
        stats.answer_high_water = stats.answer_high_water.max(answers.high_water);
    }
}
