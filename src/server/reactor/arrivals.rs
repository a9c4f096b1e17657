//! From a connection to an open session: the handshake, its deadline, and how many are in it at once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bellwire_core::Instant;
use bellwire_core::wire::RefuseCode;

use super::ledger::{self, Account};
use super::{Guest, Reactor, Seat};
use crate::server::conversation::{Conversation, Ended};
use crate::server::greeting::{Greeting, Progress};
use crate::server::source::{Place, Source};
use crate::server::watch::Watch;
use crate::transport::clock;
use crate::transport::object::AsObject;
use crate::transport::poll::{Interest, Trigger};

/// Clients in the handshake at once.
const MOST_GREETINGS: usize = 256;
/// As few as this, and others are accepted again.
const FEW_GREETINGS: usize = 192;
/// How long a client has before it gives its place in a full handshake to a newcomer.
const GRACE: Duration = Duration::from_millis(100);

/// Who is in the handshake, the longest first. All have the same time for it, so that the first deadline is the
/// first's.
#[derive(Default)]
pub(super) struct Arrivals {
    /// With those that have come in or were turned away meanwhile.
    order: VecDeque<(Instant, Place)>,
    count: usize,
}

impl Arrivals {
    pub(super) fn count(&self) -> usize {
        self.count
    }
}

impl Reactor {
    pub(super) fn seat(&mut self, station: usize, greeting: Greeting) {
        let caller = greeting.caller();
        self.reap_for(caller.user);
        let entry = self.seats.vacant_entry();
        let place = Place::new(entry.key(), greeting.session);
        let interest = Interest::readable(Trigger::Level);
        let token = Source::Socket(place).token();
        if self.poller.add(greeting.arrived(), token, interest).is_err() {
            let reason = "the provider cannot watch another client";
            return self.reject(station, *greeting.turn_away(RefuseCode::Resources, reason));
        }
        let client = self.clients.join(&caller);
        entry.insert(Seat {
            station,
            client,
            is_heard: false,
            is_deaf: false,
            is_stalled: false,
            guest: Guest::Greeting(Box::new(greeting)),
        });
        self.arrivals.order.push_back((clock::now(), place));
        self.arrivals.count += 1;
        self.on_socket(place);
    }

    /// The client that has been in the handshake for longest, and since when.
    fn longest_arriving(&mut self) -> Option<(Instant, Place)> {
        while let Some(&(since, place)) = self.arrivals.order.front() {
            if self.is_greeting(place) {
                return Some((since, place));
            }
            self.arrivals.order.pop_front();
        }
        None
    }

    /// Of the client that has the most connections in the handshake, the one that has been in it for longest, and since
    /// when: who comes with many gives a place up, not who comes with one.
    fn first_of_the_most(&mut self) -> Option<(Instant, Place)> {
        let mut counts = HashMap::<usize, (usize, Instant, Place)>::new();
        for &(since, place) in &self.arrivals.order {
            if self.is_greeting(place)
                && let Some(seat) = self.seats.get(place.slot)
            {
                counts.entry(seat.client).or_insert((0, since, place)).0 += 1;
            }
        }
        let most = counts.into_values().max_by_key(|(count, ..)| *count);
        most.map(|(_, since, place)| (since, place))
    }

    fn is_greeting(&self, place: Place) -> bool {
        let seat = self.seats.get(place.slot);
        self.sits(place) && matches!(seat, Some(Seat { guest: Guest::Greeting(_), .. }))
    }

    /// When somebody can be accepted again, if not now: too many are in the handshake. Who comes waits at the endpoint
    /// until one of them is through, or gives its place up, so that a crowd of silent clients keeps nobody out.
    pub(super) fn crowded_until(&mut self, now: Instant) -> Option<Instant> {
        if self.arrivals.count < MOST_GREETINGS {
            return None;
        }
        let (since, place) = self.first_of_the_most()?;
        let until = since.after(GRACE);
        if now < until {
            return Some(until);
        }
        let reason = "too many clients are in the handshake: try again";
        self.turn_away(place, RefuseCode::Quota, reason);
        None
    }

    fn turn_away(&mut self, place: Place, code: RefuseCode, reason: &str) {
        let Seat { station, client, guest, .. } = self.seats.remove(place.slot);
        self.clients.leave(client);
        if let Guest::Greeting(greeting) = guest {
            self.reject(station, *greeting.turn_away(code, reason));
        }
        self.one_arrives_less();
    }

    fn one_arrives_less(&mut self) {
        self.arrivals.count -= 1;
        if self.arrivals.count == FEW_GREETINGS {
            self.resume_accepting();
        }
    }

    pub(super) fn greet(&mut self, slot: usize) {
        let Some(seat) = self.seats.get_mut(slot) else { return };
        let at = seat.station;
        let Some(station) = self.stations.get(at) else { return };
        let guest = std::mem::replace(&mut seat.guest, Guest::Gone);
        let Guest::Greeting(greeting) = guest else { return };
        let board = station.shelf.passed_board().as_object();
        match greeting.advance(&self.config, board, &self.peers) {
            Progress::Waiting(greeting) => seat.guest = Guest::Greeting(greeting),
            Progress::Arrived(mut arrived) => {
                let process = arrived.process.take();
                let observers = ledger::observers(&self.stations);
                let row = if arrived.is_observer { observers } else { at };
                let attendance = station.shelf.attend();
                arrived.caller.watch = Watch::Server(Arc::clone(&self.shared.stop));
                let client = seat.client;
                let conversation =
                    Conversation::new(*arrived, &self.config, row, client, attendance);
                seat.guest = Guest::Open(Box::new(conversation));
                self.one_arrives_less();
                self.open(slot);
                self.watch_process(slot, process);
                self.look_at_unwatched();
            }
            Progress::TurnedAway(turned_away) => {
                let client = self.seats.remove(slot).client;
                self.clients.leave(client);
                self.reject(at, *turned_away);
                self.one_arrives_less();
            }
        }
    }

    /// Watches a new session's doorbell and its client's process, and gives it its first turn.
    fn open(&mut self, slot: usize) {
        let poller = &mut self.poller;
        let Some(Seat { station, guest: Guest::Open(conversation), .. }) = self.seats.get(slot)
        else {
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
        let account = Account::of(conversation);
        let client = conversation.client;
        self.open_account(&account);
        self.clients.heat(client, slot);
        if watched.is_err() {
            self.end(slot, Ended::Gone);
        }
    }

    pub(super) fn greeting_deadline(&mut self) -> Option<Instant> {
        let timeout = self.config.handshake_timeout;
        self.longest_arriving().map(|(since, _)| since.after(timeout))
    }

    pub(super) fn expire_greetings(&mut self, now: Instant) {
        let timeout = self.config.handshake_timeout;
        while let Some((since, place)) = self.longest_arriving()
            && now >= since.after(timeout)
        {
            let reason = "the handshake was not finished in time";
            self.turn_away(place, RefuseCode::Protocol, reason);
        }
    }
}
