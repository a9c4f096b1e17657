//! Accepts clients: how many at a time, and when not.

use std::time::Duration;

use bellwire_core::Instant;

use super::poll_budget::LONGEST_SHARE;
use super::{Reactor, Slot, watch};
use crate::ServerStats;
use crate::server::handshake::{FailedHandshake, PendingHandshake};
use crate::server::incidents::IncidentCause;
use crate::server::source::Source;
use crate::transport::poll::Trigger;
use crate::transport::{Os, prelude::*};

/// How long to accept no client after the system had no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// After so many refusals nobody is accepted for this long: 8 000 a second, so that a full backlog is through in half a
/// second. A client that connects again and again would otherwise keep this thread and the reaper busy.
const REFUSALS_BEFORE_PAUSE: u32 = 8;
const REFUSALS_PAUSE: Duration = Duration::from_millis(1);

impl Reactor {
    /// Notes that a client waits at this endpoint. Endpoints take turns.
    pub(super) fn await_at(&mut self, at: usize) {
        let count = self.listeners.len();
        if let Some(listener) = self.listeners.get_mut(at) {
            listener.is_waited_at = true;
        }
        let turn = |at: usize| (at + count - self.accepted_at - 1) % count;
        if self.waited_at.is_none_or(|other| turn(at) < turn(other)) {
            self.waited_at = Some(at);
        }
    }

    /// Accepts waiting connections at an endpoint, for one share. One that has already sent HELLO takes longer; the
    /// ones after it are accepted once the existing clients had their shares.
    #[inline(never)]
    pub(super) fn accept_some(&mut self, at: usize) {
        self.accepted_at = at;
        let began = self.poll_budget.read();
        while self.accept(at) {
            self.poll_budget.count_slow(&self.clients);
            if self.poll_budget.read().since(began) >= LONGEST_SHARE {
                return;
            }
        }
    }

    /// Accepts one client. Returns whether there was one.
    fn accept(&mut self, at: usize) -> bool {
        if let Some(until) = self.handshakes_full_until(Os::now()) {
            self.pause_accepting(until);
            return false;
        }
        let Some(listener) = self.listeners.get_mut(at) else { return false };
        let channel = match listener.endpoint.accept() {
            Ok(Some(channel)) => channel,
            Ok(None) => return false,
            Err(error) => {
                // Report it once per shortage, not at each attempt.
                if !std::mem::replace(&mut self.cannot_accept, true) {
                    self.note_at(at, None, IncidentCause::Short(Os::shortage(error)));
                }
                self.pause_accepting(Os::now().after(ACCEPT_PAUSE));
                return false;
            }
        };
        self.cannot_accept = false;
        listener.queued += 1;
        let delta = ServerStats { backlog_peak: listener.queued, ..ServerStats::default() };
        self.shared.stats().add(at, &delta);
        let admission = listener.admission;
        let has_room = self.slots.len() < self.config.max_sessions;
        let session = self.next_session;
        self.next_session += 1;
        let room = (has_room, self.held());
        let (config, quotas) = (&self.config, &mut self.quotas);
        match PendingHandshake::begin(channel, session, admission, config, room, quotas) {
            Ok(handshake) => self.insert_slot(at, handshake),
            Err(failed) => {
                self.reject(at, *failed);
                self.refusals += 1;
                if self.refusals == REFUSALS_BEFORE_PAUSE {
                    self.refusals = 0;
                    self.pause_accepting(Os::now().after(REFUSALS_PAUSE));
                    return false;
                }
            }
        }
        true
    }

    /// Restarts the backlog count of each endpoint whose backlog was empty at the last check.
    pub(super) fn recount_waiting(&mut self) {
        if self.accept_after.is_none() {
            for listener in &mut self.listeners {
                if !std::mem::take(&mut listener.is_waited_at) {
                    listener.queued = 0;
                }
            }
        }
    }

    /// Stops polling the endpoints until then: they are readable but cannot be served.
    fn pause_accepting(&mut self, until: Instant) {
        if self.accept_after.replace(until).is_none() {
            for listener in &self.listeners {
                let _ = self.poller.delete(listener.endpoint.as_object());
            }
        }
    }

    pub(super) fn resume_accepting(&mut self) {
        if self.accept_after.take().is_none() {
            return;
        }
        for (at, listener) in self.listeners.iter().enumerate() {
            let (endpoint, source) = (listener.endpoint.as_object(), Source::Listener(at));
            let _ = watch(&mut self.poller, endpoint, source, Trigger::Level);
        }
    }

    /// Takes a client that was not let in out of its slot.
    pub(super) fn reject_at(&mut self, slot: usize, failed: FailedHandshake) {
        let Slot { listener, client, .. } = self.slots.remove(slot);
        self.clients.leave(client);
        self.reject(listener, failed);
    }

    /// Counts a client that was not let in, and drops it.
    pub(super) fn reject(&mut self, listener: usize, failed: FailedHandshake) {
        let FailedHandshake { channel, caller, cause } = failed;
        if let Some(caller) = &caller {
            self.reap_for(caller.user);
        }
        if let Some(channel) = channel {
            self.discard(channel);
        }
        self.count(listener, &ServerStats { handshakes_failed: 1, ..ServerStats::default() });
        if let Some(cause) = cause {
            self.note_at(listener, caller, cause);
        }
    }

    pub(super) fn next_deadline(&mut self, now: Instant) -> Option<Instant> {
        let (handshake, reclaim) = (self.handshake_deadline(), self.quotas.reclaim_due(now));
        let soon = [self.accept_after, self.retry_at, self.stall_check_at, handshake, reclaim];
        let next = soon.into_iter().flatten().min();
        #[cfg(feature = "log")]
        let next = self.log.due().into_iter().chain(next).min();
        next
    }

    pub(super) fn expire(&mut self, now: Instant) {
        #[cfg(feature = "log")]
        self.log_stats(now);
        if self.accept_after.is_some_and(|after| now >= after) {
            self.resume_accepting();
        }
        if self.retry_at.is_some_and(|at| now >= at) {
            self.retry_due(now);
        }
        if self.stall_check_at.is_some_and(|at| now >= at) {
            self.end_stalled(now);
        }
        self.quotas.reclaim(now);
        self.begin_delayed(now);
        self.expire_handshakes(now);
    }
}
