//! What a session counts.

use bellwire_core::serve::ServeCounts;

use super::Conversation;
use crate::ServerStats;

impl Conversation {
    /// How many bytes were written and taken since the last time.
    pub(in crate::server) fn take_exchanged(&mut self) -> u64 {
        let now = self.lanes.exchanged();
        now.wrapping_sub(std::mem::replace(&mut self.exchanged, now))
    }

    /// What was counted since the last time.
    pub(in crate::server) fn news(&mut self) -> ServerStats {
        let now = self.tally();
        now.since(&std::mem::replace(&mut self.told, now))
    }

    fn tally(&self) -> ServerStats {
        let ServeCounts { accepted, answered, refused, errors, panics } = self.serve.counts();
        let (requests, answers) = (self.lanes.received(), self.lanes.sent());
        ServerStats {
            accepted,
            answered,
            refused,
            errors,
            panics,
            rings: self.rings,
            bytes_received: requests.bytes,
            bytes_sent: answers.bytes,
            attaches_received: requests.attaches,
            attaches_sent: answers.attaches,
            grows: requests.grows + answers.grows,
            shrinks: requests.shrinks + answers.shrinks,
            lane_full: answers.full,
            request_high_water: requests.high_water,
            answer_high_water: answers.high_water,
            ..ServerStats::default()
        }
    }
}
