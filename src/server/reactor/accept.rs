//! From a connection to an open session: accepting, the handshake, and its deadline.

use std::time::Duration;

use bellwire_core::Instant;
use bellwire_core::wire::RefuseCode;

use super::{Guest, Reactor, Seat};
use crate::server::conversation::{Conversation, Ended};
use crate::server::greeting::{Greeting, Progress, TurnedAway};
use crate::server::source::{Place, Source};
use crate::transport::clock;
use crate::transport::object::AsObject;
use crate::transport::poll::{Interest, Trigger};

/// Connections accepted in a row.
const MOST_ACCEPTED: usize = 64;
/// Clients in the handshake at once.
const MOST_GREETINGS: usize = 256;
/// How long to accept nobody after the system had no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Reactor {
    pub(super) fn accept(&mut self, at: usize) {
        for _ in 0..MOST_ACCEPTED {
            let Some(station) = self.stations.get(at) else { return };
            let channel = match station.endpoint.accept() {
                Ok(Some(channel)) => channel,
                Ok(None) => return,
                Err(_) => return self.pause_accepting(),
            };
            let has_room = self.seats.len() < self.config.max_sessions;
            let session = self.next_session;
            self.next_session += 1;
            match Greeting::begin(channel, session, station.admission, &self.config, has_room) {
                Ok(greeting) => self.seat(at, greeting),
                Err(turned_away) => self.turn_away(at, *turned_away),
            }
        }
    }

    /// No descriptors: the endpoints are readable and cannot be served. Look away for a while.
    fn pause_accepting(&mut self) {
        self.accept_after = Some(clock::now().after(ACCEPT_PAUSE));
        for station in &self.stations {
            let _ = self.poller.delete(&station.endpoint);
        }
    }

    fn resume_accepting(&mut self) {
        self.accept_after = None;
        for (at, station) in self.stations.iter().enumerate() {
            let interest = Interest::readable(Trigger::Level);
            let _ = self.poller.add(&station.endpoint, Source::Station(at).token(), interest);
        }
    }

    fn seat(&mut self, station: usize, greeting: Greeting) {
        let entry = self.seats.vacant_entry();
        let token = Source::Socket(Place::new(entry.key(), greeting.session)).token();
        let interest = Interest::readable(Trigger::Level);
        if self.poller.add(greeting.arrived(), token, interest).is_err() {
            let reason = "the provider cannot watch another client";
            return self.turn_away(station, *greeting.turn_away(RefuseCode::Resources, reason));
        }
        let slot = entry.key();
        entry.insert(Seat { station, guest: Guest::Greeting(Box::new(greeting)) });
        self.greetings += 1;
        if self.greetings > MOST_GREETINGS {
            self.turn_oldest_away();
        }
        self.on_socket(slot);
    }

    /// Too many are in the handshake: who has been longest at it gives its place to the newcomer, so that a
    /// crowd of silent clients keeps nobody out.
    fn turn_oldest_away(&mut self) {
        let greetings = self.seats.iter().filter_map(|(slot, seat)| match &seat.guest {
            Guest::Greeting(greeting) => Some((greeting.session, slot)),
            _ => None,
        });
        let Some((_, slot)) = greetings.min() else { return };
        let Seat { station, guest } = self.seats.remove(slot);
        if let Guest::Greeting(greeting) = guest {
            let reason = "too many clients are in the handshake: try again";
            self.turn_away(station, *greeting.turn_away(RefuseCode::Quota, reason));
            self.greetings -= 1;
        }
    }

    /// Counts a client that does not come in, and lets go of it.
    fn turn_away(&mut self, station: usize, turned_away: TurnedAway) {
        let TurnedAway { channel, caller, offence } = turned_away;
        if let Some(channel) = channel {
            self.discard(channel);
        }
        self.stats.turned_away += 1;
        if let (Some(offence), Some(station)) = (offence, self.stations.get(station)) {
            let service = station.admission.service;
            self.shared.incidents().add(service, caller, offence);
        }
    }

    pub(super) fn greet(&mut self, slot: usize) {
        let Some(seat) = self.seats.get_mut(slot) else { return };
        let at = seat.station;
        let Some(station) = self.stations.get(at) else { return };
        let guest = std::mem::replace(&mut seat.guest, Guest::Gone);
        let Guest::Greeting(greeting) = guest else { return };
        match greeting.advance(&self.config, station.shelf.passed_board().as_object()) {
            Progress::Waiting(greeting) => seat.guest = Guest::Greeting(greeting),
            Progress::Arrived(arrived) => {
                let conversation = Conversation::new(*arrived, &self.config);
                seat.guest = Guest::Open(Box::new(conversation));
                self.greetings -= 1;
                self.stats.admitted += 1;
                self.open(slot);
            }
            Progress::TurnedAway(turned_away) => {
                self.seats.remove(slot);
                self.greetings -= 1;
                self.turn_away(at, *turned_away);
            }
        }
    }

    /// Watches a new session's doorbell and its client's process, and gives it its first turn.
    fn open(&mut self, slot: usize) {
        let poller = &mut self.poller;
        let Some(Seat { station, guest: Guest::Open(conversation) }) = self.seats.get(slot) else {
            return;
        };
        let link = conversation.link();
        if let Some(station) = self.stations.get(*station) {
            station.shelf.watchers().join(link);
        }
        let place = Place::new(slot, conversation.session());
        let (rung, lasting) =
            (Interest::readable(Trigger::Edge), Interest::readable(Trigger::Level));
        let watched = match link.event() {
            Some(event) => poller.add(event, Source::Doorbell(place).token(), rung),
            None => Ok(()),
        };
        let watched = watched.and_then(|()| match link.process() {
            Some(process) => poller.add(process, Source::Process(place).token(), lasting),
            None => Ok(()),
        });
        self.hot.push(slot);
        if watched.is_err() {
            self.hot.pop();
            self.end(slot, Ended::Gone);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let soon = [self.accept_after, self.retry_at, self.unread_at];
        let mut next = soon.into_iter().flatten().min();
        if self.greetings > 0 {
            let deadlines = self.seats.iter().filter_map(|(_, seat)| match &seat.guest {
                Guest::Greeting(greeting) => Some(greeting.deadline()),
                _ => None,
            });
            next = deadlines.chain(next).min();
        }
        next
    }

    pub(super) fn expire(&mut self, now: Instant) {
        if self.accept_after.is_some_and(|after| now >= after) {
            self.resume_accepting();
        }
        if self.retry_at.is_some_and(|at| now >= at) {
            self.retry_stalled();
        }
        if self.unread_at.is_some_and(|at| now >= at) {
            self.end_unread(now);
        }
        if self.greetings == 0 {
            return;
        }
        let late = |seat: &Seat| matches!(&seat.guest, Guest::Greeting(greeting) if now >= greeting.deadline());
        let late: Vec<usize> =
            self.seats.iter().filter(|(_, seat)| late(seat)).map(|(slot, _)| slot).collect();
        for slot in late {
            let Seat { station, guest } = self.seats.remove(slot);
            if let Guest::Greeting(greeting) = guest {
                let reason = "the handshake was not finished in time";
                self.turn_away(station, *greeting.turn_away(RefuseCode::Protocol, reason));
                self.greetings -= 1;
            }
        }
    }
}
