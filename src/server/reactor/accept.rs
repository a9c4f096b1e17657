//! Accepting: how many at a time, and when not.

use std::time::Duration;

use bellwire_core::Instant;

use super::Reactor;
use super::pace::LONGEST_SHARE;
use crate::ServerStats;
use crate::server::greeting::{Greeting, State, TurnedAway};
use crate::server::incidents::Offence;
use crate::server::source::Source;
use crate::transport::clock;
use crate::transport::poll::{Interest, Trigger};
use crate::transport::shortage;

/// How long to accept nobody after the system had no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Reactor {
    /// A client waits at this endpoint. Of several endpoints the next one in turn is accepted at.
    pub(super) fn await_at(&mut self, at: usize) {
        let count = self.stations.len();
        if let Some(station) = self.stations.get_mut(at) {
            station.is_waited_at = true;
        }
        let turn = |at: usize| (at + count - self.accepted_at - 1) % count;
        if self.waited_at.is_none_or(|other| turn(at) < turn(other)) {
            self.waited_at = Some(at);
        }
    }

    /// Accepts who waits at an endpoint, for as long as a share is. One who has said HELLO takes longer: who waits behind it is
    /// accepted when those who are in had their shares.
    #[inline(never)]
    pub(super) fn accept_some(&mut self, at: usize) {
        self.accepted_at = at;
        let began = self.pace.read();
        while self.accept(at) {
            self.pace.count_slow(&self.clients);
            if self.pace.read().since(began) >= LONGEST_SHARE {
                return;
            }
        }
    }

    /// Whether somebody was accepted.
    fn accept(&mut self, at: usize) -> bool {
        if let Some(until) = self.crowded_until(clock::now()) {
            self.pause_accepting(until);
            return false;
        }
        let Some(station) = self.stations.get_mut(at) else { return false };
        let channel = match station.endpoint.accept() {
            Ok(Some(channel)) => channel,
            Ok(None) => return false,
            Err(error) => {
                // Once for as long as it lasts, not at each try.
                if !std::mem::replace(&mut self.cannot_accept, true) {
                    let service = station.admission.service;
                    self.note(at, service, None, Offence::Short(shortage::of(error)));
                }
                self.pause_accepting(clock::now().after(ACCEPT_PAUSE));
                return false;
            }
        };
        self.cannot_accept = false;
        station.queued += 1;
        let news = ServerStats { backlog_peak: station.queued, ..ServerStats::default() };
        self.shared.stats().add(at, &news);
        let admission = station.admission;
        let has_room = self.seats.len() < self.config.max_sessions;
        let session = self.next_session;
        self.next_session += 1;
        let held = self.held();
        let (config, quotas) = (&self.config, &mut self.quotas);
        let state = State { has_room, held };
        match Greeting::begin(channel, session, admission, config, state, quotas) {
            Ok(greeting) => self.seat(at, greeting),
            Err(turned_away) => self.reject(at, *turned_away),
        }
        true
    }

    /// Begins to count anew who waits at an endpoint, where nobody did at the last look.
    pub(super) fn recount_waiting(&mut self) {
        if self.accept_after.is_none() {
            for station in &mut self.stations {
                if !std::mem::take(&mut station.is_waited_at) {
                    station.queued = 0;
                }
            }
        }
    }

    /// The endpoints are readable and cannot be served now: look away until then.
    fn pause_accepting(&mut self, until: Instant) {
        if self.accept_after.replace(until).is_none() {
            for station in &self.stations {
                let _ = self.poller.delete(&station.endpoint);
            }
        }
    }

    pub(super) fn resume_accepting(&mut self) {
        if self.accept_after.take().is_none() {
            return;
        }
        for (at, station) in self.stations.iter().enumerate() {
            let interest = Interest::readable(Trigger::Level);
            let _ = self.poller.add(&station.endpoint, Source::Station(at).token(), interest);
        }
    }

    /// Counts a client that does not come in, and lets go of it.
    pub(super) fn reject(&mut self, station: usize, turned_away: TurnedAway) {
        let TurnedAway { channel, caller, offence } = turned_away;
        if let Some(caller) = &caller {
            self.reap_for(caller.user);
        }
        if let Some(channel) = channel {
            self.discard(channel);
        }
        self.count(station, &ServerStats { turned_away: 1, ..ServerStats::default() });
        if let (Some(offence), Some(at)) = (offence, self.stations.get(station)) {
            let service = at.admission.service;
            self.note(station, service, caller, offence);
        }
    }

    pub(super) fn next_deadline(&mut self, now: Instant) -> Option<Instant> {
        let (handshake, look) = (self.greeting_deadline(), self.quotas.next_look(now));
        let soon = [self.accept_after, self.retry_at, self.unread_at, handshake, look];
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
            self.retry_stalled();
        }
        if self.unread_at.is_some_and(|at| now >= at) {
            self.end_unread(now);
        }
        self.quotas.reclaim(now);
        self.expire_greetings(now);
    }
}
