//! The server's counters. Each is kept as sessions come, work and go: adding up all sessions at each sleep would cost
//! the more, the more of them are idle.

use bellwire_core::ServiceName;
use bellwire_core::wire::Doorbell;

use super::{Guest, Reactor, Seat};
use crate::server::conversation::Conversation;
use crate::server::incidents::Offence;
use crate::server::{Caller, Station};
use crate::stats::{ServerStats, ServiceStats};

/// What the sessions of those who ask for counters are counted under.
const OBSERVERS: ServiceName = ServiceName::constant("bellwire-stats");

/// What counts for a session as long as it is open.
pub(super) struct Account {
    row: usize,
    held: ServerStats,
}

/// A row for each service, and a last one for those who ask for counters.
pub(super) fn rows(stations: &[Station]) -> Vec<ServiceStats> {
    let services = stations.iter().map(|station| station.admission.service);
    let row = |service| ServiceStats { service, stats: ServerStats::default() };
    services.chain([OBSERVERS]).map(row).collect()
}

/// The row of those who ask for counters.
pub(super) const fn observers(stations: &[Station]) -> usize {
    stations.len()
}

impl Account {
    pub(super) fn of(conversation: &Conversation) -> Self {
        let [socket_rung, by_futex, by_eventfd, by_socket] = [
            conversation.is_rung_by_socket(),
            conversation.rings_by() == Doorbell::Futex,
            conversation.rings_by() == Doorbell::Eventfd,
            conversation.rings_by() == Doorbell::Socket,
        ]
        .map(u64::from);
        let held = ServerStats {
            sessions: 1,
            socket_rung,
            clients_by_futex: by_futex,
            clients_by_eventfd: by_eventfd,
            clients_by_socket: by_socket,
            ..ServerStats::default()
        };
        Self { row: conversation.row, held }
    }
}

impl Reactor {
    /// Counts for the service in this row.
    pub(super) fn count(&self, row: usize, news: &ServerStats) {
        self.shared.stats().add(row, news);
    }

    /// Notes an incident, and counts it for the service in this row.
    pub(super) fn note(
        &self,
        row: usize,
        service: ServiceName,
        caller: Option<Caller>,
        offence: Offence,
    ) {
        let kind = offence.kind();
        self.shared.note(service, caller, offence);
        self.count(row, &kind.one());
    }

    /// Counts a session that has come in.
    pub(super) fn open_account(&mut self, Account { row, held }: &Account) {
        self.count(*row, &ServerStats { admitted: 1, ..*held });
    }

    /// Takes over what a session has counted since the last time. Only a hot one counts anything, so that this is due
    /// when it is hot no more.
    pub(super) fn settle(&mut self, slot: usize) {
        let Some(Seat { guest: Guest::Open(conversation), .. }) = self.seats.get_mut(slot) else {
            return;
        };
        let row = conversation.row;
        if let Some(row) = self.shared.stats().services.get_mut(row) {
            conversation.settle(&mut row.stats);
        }
        if let Some(offence) = conversation.incident.take() {
            let (service, caller) = (conversation.service(), conversation.caller().unwatched());
            self.note(row, service, Some(caller), offence);
        }
    }

    /// Takes over the rest from a session that is over, with as many requests that nobody will answer.
    pub(super) fn close_account(&mut self, Account { row, held }: &Account, news: &ServerStats) {
        let mut stats = self.shared.stats();
        stats.add(*row, news);
        stats.add(*row, &ServerStats::default().since(held));
    }

    /// Takes over what the hot sessions have counted: the others have nothing new.
    #[cfg(feature = "log")]
    pub(super) fn settle_hot(&mut self) {
        for slot in self.clients.all_hot().collect::<Vec<_>>() {
            self.settle(slot);
        }
    }

    /// Descriptors that the sessions take, by and large: a socket each, an event for most, a watch for each process, and
    /// what a handshake takes for a moment.
    pub(super) fn held(&self) -> usize {
        let total = self.shared.stats().total();
        let of_sessions = 2 * total.sessions - total.socket_rung;
        let arriving = 6 * self.arrivals.count();
        usize::try_from(of_sessions).unwrap_or(usize::MAX) + self.peers.held() + arriving
    }
}
