//! The server's counters. Each is kept as sessions come, work and go: adding up all sessions at each sleep would cost
//! the more, the more of them are idle.

use bellwire_core::ServiceName;
use bellwire_core::wire::Doorbell;

use super::Reactor;
use crate::server::Station;
use crate::server::conversation::Conversation;
use crate::stats::{Published, ServerStats, ServiceStats};

/// What the sessions of those who ask for counters are counted under.
const OBSERVERS: ServiceName = ServiceName::constant("bellwire-stats");

/// What counts for a session as long as it is open.
pub(super) struct Account {
    row: usize,
    held: ServerStats,
}

/// The counters of each service, and of those who ask for counters.
pub(super) struct Ledger {
    rows: Vec<ServiceStats>,
    pub(super) parks: u64,
}

impl Ledger {
    pub(super) fn new(stations: &[Station]) -> Self {
        let services = stations.iter().map(|station| station.admission.service);
        let row = |service| ServiceStats { service, stats: ServerStats::default() };
        Self { rows: services.chain([OBSERVERS]).map(row).collect(), parks: 0 }
    }

    #[cfg(feature = "log")]
    pub(super) fn rows(&self) -> &[ServiceStats] {
        &self.rows
    }

    /// The row of those who ask for counters.
    pub(super) fn observers(&self) -> usize {
        self.rows.len() - 1
    }

    pub(super) fn add(&mut self, row: usize, news: &ServerStats) {
        if let Some(row) = self.rows.get_mut(row) {
            row.stats.add(news);
        }
    }

    /// How many sessions are open, and how many of them are rung through their socket.
    fn sessions(&self) -> (u64, u64) {
        let sum =
            |count: fn(&ServerStats) -> u64| self.rows.iter().map(|row| count(&row.stats)).sum();
        (sum(|stats| stats.sessions), sum(|stats| stats.socket_rung))
    }
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
    /// Counts a client of a station that does not come in.
    pub(super) fn turned_away(&mut self, station: usize) {
        self.ledger.add(station, &ServerStats { turned_away: 1, ..ServerStats::default() });
    }

    /// Counts a session that has come in.
    pub(super) fn open_account(&mut self, Account { row, held }: &Account) {
        self.ledger.add(*row, &ServerStats { admitted: 1, ..*held });
    }

    /// Takes over what a session has counted since the last time. Only a hot one counts anything, so that this is due
    /// when it is hot no more.
    pub(super) fn settle(&mut self, slot: usize) {
        if let Some(conversation) = self.conversation(slot) {
            let (row, news) = (conversation.row, conversation.news());
            self.ledger.add(row, &news);
        }
    }

    /// Takes over the rest from a session that is over, with as many requests that nobody will answer.
    pub(super) fn close_account(&mut self, Account { row, held }: &Account, news: &ServerStats) {
        self.ledger.add(*row, news);
        self.ledger.add(*row, &ServerStats::default().since(held));
    }

    /// Shows the counters to whoever asks.
    pub(super) fn publish_stats(&mut self) {
        let mut at = 0;
        while let Some(&slot) = self.hot.get(at) {
            at += 1;
            self.settle(slot);
        }
        let mut shown = self.shared.stats();
        let Published { parks, services, .. } = &mut *shown;
        *parks = self.ledger.parks;
        services.clone_from(&self.ledger.rows);
    }

    /// Descriptors that the sessions take, by and large: a socket each, an event for most, a watch for each process, and
    /// what a handshake takes for a moment.
    pub(super) fn held(&self) -> usize {
        let (sessions, socket_rung) = self.ledger.sessions();
        let of_sessions = 2 * sessions - socket_rung;
        let arriving = 6 * self.arrivals.count();
        usize::try_from(of_sessions).unwrap_or(usize::MAX) + self.peers.held() + arriving
    }
}
