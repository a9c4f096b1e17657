mod accept;
mod active;
mod channels;
mod clients;
mod drain;
mod ends;
mod handshakes;
mod listeners;
#[cfg(feature = "log")]
mod log;
mod metrics;
#[cfg(feature = "netipc")]
mod netipc;
mod peers;
mod poll_budget;
mod stalled_clients;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bellwire_core::end::EndReason;
use bellwire_core::wire::Role;
use bellwire_core::{Instant, Spin, Woken, nanos};
use bellwire_probes as probes;
use slab::Slab;

use super::handler::{Caller, Handler, Typed};
use super::handshake::PendingHandshake;
#[cfg(feature = "netipc")]
use super::netipc::NetipcSession;
use super::outbox::{FinishedJob, Outbox};
use super::quotas::Quotas;
use super::session::{Schedule, Scratch, ServerSession, TurnContext};
use super::source::{SlotKey, Source};
use super::tasks::Tasks;
use super::workers::Workers;
use super::{Listener, ServerConfig, Shared, system};
use crate::ServeError;
use crate::report::{Layout, ServerReport, StatsService};
use crate::transport::object::Borrowed;
use crate::transport::peer::User;
use crate::transport::poll::{Events, Interest, PollEvent, Poller, Trigger};
use crate::transport::{Os, prelude::*};
use clients::{Busy, Clients};
use handshakes::Handshakes;
pub(super) use peers::Peers;
use poll_budget::{LONGEST_SHARE, PollBudget};

/// The thread that owns all sessions of a server.
///
/// A session is either *active*, polled in turn with the other active ones, or armed: its client will ring. The reactor
/// arms all sessions before it sleeps, so an idle session costs nothing.
pub(super) struct Reactor {
    config: ServerConfig,
    listeners: Vec<Listener>,
    shared: Arc<Shared>,
    poller: Poller,
    outbox: Arc<Outbox>,
    workers: Workers,
    tasks: Tasks,
    slots: Slab<Slot>,
    handshakes: Handshakes,
    peers: Peers,
    clients: Clients,
    poll_budget: PollBudget,
    quotas: Quotas,
    scratch: Scratch,
    /// For clients, and for workers and futures while they have requests: they may share this thread's processor.
    spins: [Spin; 2],
    /// The most bytes that one session exchanged in a turn since the last spin.
    exchanged: u64,
    /// Answers of the outbox that are not written to their lanes yet.
    done: VecDeque<FinishedJob>,
    next_session: u64,
    /// The user whose descriptors this thread has closed.
    reaps_for: Option<User>,
    /// The endpoint at which the next client waits, and the one last accepted at.
    waited_at: Option<usize>,
    accepted_at: usize,
    /// No client is accepted before this time.
    accept_after: Option<Instant>,
    /// Connections refused since the last pause for that.
    refusals: u32,
    /// Whether the last attempt to accept failed.
    cannot_accept: bool,
    /// Sessions that are paused, or whose channels are muted, each with the time of its retry.
    retries: Vec<(Instant, SlotKey)>,
    /// Whether a client was rung since the descriptors were last polled.
    has_rung: bool,
    retry_at: Option<Instant>,
    /// Sessions whose clients may be stalled, and when to check them.
    stall_watched: Vec<SlotKey>,
    stall_check_at: Option<Instant>,
    #[cfg(feature = "netipc")]
    netipc: netipc::Netipc,
    #[cfg(feature = "log")]
    log: log::Log,
    /// Serves requests for counters.
    stats_handler: Handler,
    notify: Option<<Os as Platform>::Notify>,
}

/// One connection.
struct Slot {
    /// Where it is, and the number of its session.
    key: SlotKey,
    listener: usize,
    /// The index of its client in [`Clients`].
    client: usize,
    /// Whether an event on its channel has not been handled yet.
    is_ready: bool,
    /// Whether its channel is not polled, because messages stay there.
    is_muted: bool,
    /// If so, how long its next retry waits.
    retry_after: Duration,
    /// Whether it is in [`Reactor::retries`].
    is_retried: bool,
    /// Whether it is in [`Reactor::stall_watched`].
    is_watched_for_stall: bool,
    state: SlotState,
}

enum SlotState {
    Handshake(Box<PendingHandshake>),
    Open(Box<ServerSession>),
    #[cfg(feature = "netipc")]
    Netipc(Box<NetipcSession>),
    /// In transition between two states, or over.
    Gone,
}

impl Slot {
    /// Returns its session, if that is open.
    #[inline]
    fn session(&mut self) -> Option<&mut ServerSession> {
        match &mut self.state {
            SlotState::Open(session) => Some(session),
            _ => None,
        }
    }
}

impl Reactor {
    pub(super) fn new(
        config: ServerConfig,
        listeners: Vec<Listener>,
        quotas: Quotas,
        shared: Arc<Shared>,
    ) -> Result<Self, ServeError> {
        let chosen = Poller::choose(config.backend);
        let (mut poller, backend) = chosen.map_err(system("make what waits for clients"))?;
        let unwatched = system("watch for clients");
        let bell = shared.bell.as_object();
        watch(&mut poller, bell, Source::Bell, Trigger::Edge).map_err(&unwatched)?;
        for (at, listener) in listeners.iter().enumerate() {
            listener.store.connect(&shared.bell);
            let listens = listener.endpoint.listen(config.backlog);
            listens.map_err(system("listen for clients"))?;
            let (endpoint, source) = (listener.endpoint.as_object(), Source::Listener(at));
            watch(&mut poller, endpoint, source, Trigger::Level).map_err(&unwatched)?;
        }
        let notify = listeners::notify(&listeners, &mut poller);
        let outbox = Arc::new(Outbox::new(Arc::clone(&shared.bell)));
        let workers = Workers::start(&config, Arc::clone(&outbox));
        let workers = workers.map_err(system("start a worker thread"))?;
        let has_tasks =
            listeners.iter().any(|listener| matches!(listener.handler, Handler::Task(_)));
        let tasks = Tasks::new(has_tasks, config.max_queued, Arc::clone(&outbox));
        let spins = [Spin::new(config.spin), Spin::new(config.spin)];
        let handshakes = Handshakes::new(config.spin);
        let mut stats = shared.stats();
        (stats.backend, stats.services) = (backend, metrics::rows(&listeners));
        drop(stats);
        Ok(Self {
            #[cfg(feature = "log")]
            log: log::Log::new(config.stats_every),
            stats_handler: stats_handler(&config, &shared),
            config,
            listeners,
            shared,
            poller,
            notify,
            outbox,
            workers,
            tasks,
            slots: Slab::new(),
            handshakes,
            peers: Peers::default(),
            clients: Clients::default(),
            poll_budget: PollBudget::new(),
            quotas,
            scratch: Scratch::default(),
            spins,
            exchanged: 0,
            done: VecDeque::new(),
            next_session: 1,
            reaps_for: None,
            waited_at: None,
            accepted_at: 0,
            accept_after: None,
            refusals: 0,
            cannot_accept: false,
            retries: Vec::new(),
            has_rung: false,
            retry_at: None,
            stall_watched: Vec::new(),
            stall_check_at: None,
            #[cfg(feature = "netipc")]
            netipc: netipc::Netipc::default(),
        })
    }

    /// Runs the server until it is stopped.
    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(256);
        while self.shared.stop.get().is_none() {
            let work = self.round();
            // Poll even if there is work, in case it makes no progress.
            if let Some(now) = self.poll_budget.step(&self.clients) {
                let has_rung = std::mem::take(&mut self.has_rung);
                if has_rung && self.clients.is_contended() && self.poll_budget.may_yield() {
                    // In a virtual machine, a kernel that considers every halted processor busy places the woken
                    // thread on this one, where it would wait for the end of the time slice.
                    thread::yield_now();
                    self.poll_budget.yielded(Os::now());
                }
                self.maintain_some(now);
                // An interrupted wait is a wake-up without events.
                let _ = self.poller.wait(&mut events, Some(Duration::ZERO));
                self.dispatch(&events);
                self.expire(now);
                // Handle what the poll reported, for instance a worker's answer, before sleeping.
                continue;
            }
            if work > 0 || self.spin_for_work() {
                continue;
            }
            let now = Os::now();
            self.maintain_some(now);
            if self.arm_all(now) || !self.outbox.arm_bell() || self.spin_for_handshake(&mut events)
            {
                continue;
            }
            self.sleep(&mut events, now);
        }
        self.drain();
    }

    /// Gives every client its share, and accepts waiting connections. Returns the amount of work in messages. Ends
    /// early when the descriptors have to be polled: the next round continues with the next client.
    fn round(&mut self) -> usize {
        let mut work = usize::from(self.take_done());
        for _ in 0..self.clients.busy() {
            let Some(busy) = self.clients.next() else { break };
            work += self.share(&busy);
            if self.poll_budget.is_due() {
                // Even without work, the remaining clients were not checked.
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

    /// Gives each of a client's sessions a turn and handles the events of its channels in between, until its share of
    /// the time is used up. Returns the amount of work.
    #[inline]
    fn share(&mut self, &Busy { client, user, mut ready, mut active }: &Busy) -> usize {
        self.reap_for(user);
        let began = self.poll_budget.read();
        let mut work = 0;
        loop {
            if active > 0 {
                if let Some(slot) = self.clients.next_active(client) {
                    let done = self.turn_of(slot);
                    work += done;
                    self.poll_budget.count(done, &self.clients);
                }
            }
            if ready > 0 {
                if let Some(key) = self.clients.next_ready(client) {
                    self.on_socket(key);
                    work += 1;
                    self.poll_budget.count_slow(&self.clients);
                }
            }
            if ready + active <= 1 || self.poll_budget.read().since(began) >= LONGEST_SHARE {
                return work;
            }
            (ready, active) = (ready.saturating_sub(1), active.saturating_sub(1));
        }
    }

    /// Runs a turn and handles its outcome: a session without work is armed, and one whose client has left ends.
    #[inline]
    fn turn_of(&mut self, slot: usize) -> usize {
        match self.turn(slot) {
            Ok(0) if self.is_departed(slot) => {
                self.deactivate(slot);
                self.finish_departed(slot);
                1
            }
            Ok(0) => {
                if self.arm_if_idle(slot) {
                    self.deactivate(slot);
                }
                0
            }
            Ok(done) => done,
            Err(why) => {
                self.deactivate(slot);
                self.end(slot, why);
                1
            }
        }
    }

    fn turn(&mut self, slot: usize) -> Result<usize, EndReason> {
        let Some(Slot { listener, state: SlotState::Open(session), .. }) = self.slots.get_mut(slot)
        else {
            return Err(EndReason::Gone);
        };
        if session.holds_off() || session.is_quiet() {
            session.count_turn(0);
            return Ok(0);
        }
        let Some(listener) = self.listeners.get(*listener) else { return Err(EndReason::Gone) };
        let is_stats_client = session.row == metrics::stats_row(&self.listeners);
        let handler = if is_stats_client { &self.stats_handler } else { &listener.handler };
        let (workers, tasks, scratch) = (&self.workers, &self.tasks, &mut self.scratch);
        let (is_contended, is_slow) = (self.clients.is_contended(), self.poll_budget.is_slow());
        let (read, until) = (self.poll_budget.read(), None);
        let mut context = TurnContext {
            handler,
            workers,
            tasks,
            scratch,
            slot,
            is_contended,
            is_slow,
            read,
            until,
        };
        let rings = session.end().rings();
        let work = session.turn(&mut context)?;
        self.has_rung |= session.end().rings() != rings;
        session.count_turn(work);
        self.exchanged = self.exchanged.max(session.take_exchanged());
        if session.is_paused() && session.is_departed() {
            // What it holds may be what this process lacks: it has no more time.
            return Ok(0);
        }
        if session.is_paused() {
            let (key, client) = (SlotKey::new(slot, session.caller.session), session.client);
            self.flush_stats(slot);
            self.clients.deactivate(client, slot);
            self.retry_later(key, active::RETRY_AFTER);
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
        let woke = self.dispatch(events);
        let now = Os::now();
        let how = if woke.is_some() { Woken::Rung } else { Woken::Deadline };
        probes::park_end(&all, how.number(), nanos(now.since(began)));
        self.expire(now);
        // Trust the timestamp of the first client that rang only as far as it is plausible.
        let rung = woke.and_then(|slot| self.session(slot)).map(|session| session.rung_at());
        if let Some(rung) = rung {
            let honest = rung >= began && rung <= now;
            let span = |span| honest.then(|| nanos(span));
            for spin in &mut self.spins {
                spin.parked(span(rung.since(began)), span(now.since(rung)));
            }
        }
    }

    /// Dispatches events. Returns the first session that was rung. An event on a channel is handled in its client's
    /// share.
    fn dispatch(&mut self, events: &Events) -> Option<usize> {
        let mut first = None;
        for PollEvent { token, readable, hung_up, .. } in events.iter() {
            match Source::parse(token) {
                Some(Source::Bell) => self.wake_subscribers(),
                Some(Source::Listener(at)) => self.await_at(at),
                Some(Source::Doorbell(key)) if self.is_current(key) => {
                    first = first.or(Some(key.slot));
                    self.activate(key.slot);
                }
                // A muted channel that hangs up has ended; the others are read to their end first.
                Some(Source::Socket(key)) if self.is_current(key) && hung_up && !readable => {
                    self.peer_gone(key.slot);
                }
                Some(Source::Socket(key)) if self.is_current(key) => {
                    self.mark_ready(key);
                    if first.is_none() && self.session(key.slot).is_some() {
                        first = Some(key.slot);
                    }
                }
                Some(Source::Process(key)) if self.is_current(key) => {
                    self.peer_gone(key.slot);
                }
                Some(Source::Peer(pid)) => self.on_process(pid),
                Some(Source::RunDir) => self.recheck_endpoints(),
                _ => {}
            }
        }
        self.recount_waiting();
        first
    }

    fn is_current(&self, key: SlotKey) -> bool {
        self.slots.get(key.slot).is_some_and(|entry| entry.key == key)
    }

    /// Writes workers' answers to their lanes, for at most one share of time. Returns whether there were any.
    fn take_done(&mut self) -> bool {
        if self.done.is_empty() && self.outbox.has_done() {
            self.outbox.collect(&mut self.done);
        }
        let (mut any, mut until) = (false, None);
        while let Some(mut done) = self.done.pop_front() {
            any = true;
            let slot = done.slot;
            #[cfg(feature = "netipc")]
            self.answer_netipc(&done);
            // The slot may belong to another client by now.
            let key = SlotKey::new(slot, done.session);
            let entry = self.slots.get_mut(slot).filter(|entry| entry.key == key);
            let session = entry.and_then(Slot::session);
            match session.map(|session| session.answer(&mut done, &self.workers)) {
                Some(Ok(())) => self.activate(slot),
                Some(Err(why)) => self.end(slot, why),
                None => {}
            }
            self.poll_budget.count_slow(&self.clients);
            let now = self.poll_budget.read();
            if now >= *until.get_or_insert(now.after(LONGEST_SHARE)) {
                break;
            }
        }
        any
    }

    fn session(&mut self, slot: usize) -> Option<&mut ServerSession> {
        self.slots.get_mut(slot)?.session()
    }
}

/// Creates the handler of requests for counters: those of the reactor's last sleep, or of half a millisecond ago.
fn stats_handler(config: &ServerConfig, shared: &Arc<Shared>) -> Handler {
    let (shared, config) = (Arc::clone(shared), config.clone());
    let answer = move |_: &Caller, asked: Layout| {
        let incidents = asked.has_incidents().then(|| shared.incidents().by_user());
        Ok(ServerReport::of(&config, &shared.current_stats(), incidents))
    };
    Handler::Call(Arc::new(Typed::<StatsService, _>::new(answer)))
}

fn watch(
    poller: &mut Poller,
    what: Borrowed<'_>,
    source: Source,
    trigger: Trigger,
) -> io::Result<()> {
    Ok(poller.add(what, source.token(), Interest::readable(trigger))?)
}
