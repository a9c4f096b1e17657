mod accept;
mod arrivals;
mod channels;
mod clients;
mod drain;
mod hot;
mod ledger;
#[cfg(feature = "log")]
mod log;
mod pace;
mod peers;
mod place;
mod unread;

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bellwire_core::wire::{CloseReason, Role};
use bellwire_core::{Instant, Spin, Woken, probes};
use slab::Slab;

use super::conversation::{Conversation, Desk, Ended, Scratch};
use super::greeting::Greeting;
use super::handler::{Caller, Handler, Typed};
use super::incidents::Offence;
use super::quotas::Quotas;
use super::source::{Place, Source};
use super::workers::{Done, Workers};
use super::{ServerConfig, Shared, Station, system};
use crate::report::{Layout, Observing, ServerReport};
use crate::transport::notify::Notify;
use crate::transport::object::AsObject;
use crate::transport::pass::Channel;
use crate::transport::peer::User;
use crate::transport::poll::{Event, Events, Interest, Poller, Trigger};
use crate::transport::{clock, reaper};
use crate::{ServeError, ServerStats};
use arrivals::Arrivals;
use clients::{Busy, Clients};
use ledger::Account;
use pace::{LONGEST_SHARE, Pace};
pub(super) use peers::Peers;

/// The thread that holds all sessions of a server.
///
/// A session is either *hot*, polled in turn with the other hot ones, or armed: its client will ring. Before
/// the reactor sleeps it arms all of them, so an idle session costs nothing.
pub(super) struct Reactor {
    config: ServerConfig,
    stations: Vec<Station>,
    shared: Arc<Shared>,
    poller: Poller,
    workers: Workers,
    seats: Slab<Seat>,
    arrivals: Arrivals,
    peers: Peers,
    clients: Clients,
    pace: Pace,
    quotas: Quotas,
    scratch: Scratch,
    spin: Spin,
    /// The most bytes that one session exchanged in a turn, since the last spin.
    exchanged: u64,
    /// Workers' answers that are not in their lanes yet.
    done: VecDeque<Done>,
    next_session: u64,
    /// Whose descriptors this thread has closed.
    reaps_for: Option<User>,
    /// Where a client waits that is accepted next, and where one was accepted last.
    waited_at: Option<usize>,
    accepted_at: usize,
    /// No one is accepted before this.
    accept_after: Option<Instant>,
    /// The last try to accept somebody failed.
    cannot_accept: bool,
    /// Sessions that wait for this process to have descriptors or memory again, and when they are tried.
    stalled: Vec<Place>,
    /// A client was rung since it was looked last who has.
    has_rung: bool,
    retry_at: Option<Instant>,
    /// Sessions whose clients have left something unread, and when they are looked at.
    unread: Vec<Place>,
    unread_at: Option<Instant>,
    #[cfg(feature = "log")]
    log: log::Log,
    /// Answers who asks for counters.
    observing: Handler,
    notify: Option<Notify>,
}

/// One connection.
struct Seat {
    station: usize,
    /// Whose it is, among [`Clients`].
    client: usize,
    /// Something came on its channel that was not looked at yet.
    is_heard: bool,
    /// Its channel is not polled: something stays there.
    is_deaf: bool,
    /// It is among those that are tried again later.
    is_stalled: bool,
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
        quotas: Quotas,
        shared: Arc<Shared>,
    ) -> Result<Self, ServeError> {
        let chosen = Poller::choose(config.backend);
        let (mut poller, backend) = chosen.map_err(system("make what waits for clients"))?;
        watch(&mut poller, &*shared.bell, Source::Bell, Trigger::Edge)?;
        for (at, station) in stations.iter().enumerate() {
            station.shelf.connect(&shared.bell);
            watch(&mut poller, &station.endpoint, Source::Station(at), Trigger::Level)?;
        }
        let notify = place::notify(&stations, &mut poller);
        let workers = Workers::start(config.workers, config.max_queued, Arc::clone(&shared.bell));
        let workers = workers.map_err(system("start a worker thread"))?;
        let spin = Spin::new(config.spin);
        let mut stats = shared.stats();
        (stats.backend, stats.services) = (backend, ledger::rows(&stations));
        drop(stats);
        Ok(Self {
            #[cfg(feature = "log")]
            log: log::Log::new(config.stats_every),
            observing: observing(&config, &shared),
            config,
            stations,
            shared,
            poller,
            notify,
            workers,
            seats: Slab::new(),
            arrivals: Arrivals::default(),
            peers: Peers::default(),
            clients: Clients::default(),
            pace: Pace::new(),
            quotas,
            scratch: Scratch::default(),
            spin,
            exchanged: 0,
            done: VecDeque::new(),
            next_session: 1,
            reaps_for: None,
            waited_at: None,
            accepted_at: 0,
            accept_after: None,
            cannot_accept: false,
            stalled: Vec::new(),
            has_rung: false,
            retry_at: None,
            unread: Vec::new(),
            unread_at: None,
        })
    }

    /// Serves until it is told to stop.
    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(256);
        while self.shared.stop.told().is_none() {
            let work = self.round();
            // Also when there seems to be work and nothing comes of it.
            if let Some(now) = self.pace.step(&self.clients) {
                if std::mem::take(&mut self.has_rung) && self.clients.is_contended() {
                    // A kernel that takes every halted processor of a virtual machine for busy puts the thread that was
                    // woken on this one, where it would wait for the end of the slice.
                    thread::yield_now();
                }
                self.look_after_some(now);
                // An interrupted wait is a wake-up without events.
                let _ = self.poller.wait(&mut events, Some(Duration::ZERO));
                self.attend(&events);
                self.expire(now);
                // What the poll heard of, a worker's answer for one, is looked for before a sleep.
                continue;
            }
            if work > 0 || self.spin_for_work() {
                continue;
            }
            let now = clock::now();
            self.look_after_some(now);
            if self.arm_all(now) {
                continue;
            }
            self.sleep(&mut events, now);
        }
        self.drain();
    }

    /// Gives every client its share, and accepts who waits. How much there was to do, in messages. Ends sooner when it is
    /// due to look who has rung: the next round goes on with the next client.
    fn round(&mut self) -> usize {
        let mut work = usize::from(self.take_done());
        for _ in 0..self.clients.busy() {
            let Some(busy) = self.clients.next() else { break };
            work += self.share(&busy);
            if self.pace.is_due() {
                // Also when there seems to be nothing to do: others were not looked at.
                work = work.max(1);
                break;
            }
        }
        if let Some(at) = self.waited_at {
            self.waited_at = None;
            self.accept_some(at);
            work += 1;
        }
        work
    }

    /// Gives each of a client's sessions a turn, and deals in between with what came on its channels, as far as its share of
    /// the time goes. How much there was to do.
    #[inline]
    fn share(&mut self, &Busy { client, user, mut heard, mut hot }: &Busy) -> usize {
        self.reap_for(user);
        let began = self.pace.read();
        let mut work = 0;
        loop {
            if hot > 0
                && let Some(slot) = self.clients.next_hot(client)
            {
                let done = self.turn_of(slot);
                work += done;
                self.pace.count(done, &self.clients);
            }
            if heard > 0
                && let Some(place) = self.clients.next_heard(client)
            {
                self.on_socket(place);
                work += 1;
                self.pace.count_slow(&self.clients);
            }
            if heard + hot <= 1 || self.pace.read().since(began) >= LONGEST_SHARE {
                return work;
            }
            (heard, hot) = (heard.saturating_sub(1), hot.saturating_sub(1));
        }
    }

    /// A turn, and what follows from it: the session is polled no more when nothing comes, and ends when its client has left.
    #[inline]
    fn turn_of(&mut self, slot: usize) -> usize {
        match self.turn(slot) {
            Ok(0) if self.is_departed(slot) => {
                self.cool(slot);
                self.part(slot);
                1
            }
            Ok(0) => {
                if self.is_cold(slot) {
                    self.cool(slot);
                }
                0
            }
            Ok(done) => done,
            Err(ended) => {
                self.cool(slot);
                self.end(slot, ended);
                1
            }
        }
    }

    fn turn(&mut self, slot: usize) -> Result<usize, Ended> {
        let Some(Seat { station, guest: Guest::Open(conversation), .. }) = self.seats.get_mut(slot)
        else {
            return Err(Ended::Gone);
        };
        if conversation.is_quiet() {
            conversation.idle_turns = conversation.idle_turns.saturating_add(1);
            return Ok(0);
        }
        let Some(station) = self.stations.get(*station) else { return Err(Ended::Gone) };
        let is_observer = conversation.row == ledger::observers(&self.stations);
        let handler = if is_observer { &self.observing } else { &station.handler };
        let (workers, scratch) = (&self.workers, &mut self.scratch);
        let (is_contended, is_slow) = (self.clients.is_contended(), self.pace.is_slow());
        let (read, until) = (self.pace.read(), None);
        let mut desk = Desk { handler, workers, scratch, slot, is_contended, is_slow, read, until };
        let rings = conversation.rings();
        let work = conversation.turn(&mut desk)?;
        self.has_rung |= conversation.rings() != rings;
        conversation.idle_turns =
            if work > 0 { 0 } else { conversation.idle_turns.saturating_add(1) };
        self.exchanged = self.exchanged.max(conversation.take_exchanged());
        if conversation.is_stalled() {
            let place = Place::new(slot, conversation.session());
            self.stall(place);
        }
        Ok(work)
    }

    fn sleep(&mut self, events: &mut Events, began: Instant) {
        self.shared.stats().parks += 1;
        let until = self.next_deadline(began);
        // A server sleeps for all its sessions together.
        let all = probes::Session::all(Role::Server as u32);
        probes::park_begin(&all, false);
        let _ = self.poller.sleep(events, began, until);
        let woke = self.attend(events);
        let now = clock::now();
        let how = if woke.is_some() { Woken::Rung } else { Woken::Deadline };
        probes::park_end(&all, how.number(), nanos(now.since(began)));
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

    /// Deals with what was waited for. Returns the first session that was rung. What came on a channel is looked at in the
    /// share of its client.
    fn attend(&mut self, events: &Events) -> Option<usize> {
        let mut first = None;
        for Event { token, readable, hung_up, .. } in events.iter() {
            match Source::parse(token) {
                Some(Source::Bell) => self.spread_news(),
                Some(Source::Station(at)) => self.await_at(at),
                Some(Source::Doorbell(place)) if self.sits(place) => {
                    first = first.or(Some(place.slot));
                    self.heat(place.slot);
                }
                // One that is not listened to has ended; the others are read to their end first.
                Some(Source::Socket(place)) if self.sits(place) && hung_up && !readable => {
                    self.depart(place.slot);
                }
                Some(Source::Socket(place)) if self.sits(place) => {
                    self.hear(place);
                    if first.is_none() && self.conversation(place.slot).is_some() {
                        first = Some(place.slot);
                    }
                }
                Some(Source::Process(place)) if self.sits(place) => self.depart(place.slot),
                Some(Source::Peer(pid)) => self.on_process(pid),
                Some(Source::RunDir) => self.look_after_endpoints(),
                _ => {}
            }
        }
        self.recount_waiting();
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

    /// The client is gone. What it has published is taken first, in turns like that of any other: the session ends with
    /// the first turn that finds nothing.
    fn depart(&mut self, slot: usize) {
        let Some(conversation) = self.conversation(slot) else {
            return self.end(slot, Ended::Gone);
        };
        if conversation.depart()
            && let Some(Seat { guest: Guest::Open(conversation), .. }) = self.seats.get(slot)
        {
            // Ready from now on, both would wake this thread again and again.
            let link = conversation.link();
            let _ = self.poller.delete(link.arrived());
            let _ = link.process().map(|process| self.poller.delete(process));
        }
        self.heat(slot);
    }

    fn is_departed(&mut self, slot: usize) -> bool {
        self.conversation(slot).is_some_and(|conversation| conversation.is_departed())
    }

    /// Ends the session of a client that is gone, when all that it published was taken.
    fn part(&mut self, slot: usize) {
        // What waits for a worker is withdrawn with the session: no reason to take more of it.
        let is_inline = self.workers.is_empty();
        match self.conversation(slot) {
            Some(conversation) if is_inline && conversation.is_at_limit() => {}
            _ => self.end(slot, Ended::Gone),
        }
    }

    fn end(&mut self, slot: usize, ended: Ended) {
        if !self.seats.contains(slot) {
            return;
        }
        let Seat { client, guest, .. } = self.seats.remove(slot);
        if let Some(user) = self.clients.user(client) {
            self.reap_for(user);
        }
        let Guest::Open(conversation) = guest else { return self.clients.leave(client) };
        if conversation.is_hot {
            self.clients.cool(client, slot);
        }
        self.clients.leave(client);
        if conversation.is_left_unread {
            self.unread.retain(|place| place.slot != slot);
        }
        let mut news = ServerStats::default();
        let reason = match ended {
            Ended::Gone => CloseReason::Normal,
            Ended::Poisoned(fault) => {
                news.poisoned = 1;
                self.note_end(&conversation, Offence::Lied(fault));
                CloseReason::Poisoned
            }
            Ended::Unread => {
                news.unread = 1;
                self.note_end(&conversation, Offence::Unread);
                CloseReason::Unread
            }
        };
        let place = Place::new(slot, conversation.session());
        self.leave_process(place, conversation.pid());
        self.workers.withdraw_all(slot);
        self.close(*conversation, reason, news);
    }

    /// Notes what ends a session, which is counted with the rest of it.
    fn note_end(&self, conversation: &Conversation, offence: Offence) {
        let (service, caller) = (conversation.service(), conversation.caller().unwatched());
        self.shared.note(service, Some(caller), offence);
    }

    /// `news` is counted with what the session has counted: who asks sees all of it or nothing.
    fn close(
        &mut self,
        mut conversation: Conversation,
        reason: CloseReason,
        mut news: ServerStats,
    ) {
        if let Some(offence) = conversation.incident.take() {
            let (service, caller) = (conversation.service(), conversation.caller().unwatched());
            self.note(conversation.row, service, Some(caller), offence);
        }
        let account = Account::of(&conversation);
        let link = conversation.link();
        // The client holds the same event for a while yet: it would go on waking this thread.
        if let Some(event) = link.event() {
            let _ = self.poller.delete(event);
        }
        if let Some(process) = link.process() {
            let _ = self.poller.delete(process);
        }
        let (rest, channel) = conversation.close(reason);
        news.add(&rest);
        self.close_account(&account, &news);
        if let Some(channel) = channel {
            self.discard(channel);
        }
    }

    /// Whose descriptors are closed elsewhere from now on.
    #[inline]
    pub(super) fn reap_for(&mut self, user: User) {
        if self.reaps_for != Some(user) {
            self.reaps_for = Some(user);
            reaper::reap_for(&user);
        }
    }

    /// Closes a channel elsewhere: the client may have queued descriptors on it that block when they are closed.
    /// Until then it must not wake this thread.
    fn discard(&mut self, channel: Channel) {
        let _ = self.poller.delete(channel.arrived());
        channel.reap();
    }

    /// Puts workers' answers into their lanes, for as long as a share is. Whether there were any.
    fn take_done(&mut self) -> bool {
        if self.workers.is_empty() {
            return false;
        }
        if self.done.is_empty() {
            self.workers.collect(&mut self.done);
        }
        let (mut any, mut until) = (false, None);
        while let Some(mut done) = self.done.pop_front() {
            any = true;
            let slot = done.slot;
            // The seat may have been given to another client meanwhile.
            if let Some(Seat { guest: Guest::Open(conversation), .. }) = self.seats.get_mut(slot)
                && conversation.session() == done.session
            {
                match conversation.answer(&mut done, &self.workers) {
                    Ok(()) => self.heat(slot),
                    Err(ended) => self.end(slot, ended),
                }
            }
            self.pace.count_slow(&self.clients);
            let now = self.pace.read();
            if now >= *until.get_or_insert(now.after(LONGEST_SHARE)) {
                break;
            }
        }
        any
    }

    fn conversation(&mut self, slot: usize) -> Option<&mut Conversation> {
        match self.seats.get_mut(slot) {
            Some(Seat { guest: Guest::Open(conversation), .. }) => Some(conversation),
            _ => None,
        }
    }
}

/// Answers who asks for counters: with those of the reactor's last sleep, or of half a millisecond ago.
fn observing(config: &ServerConfig, shared: &Arc<Shared>) -> Handler {
    let (shared, config) = (Arc::clone(shared), config.clone());
    let answer = move |_: &Caller, asked: Layout| {
        let incidents = asked.has_incidents().then(|| shared.incidents().by_user());
        Ok(ServerReport::of(&config, &shared.stats(), incidents))
    };
    Handler::Call(Arc::new(Typed::<Observing, _>::new(answer)))
}

fn watch(
    poller: &mut Poller,
    what: &impl AsObject,
    source: Source,
    trigger: Trigger,
) -> Result<(), ServeError> {
    let added = poller.add(what.as_object(), source.token(), Interest::readable(trigger));
    added.map_err(system("watch for clients"))
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
