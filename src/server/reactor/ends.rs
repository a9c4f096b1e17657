//! How sessions end: the client leaves, violates the protocol or stops reading, or the server stops.

use bellwire_core::end::EndReason;
use bellwire_core::wire::CloseReason;

use super::{Reactor, Schedule, Slot, SlotState};
use crate::ServerStats;
use crate::server::incidents::IncidentCause;
use crate::server::session::ServerSession;
use crate::transport::pass::Channel;
use crate::transport::peer::User;
use crate::transport::{Os, prelude::*, reaper};

impl Reactor {
    /// Handles the end of a client: takes what it has published in ordinary turns. The session ends with the first
    /// turn that finds nothing.
    pub(super) fn peer_gone(&mut self, slot: usize) {
        let Some(session) = self.session(slot) else {
            return self.end(slot, EndReason::Gone);
        };
        if session.end_mut().peer_gone() {
            if let Some(session) = self.slots.get_mut(slot).and_then(Slot::session) {
                // Both stay readable from now on and would wake this thread again and again.
                let link = session.link();
                let _ = self.poller.delete(link.arrived());
                let _ = link.process().map(|process| self.poller.delete(process.as_object()));
            }
        }
        self.resume(slot);
    }

    pub(super) fn is_departed(&mut self, slot: usize) -> bool {
        self.session(slot).is_some_and(|session| session.is_departed())
    }

    /// Ends the session of a departed client once everything it published was taken.
    pub(super) fn finish_departed(&mut self, slot: usize) {
        // Jobs that wait for a worker, and futures, are withdrawn with the session, so there is no reason to take more.
        let is_inline = self.workers.is_empty() && !self.tasks.is_used();
        match self.session(slot) {
            Some(session) if (is_inline && session.is_at_limit()) || session.has_posts() => {}
            _ => self.end(slot, EndReason::Gone),
        }
    }

    pub(super) fn end(&mut self, slot: usize, why: EndReason) {
        match self.slots.get(slot).map(|entry| &entry.state) {
            None => return,
            #[cfg(feature = "netipc")]
            Some(SlotState::Netipc(_)) => {
                let is_stalled = matches!(why, EndReason::Stalled);
                return self.end_netipc(slot, is_stalled.then_some(IncidentCause::Stalled));
            }
            Some(_) => {}
        }
        let Slot { key, client, is_watched_for_stall, state, .. } = self.slots.remove(slot);
        if let Some(user) = self.clients.user(client) {
            self.reap_for(user);
        }
        let SlotState::Open(session) = state else { return self.clients.leave(client) };
        if session.schedule != Schedule::Armed {
            self.clients.deactivate(client, slot);
        }
        self.clients.leave(client);
        if is_watched_for_stall {
            self.stall_watched.retain(|other| *other != key);
        }
        let (reason, cause) = match why {
            EndReason::Closed(_) | EndReason::Gone => (CloseReason::Normal, None),
            EndReason::Fault(fault) => {
                self.quotas.slow_down(session.caller.user, Os::now());
                (CloseReason::Poisoned, Some(IncidentCause::ProtocolViolation(fault)))
            }
            EndReason::Stalled => (CloseReason::Stalled, Some(IncidentCause::Stalled)),
        };
        self.leave_process(key, session.caller.pid);
        self.workers.withdraw_all(slot);
        self.tasks.withdraw_all(slot);
        self.close(*session, reason, cause);
    }

    /// Records what ends the session, if that is an incident, and counts it together with the session's own counters, so that
    /// a reader sees all of it or nothing.
    pub(super) fn close(
        &mut self,
        mut session: ServerSession,
        reason: CloseReason,
        cause: Option<IncidentCause>,
    ) {
        let mut delta = ServerStats::default();
        if let Some(cause) = cause {
            delta = cause.kind().one();
            self.shared.note(session.service, Some(session.caller.unwatched()), cause);
        }
        if let Some(cause) = session.incident.take() {
            self.note(session.row, session.service, Some(session.caller.unwatched()), cause);
        }
        let (row, gauges) = (session.row, session.gauges());
        let link = session.link();
        // The client keeps the same event open for a while, which would keep waking this thread.
        if let Some(event) = link.event() {
            let _ = self.poller.delete(event.as_object());
        }
        if let Some(process) = link.process() {
            let _ = self.poller.delete(process.as_object());
        }
        let (rest, channel) = session.close(reason);
        delta.add(&rest);
        delta.add(&ServerStats::default().since(&gauges));
        self.count(row, &delta);
        self.discard(channel);
    }

    /// Closes this user's descriptors on the reaper from now on.
    #[inline]
    pub(super) fn reap_for(&mut self, user: User) {
        if self.reaps_for != Some(user) {
            self.reaps_for = Some(user);
            reaper::reap_for(&user);
        }
    }

    /// Closes a channel, on the reaper if the client has queued descriptors on it, whose `close` may block. Until it is closed, it
    /// must not wake this thread.
    pub(super) fn discard(&mut self, channel: Channel) {
        let _ = self.poller.delete(channel.arrived());
        drop(channel);
    }
}
