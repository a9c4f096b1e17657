//! The counters of a session.

use bellwire_core::serve::ServeCounts;
use bellwire_core::wire::Doorbell;

use super::ServerSession;
use crate::ServerStats;

impl ServerSession {
    /// Returns what the session counts while it is open.
    pub(in crate::server) fn gauges(&self) -> ServerStats {
        let [socket_rung, clients_by_futex, clients_by_eventfd, clients_by_socket] = [
            self.link().doorbell == Doorbell::Socket,
            self.rings_by == Doorbell::Futex,
            self.rings_by == Doorbell::Eventfd,
            self.rings_by == Doorbell::Socket,
        ]
        .map(u64::from);
        ServerStats {
            sessions: 1,
            socket_rung,
            clients_by_futex,
            clients_by_eventfd,
            clients_by_socket,
            ..ServerStats::default()
        }
    }

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
        let now = ServerStats {
            accepted,
            answered,
            refused,
            errors,
            panics,
            posted,
            post_errors,
            rings: self.end().rings(),
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
        };
        stats.add(&now.since(&self.flushed_stats));
        self.flushed_stats = now;
    }
}
