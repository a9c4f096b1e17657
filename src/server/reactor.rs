use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bellwire_core::sync::Ordering;
use bellwire_core::wire::{CloseReason, RefuseCode};
use bellwire_core::{Instant, Looks, Spin};
use slab::Slab;

use super::conversation::{Conversation, Desk, Ended, Scratch};
use super::greeting::{Greeting, Progress};
use super::source::{Place, Source};
use super::workers::{Done, Workers};
use super::{ServerConfig, Shared, Station, system};
use crate::transport::poll::{Epoll, Event, Events, Interest, Trigger};
use crate::transport::{clock, reaper};
use crate::{ServeError, ServerStats};

/// Busy rounds before the clock is read.
const ROUNDS_BEFORE_CLOCK: u32 = 32;
/// How often a busy reactor looks at the sockets: fewer than one system call in a thousand hot calls.
const POLL_EVERY: Duration = Duration::from_micros(500);
/// Rounds without work after which a session is armed and no longer polled, while others are busy.
const ROUNDS_BEFORE_COLD: u32 = 4096;
/// Connections accepted in a row.
const MOST_ACCEPTED: usize = 64;
/// Clients in the handshake at once.
const MOST_GREETINGS: usize = 256;
/// How long to accept nobody after the system had no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often the time is looked at while draining.
const DRAIN_SLICE: Duration = Duration::from_millis(5);

/// The thread that holds all sessions of a server.
///
/// A session is either *hot*, polled in turn with the other hot ones, or armed: its client will ring. Before
/// the reactor sleeps it arms all of them, so an idle session costs nothing.
pub(super) struct Reactor {
    config: ServerConfig,
    stations: Vec<Station>,
    shared: Arc<Shared>,
    epoll: Epoll,
    workers: Workers,
    seats: Slab<Seat>,
    hot: Vec<usize>,
    greetings: usize,
    scratch: Scratch,
    spin: Spin,
    done: Vec<Done>,
    next_session: u64,
    /// No one is accepted before this.
    accept_after: Option<Instant>,
    stats: ServerStats,
}

/// One connection.
struct Seat {
    station: usize,
    guest: Guest,
}

enum Guest {
    Greeting(Box<Greeting>),
    Open(Box<Conversation>),
    /// Between two states, or over.
    Gone,
}

impl Reactor {
    pub(super) fn new(
        config: ServerConfig,
        stations: Vec<Station>,
        shared: Arc<Shared>,
    ) -> Result<Self, ServeError> {
        let epoll = Epoll::create().map_err(system("create an epoll instance"))?;
        let watch = |fd: &dyn AsFd, source: Source, trigger| {
            epoll
                .add(fd.as_fd(), source.token(), Interest::readable(trigger))
                .map_err(system("watch a descriptor"))
        };
        watch(&*shared.bell, Source::Bell, Trigger::Edge)?;
        for (at, station) in stations.iter().enumerate() {
            watch(&station.endpoint, Source::Station(at), Trigger::Level)?;
        }
        let workers = Workers::start(config.workers, Arc::clone(&shared.bell));
        let workers = workers.map_err(system("start a worker thread"))?;
        let spin = Spin::new(config.spin);
        Ok(Self {
            config,
            stations,
            shared,
            epoll,
            workers,
            seats: Slab::new(),
            hot: Vec::new(),
            greetings: 0,
            scratch: Scratch::default(),
            spin,
            done: Vec::new(),
            next_session: 1,
            accept_after: None,
            stats: ServerStats::default(),
        })
    }

    /// Serves until it is told to stop.
    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(256);
        let (mut rounds, mut polled) = (0_u32, clock::now());
        // Acquire: pairs with the Release store of whoever stops the server.
        while !self.shared.stop.load(Ordering::Acquire) {
            if self.round() {
                rounds += 1;
                if rounds.is_multiple_of(ROUNDS_BEFORE_CLOCK) {
                    let now = clock::now();
                    if now.since(polled) >= POLL_EVERY {
                        polled = now;
                        self.publish_stats();
                        self.poll(&mut events, Some(Duration::ZERO));
                        self.expire(now);
                    }
                }
                continue;
            }
            if self.spin_for_work() {
                continue;
            }
            if self.arm_all() {
                continue;
            }
            self.sleep(&mut events);
        }
        self.drain();
    }

    /// Gives every hot session a turn. True when any had something to do.
    fn round(&mut self) -> bool {
        let mut worked = self.take_done();
        let mut at = 0;
        while let Some(&slot) = self.hot.get(at) {
            match self.turn(slot) {
                Ok(true) => worked = true,
                Ok(false) if self.is_cold(slot) => {
                    self.hot.swap_remove(at);
                    continue;
                }
                Ok(false) => {}
                Err(ended) => {
                    self.hot.swap_remove(at);
                    self.end(slot, ended);
                    continue;
                }
            }
            at += 1;
        }
        worked
    }

    fn turn(&mut self, slot: usize) -> Result<bool, Ended> {
        let Some(Seat { station, guest: Guest::Open(conversation) }) = self.seats.get_mut(slot)
        else {
            return Err(Ended::Gone);
        };
        let Some(station) = self.stations.get(*station) else { return Err(Ended::Gone) };
        let (handler, workers, scratch) = (&station.handler, &self.workers, &mut self.scratch);
        let worked = conversation.turn(&mut Desk { handler, workers, scratch, slot })?;
        conversation.idle_turns =
            if worked { 0 } else { conversation.idle_turns.saturating_add(1) };
        Ok(worked)
    }

    /// Whether a session was without work for so long that it can be armed: then it is no longer hot.
    fn is_cold(&mut self, slot: usize) -> bool {
        let Some(conversation) = self.conversation(slot) else { return true };
        if conversation.idle_turns < ROUNDS_BEFORE_COLD || !matches!(conversation.arm(), Ok(false))
        {
            return false;
        }
        conversation.is_hot = false;
        true
    }

    /// Polls the hot sessions for a bounded time. True when there is something to do.
    fn spin_for_work(&mut self) -> bool {
        if self.hot.is_empty() {
            return false;
        }
        let budget = self.spin.budget();
        if budget == 0 {
            return false;
        }
        let mut looks = Looks::new(budget);
        loop {
            if self.has_moved() {
                self.spin.hit(looks.spun());
                return true;
            }
            std::hint::spin_loop();
            if !looks.count() {
                continue;
            }
            if self.shared.stop.load(Ordering::Relaxed) || self.workers.has_done() {
                return true;
            }
            if looks.tick(clock::now()) {
                self.spin.ran_out();
                return false;
            }
        }
    }

    #[inline]
    fn has_moved(&mut self) -> bool {
        for &slot in &self.hot {
            if let Some(Seat { guest: Guest::Open(conversation), .. }) = self.seats.get_mut(slot)
                && conversation.has_moved()
            {
                return true;
            }
        }
        false
    }

    /// Asks all hot clients to ring. True when one of them has something already.
    fn arm_all(&mut self) -> bool {
        let mut moved = false;
        let mut at = 0;
        while let Some(&slot) = self.hot.get(at) {
            at += 1;
            let Some(conversation) = self.conversation(slot) else { continue };
            // A session that is over is dealt with in its turn.
            if conversation.arm().unwrap_or(true) {
                moved = true;
            }
        }
        if !moved {
            for slot in std::mem::take(&mut self.hot) {
                if let Some(conversation) = self.conversation(slot) {
                    conversation.is_hot = false;
                }
            }
        }
        moved
    }

    fn sleep(&mut self, events: &mut Events) {
        self.publish_stats();
        let began = clock::now();
        self.stats.parks += 1;
        let until = self.next_deadline();
        let timeout = until.map(|until| until.since(began));
        let woke = self.poll(events, timeout);
        let now = clock::now();
        self.expire(now);
        // What the first client to ring says of the time is believed as far as it can be true.
        let rung = woke
            .and_then(|slot| self.conversation(slot))
            .map(|conversation| conversation.rung_at());
        if let Some(rung) = rung {
            let honest = rung >= began && rung <= now;
            let span = |span| honest.then(|| nanos(span));
            self.spin.parked(span(rung.since(began)), span(now.since(rung)));
        }
    }

    /// Waits for events and deals with them. Returns the first session that was rung.
    fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> Option<usize> {
        // An interrupted wait is a wake-up without events.
        self.epoll.wait(events, timeout).unwrap_or(0);
        let mut first = None;
        for Event { token, .. } in events.iter() {
            match Source::parse(token) {
                Some(Source::Station(at)) => self.accept(at),
                Some(Source::Doorbell(place)) if self.sits(place) => {
                    first = first.or(Some(place.slot));
                    self.heat(place.slot);
                }
                Some(Source::Socket(place)) if self.sits(place) => self.on_socket(place.slot),
                Some(Source::Process(place)) if self.sits(place) => {
                    self.end(place.slot, Ended::Gone);
                }
                _ => {}
            }
        }
        first
    }

    fn sits(&self, place: Place) -> bool {
        let session = match self.seats.get(place.slot).map(|seat| &seat.guest) {
            Some(Guest::Open(conversation)) => conversation.session(),
            Some(Guest::Greeting(greeting)) => greeting.session,
            _ => return false,
        };
        Place::new(place.slot, session) == place
    }

    /// Polls a session from now on.
    fn heat(&mut self, slot: usize) {
        let Some(conversation) = self.conversation(slot) else { return };
        if !conversation.is_hot {
            conversation.is_hot = true;
            conversation.idle_turns = 0;
            conversation.disarm();
            self.hot.push(slot);
        }
    }

    fn accept(&mut self, at: usize) {
        for _ in 0..MOST_ACCEPTED {
            let Some(station) = self.stations.get(at) else { return };
            let socket = match station.endpoint.accept() {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                Err(_) => return self.pause_accepting(),
            };
            let has_room = self.seats.len() < self.config.max_sessions;
            let session = self.next_session;
            self.next_session += 1;
            match Greeting::begin(socket, session, station.admission, &self.config, has_room) {
                Some(greeting) => self.seat(at, greeting),
                None => self.stats.turned_away += 1,
            }
        }
    }

    /// Too many are in the handshake: who has been longest at it gives its place to the newcomer, so that a
    /// crowd of silent clients keeps nobody out.
    fn turn_oldest_away(&mut self) {
        let greetings = self.seats.iter().filter_map(|(slot, seat)| match &seat.guest {
            Guest::Greeting(greeting) => Some((greeting.session, slot)),
            _ => None,
        });
        let Some((_, slot)) = greetings.min() else { return };
        if let Guest::Greeting(greeting) = self.seats.remove(slot).guest {
            greeting
                .turn_away(RefuseCode::Quota, "too many clients are in the handshake: try again");
            self.greetings -= 1;
            self.stats.turned_away += 1;
        }
    }

    /// No descriptors: the endpoints are readable and cannot be served. Look away for a while.
    fn pause_accepting(&mut self) {
        self.accept_after = Some(clock::now().after(ACCEPT_PAUSE));
        for station in &self.stations {
            let _ = self.epoll.delete(&station.endpoint);
        }
    }

    fn resume_accepting(&mut self) {
        self.accept_after = None;
        for (at, station) in self.stations.iter().enumerate() {
            let interest = Interest::readable(Trigger::Level);
            let _ = self.epoll.add(&station.endpoint, Source::Station(at).token(), interest);
        }
    }

    fn seat(&mut self, station: usize, greeting: Greeting) {
        let entry = self.seats.vacant_entry();
        let token = Source::Socket(Place::new(entry.key(), greeting.session)).token();
        if self.epoll.add(greeting.socket(), token, Interest::readable(Trigger::Level)).is_err() {
            let reason = "the provider cannot watch another socket";
            reaper::reap(greeting.turn_away(RefuseCode::Resources, reason));
            self.stats.turned_away += 1;
            return;
        }
        let slot = entry.key();
        entry.insert(Seat { station, guest: Guest::Greeting(Box::new(greeting)) });
        self.greetings += 1;
        if self.greetings > MOST_GREETINGS {
            self.turn_oldest_away();
        }
        self.on_socket(slot);
    }

    fn on_socket(&mut self, slot: usize) {
        let Some(seat) = self.seats.get_mut(slot) else { return };
        match &mut seat.guest {
            Guest::Open(conversation) => match conversation.read_control() {
                Ok(()) => self.heat(slot),
                Err(ended) => self.end(slot, ended),
            },
            Guest::Greeting(_) => self.greet(slot),
            Guest::Gone => {}
        }
    }

    fn greet(&mut self, slot: usize) {
        let Some(seat) = self.seats.get_mut(slot) else { return };
        let Some(station) = self.stations.get(seat.station) else { return };
        let guest = std::mem::replace(&mut seat.guest, Guest::Gone);
        let Guest::Greeting(greeting) = guest else { return };
        match greeting.advance(&self.config, station.shelf.board_fd().as_fd()) {
            Progress::Waiting(greeting) => seat.guest = Guest::Greeting(greeting),
            Progress::Arrived(arrived) => {
                let conversation = Conversation::new(*arrived, self.config.max_in_flight);
                seat.guest = Guest::Open(Box::new(conversation));
                self.greetings -= 1;
                self.stats.admitted += 1;
                self.open(slot);
            }
            Progress::TurnedAway(socket) => {
                if let Some(socket) = socket {
                    self.discard(socket);
                }
                self.seats.remove(slot);
                self.greetings -= 1;
                self.stats.turned_away += 1;
            }
        }
    }

    /// Watches a new session's doorbell and its client's process, and gives it its first turn.
    fn open(&mut self, slot: usize) {
        let epoll = &self.epoll;
        let Some(Seat { guest: Guest::Open(conversation), .. }) = self.seats.get_mut(slot) else {
            return;
        };
        let link = conversation.link();
        let place = Place::new(slot, conversation.session());
        let watched = match link.eventfd() {
            Some(eventfd) => epoll.add(
                eventfd,
                Source::Doorbell(place).token(),
                Interest::readable(Trigger::Edge),
            ),
            None => Ok(()),
        };
        let watched = watched.and_then(|()| match link.pidfd() {
            Some(pidfd) => {
                epoll.add(pidfd, Source::Process(place).token(), Interest::readable(Trigger::Level))
            }
            None => Ok(()),
        });
        self.hot.push(slot);
        if watched.is_err() {
            self.hot.pop();
            self.end(slot, Ended::Gone);
        }
    }

    fn end(&mut self, slot: usize, ended: Ended) {
        self.hot.retain(|hot| *hot != slot);
        if !self.seats.contains(slot) {
            return;
        }
        let Guest::Open(conversation) = self.seats.remove(slot).guest else { return };
        let reason = match ended {
            Ended::Gone => CloseReason::Normal,
            Ended::Poisoned(_) => {
                self.stats.poisoned += 1;
                CloseReason::Poisoned
            }
        };
        self.close(*conversation, reason);
    }

    fn close(&mut self, conversation: Conversation, reason: CloseReason) {
        let rings = conversation.rings();
        // The client holds the same eventfd for a while yet: it would go on waking this thread.
        if let Some(eventfd) = conversation.link().eventfd() {
            let _ = self.epoll.delete(eventfd);
        }
        let (counts, socket) = conversation.close(reason);
        self.stats.accepted += counts.accepted;
        self.stats.answered += counts.answered;
        self.stats.refused += counts.refused;
        self.stats.lost += counts.in_flight();
        self.stats.rings += rings;
        self.discard(socket);
    }

    /// Closes a socket elsewhere: the client may have queued descriptors on it that block when they are closed.
    /// Until then it must not wake this thread.
    fn discard(&self, socket: OwnedFd) {
        let _ = self.epoll.delete(&socket);
        reaper::reap(socket);
    }

    fn take_done(&mut self) -> bool {
        if self.workers.is_empty() {
            return false;
        }
        let mut done = std::mem::take(&mut self.done);
        self.workers.collect(&mut done);
        let any = !done.is_empty();
        for done in done.drain(..) {
            let Some(conversation) = self.conversation(done.slot) else { continue };
            // The seat may have been given to another client meanwhile.
            if conversation.session() != done.session {
                continue;
            }
            match conversation.answer(&done) {
                Ok(()) => self.heat(done.slot),
                Err(ended) => self.end(done.slot, ended),
            }
        }
        self.done = done;
        any
    }

    fn next_deadline(&self) -> Option<Instant> {
        let mut next = self.accept_after;
        if self.greetings > 0 {
            let deadlines = self.seats.iter().filter_map(|(_, seat)| match &seat.guest {
                Guest::Greeting(greeting) => Some(greeting.deadline()),
                _ => None,
            });
            next = deadlines.chain(next).min();
        }
        next
    }

    fn expire(&mut self, now: Instant) {
        if self.accept_after.is_some_and(|after| now >= after) {
            self.resume_accepting();
        }
        if self.greetings == 0 {
            return;
        }
        let late = |seat: &Seat| matches!(&seat.guest, Guest::Greeting(greeting) if now >= greeting.deadline());
        let late: Vec<usize> =
            self.seats.iter().filter(|(_, seat)| late(seat)).map(|(slot, _)| slot).collect();
        for slot in late {
            if let Guest::Greeting(greeting) = self.seats.remove(slot).guest {
                let reason = "the handshake was not finished in time";
                self.discard(greeting.turn_away(RefuseCode::Protocol, reason));
                self.greetings -= 1;
                self.stats.turned_away += 1;
            }
        }
    }

    /// Answers what was taken, refuses the rest, says bye.
    fn drain(mut self) {
        let mut stations = std::mem::take(&mut self.stations);
        for station in &stations {
            let _ = self.epoll.delete(&station.endpoint);
        }
        let deadline = clock::now().after(self.config.drain_timeout);
        let mut events = Events::with_capacity(64);
        self.refuse_rest();
        while self.is_owing() && clock::now() < deadline {
            // Sleeps until a worker is done; a client that makes room is looked for in slices.
            let _ = self.epoll.wait(&mut events, Some(DRAIN_SLICE));
            self.take_done();
            self.refuse_rest();
        }
        for seat in std::mem::take(&mut self.seats).into_iter().map(|(_, seat)| seat) {
            match seat.guest {
                Guest::Open(conversation) => self.close(*conversation, CloseReason::Stopping),
                Guest::Greeting(greeting) => {
                    let reason = "the provider is stopping";
                    self.discard(greeting.turn_away(RefuseCode::Stopping, reason));
                }
                Guest::Gone => {}
            }
        }
        // After the byes: who looks at a board that says so finds its session closed.
        for station in stations.drain(..) {
            station.shelf.stop();
        }
        self.publish_stats();
    }

    fn refuse_rest(&mut self) {
        let slots: Vec<usize> = self.seats.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            if let Some(Seat { guest: Guest::Open(conversation), .. }) = self.seats.get_mut(slot)
                && let Err(ended) = conversation.refuse_rest(&mut self.scratch)
            {
                self.end(slot, ended);
            }
        }
    }

    fn is_owing(&self) -> bool {
        self.seats
            .iter()
            .any(|(_, seat)| matches!(&seat.guest, Guest::Open(open) if !open.is_drained()))
    }

    fn conversation(&mut self, slot: usize) -> Option<&mut Conversation> {
        match self.seats.get_mut(slot) {
            Some(Seat { guest: Guest::Open(conversation), .. }) => Some(conversation),
            _ => None,
        }
    }

    /// Adds up the sessions that are over and those that are open.
    fn publish_stats(&self) {
        let mut stats = self.stats;
        for (_, seat) in &self.seats {
            if let Guest::Open(conversation) = &seat.guest {
                let counts = conversation.counts();
                stats.sessions += 1;
                stats.accepted += counts.accepted;
                stats.answered += counts.answered;
                stats.refused += counts.refused;
                stats.rings += conversation.rings();
            }
        }
        *self.shared.stats() = stats;
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
