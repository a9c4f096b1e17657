//! The server's counters, updated as sessions open, work and close: summing all sessions at each sleep would cost
//! more the more idle ones there are.

use bellwire_core::ServiceName;

use super::{Reactor, Slot};
use crate::Client;
use crate::report::StatsService;
use crate::server::incidents::IncidentCause;
use crate::server::{Caller, Listener};
use crate::stats::{ServerStats, ServiceStats};

/// Returns a row for each service, and a last one for stats clients.
pub(super) fn rows(listeners: &[Listener]) -> Vec<ServiceStats> {
    let services = listeners.iter().map(|listener| listener.admission.service);
    let row = |service| ServiceStats { service, stats: ServerStats::default() };
    services.chain([Client::<StatsService>::SERVICE]).map(row).collect()
}

/// Returns the row of stats clients.
pub(super) const fn stats_row(listeners: &[Listener]) -> usize {
    listeners.len()
}

impl Reactor {
    /// Adds counts to the service in this row.
    pub(super) fn count(&self, row: usize, delta: &ServerStats) {
        self.shared.stats().add(row, delta);
    }

    /// Records an incident, and counts it for the service in this row.
    pub(super) fn note(
        &self,
        row: usize,
        service: ServiceName,
        caller: Option<Caller>,
        cause: IncidentCause,
    ) {
        let kind = cause.kind();
        self.shared.note(service, caller, cause);
        self.count(row, &kind.one());
    }

    /// The same at an endpoint, which counts for its service.
    pub(super) fn note_at(&self, at: usize, caller: Option<Caller>, cause: IncidentCause) {
        if let Some(listener) = self.listeners.get(at) {
            self.note(at, listener.admission.service, caller, cause);
        }
    }

    /// Flushes a session's counters. Only an active session counts anything, so this is due when it stops being active.
    pub(super) fn flush_stats(&mut self, slot: usize) {
        let Some(session) = self.slots.get_mut(slot).and_then(Slot::session) else { return };
        if let Some(row) = self.shared.stats().services.get_mut(session.row) {
            session.flush_stats(&mut row.stats);
        }
        if let Some(cause) = session.incident.take() {
            let (row, service) = (session.row, session.service);
            let caller = session.caller.unwatched();
            self.note(row, service, Some(caller), cause);
        }
    }

    /// Flushes the counters of the active sessions; the others have nothing new.
    #[cfg(feature = "log")]
    pub(super) fn flush_all_stats(&mut self) {
        for slot in self.clients.all_active().collect::<Vec<_>>() {
            self.flush_stats(slot);
        }
    }

    /// Returns approximately how many descriptors the sessions hold: a socket each, an event for most, a watch per
    /// process, and what a handshake needs temporarily.
    pub(super) fn held(&self) -> usize {
        let total = self.shared.stats().total();
        let of_sessions = 2 * total.sessions - total.socket_rung - total.netipc_sessions;
        let handshakes = 6 * self.handshakes.count();
        usize::try_from(of_sessions).unwrap_or(usize::MAX) + self.peers.held() + handshakes
    }
}
