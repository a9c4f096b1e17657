//! The server's counters. Each is kept as sessions come, work and go: adding up all sessions at each sleep would cost
//! the more, the more of them are idle.

use super::Reactor;
use crate::server::conversation::Tally;

impl Reactor {
    /// Counts a session that has come in.
    pub(super) fn open_account(&mut self, by_socket: bool) {
        self.stats.admitted += 1;
        self.stats.sessions += 1;
        self.stats.rung_by_socket += u64::from(by_socket);
    }

    /// Takes over what a session has counted since the last time. Only a hot one counts anything, so that this is due
    /// when it is hot no more.
    pub(super) fn settle(&mut self, slot: usize) {
        if let Some(conversation) = self.conversation(slot) {
            let news = conversation.news();
            self.add(&news);
        }
    }

    /// Takes over the rest from a session that is over, with as many requests that nobody will answer.
    pub(super) fn close_account(&mut self, news: &Tally, lost: u64, by_socket: bool) {
        self.add(news);
        self.stats.sessions -= 1;
        self.stats.rung_by_socket -= u64::from(by_socket);
        self.stats.lost += lost;
    }

    /// Shows the counters to whoever asks.
    pub(super) fn publish_stats(&mut self) {
        let mut at = 0;
        while let Some(&slot) = self.hot.get(at) {
            at += 1;
            self.settle(slot);
        }
        *self.shared.stats() = self.stats;
    }

    /// Descriptors that the sessions take, by and large: a socket each, an event for most, a watch for each process, and
    /// what a handshake takes for a moment.
    pub(super) fn held(&self) -> usize {
        let of_sessions = 2 * self.stats.sessions - self.stats.rung_by_socket;
        let arriving = 6 * self.arrivals.count();
        usize::try_from(of_sessions).unwrap_or(usize::MAX) + self.peers.held() + arriving
    }

    fn add(&mut self, news: &Tally) {
        self.stats.accepted += news.accepted;
        self.stats.answered += news.answered;
        self.stats.refused += news.refused;
        self.stats.rings += news.rings;
    }
}
