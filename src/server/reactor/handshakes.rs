//! From a connection to an open session: the handshake, its deadline, and the limit on concurrent handshakes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bellwire_core::end::EndReason;
use bellwire_core::wire::{Refuse, RefuseCode};
use bellwire_core::{Instant, Spin, SpinPolicy};

use super::metrics;
use super::{Reactor, Slot, SlotState, watch};
use crate::ServerStats;
use crate::server::handler::Handler;
use crate::server::handshake::{PendingHandshake, Progress};
use crate::server::session::ServerSession;
use crate::server::source::{SlotKey, Source};
use crate::server::watch::Watch;
use crate::transport::poll::{Events, Trigger};
use crate::transport::{Os, prelude::*};

/// The most clients in the handshake at once.
const MAX_HANDSHAKES: usize = 256;
/// Accepting resumes when so few are left.
const FEW_HANDSHAKES: usize = 192;
/// How long a connection keeps its place when the handshake is full.
const GRACE: Duration = Duration::from_millis(100);
/// The same for one that has not sent HELLO, of a client with a quarter of all places or more. Clients send HELLO before they are
/// accepted: behind silent connections a newcomer would wait for all that fit the backlog, at 2 560 a second.
const GRACE_OF_SILENT: Duration = Duration::from_millis(10);

/// Connections in the handshake, oldest first. All have the same time limit, so the first deadline is that of the
/// first.
pub(super) struct Handshakes {
    /// Includes those that have meanwhile completed the handshake or been rejected.
    order: VecDeque<(Instant, SlotKey)>,
    /// Those of users that open sessions too fast, by when their handshakes begin and by session number. Until then,
    /// their channels are not polled.
    delayed: BTreeMap<(Instant, u64), SlotKey>,
    count: usize,
    /// Whether a client was sent WELCOME since this thread last slept: it is awake, and maps what it got.
    is_expecting: bool,
    spin: Spin,
}

impl Handshakes {
    pub(super) fn new(spin: SpinPolicy) -> Self {
        // A client takes longer for its part of the handshake than a server for most calls.
        let spin = Spin::new(SpinPolicy { pays_within: spin.max, ..spin });
        let (order, delayed) = (VecDeque::new(), BTreeMap::new());
        Self { order, delayed, count: 0, is_expecting: false, spin }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }
}

impl Reactor {
    pub(super) fn insert_slot(&mut self, listener: usize, handshake: PendingHandshake) {
        let caller = handshake.caller();
        self.reap_for(caller.user);
        let client = self.clients.join(&caller);
        let (session, begins, now) = (handshake.session, handshake.begins, Os::now());
        let entry = self.slots.vacant_entry();
        let key = SlotKey::new(entry.key(), session);
        entry.insert(Slot {
            key,
            listener,
            client,
            is_ready: false,
            is_muted: false,
            retry_after: Duration::ZERO,
            is_retried: false,
            is_watched_for_stall: false,
            state: SlotState::Handshake(Box::new(handshake)),
        });
        self.handshakes.order.push_back((now, key));
        self.handshakes.count += 1;
        if begins > now {
            self.handshakes.delayed.insert((begins, session), key);
        } else if self.poll_handshake(key) {
            self.on_socket(key);
        }
    }

    /// Polls the channel of a connection in the handshake from now on; returns false if that is impossible.
    fn poll_handshake(&mut self, key: SlotKey) -> bool {
        let Some(Slot { state: SlotState::Handshake(handshake), .. }) = self.slots.get(key.slot)
        else {
            return false;
        };
        let (channel, source) = (handshake.arrived(), Source::Socket(key));
        let is_added = watch(&mut self.poller, channel, source, Trigger::Level).is_ok();
        if !is_added {
            let reason = "the provider cannot watch another client";
            self.reject_handshake(key, RefuseCode::Resources, reason);
        }
        is_added
    }

    /// Begins the delayed handshakes that are due, each in its client's share.
    pub(super) fn begin_delayed(&mut self, now: Instant) {
        while let Some(first) = self.handshakes.delayed.first_entry() {
            if first.key().0 > now {
                break;
            }
            let key = first.remove();
            if self.is_in_handshake(key) && self.poll_handshake(key) {
                self.mark_ready(key);
            }
        }
    }

    /// Returns the connection that has been in the handshake for longest, and since when.
    fn longest_arriving(&mut self) -> Option<(Instant, SlotKey)> {
        while let Some(&(since, key)) = self.handshakes.order.front() {
            if self.is_in_handshake(key) {
                return Some((since, key));
            }
            self.handshakes.order.pop_front();
        }
        None
    }

    /// Returns the oldest connection in the handshake of the client that has the most of them, and until when it keeps its
    /// place: so a client with many connections loses a place, not one with a single connection.
    fn oldest_of_largest_client(&mut self) -> Option<(Instant, SlotKey)> {
        let mut counts = HashMap::<usize, (usize, Instant, SlotKey)>::new();
        for &(since, key) in &self.handshakes.order {
            if self.is_in_handshake(key) {
                if let Some(entry) = self.slots.get(key.slot) {
                    counts.entry(entry.client).or_insert((0, since, key)).0 += 1;
                }
            }
        }
        let most = counts.into_values().max_by_key(|(count, ..)| *count);
        let (count, since, key) = most?;
        let slot = self.slots.get(key.slot)?;
        let is_silent = matches!(&slot.state, SlotState::Handshake(open) if open.is_silent());
        let many = count >= MAX_HANDSHAKES / 4;
        let grace = if many && is_silent { GRACE_OF_SILENT } else { GRACE };
        Some((since.after(grace), key))
    }

    fn is_in_handshake(&self, key: SlotKey) -> bool {
        let entry = self.slots.get(key.slot);
        self.is_current(key) && matches!(entry, Some(Slot { state: SlotState::Handshake(_), .. }))
    }

    /// Returns when connections can be accepted again, if too many are in the handshake now. Newcomers wait at the
    /// endpoint until one completes or loses its place, so many silent clients keep nobody out.
    pub(super) fn handshakes_full_until(&mut self, now: Instant) -> Option<Instant> {
        if self.handshakes.count < MAX_HANDSHAKES {
            return None;
        }
        let (until, key) = self.oldest_of_largest_client()?;
        if now < until {
            return Some(until);
        }
        let reason = "too many clients are in the handshake: try again";
        self.reject_handshake(key, RefuseCode::Quota, reason);
        None
    }

    fn reject_handshake(&mut self, key: SlotKey, code: RefuseCode, reason: &str) {
        let Some(entry) = self.slots.get_mut(key.slot) else { return };
        let state = std::mem::replace(&mut entry.state, SlotState::Gone);
        if let SlotState::Handshake(handshake) = state {
            self.reject_at(key.slot, *handshake.refuse(&Refuse::new(code, reason)));
        }
        self.handshake_ended();
    }

    pub(super) fn handshake_ended(&mut self) {
        self.handshakes.count -= 1;
        if self.handshakes.count == FEW_HANDSHAKES {
            self.resume_accepting();
        }
    }

    /// Polls the descriptors instead of sleeping while a client that was just welcomed makes its part of the handshake. Returns
    /// whether anything came.
    pub(super) fn spin_for_handshake(&mut self, events: &mut Events) -> bool {
        if !std::mem::take(&mut self.handshakes.is_expecting) {
            return false;
        }
        let Self { handshakes, poller, .. } = self;
        let poll = || {
            // An interrupted wait is one without events.
            let _ = poller.wait(events, Some(Duration::ZERO));
            Ok::<_, Infallible>(events.iter().next().is_some())
        };
        let Ok(has_come) = handshakes.spin.poll(Os::now, std::thread::yield_now, poll);
        if has_come {
            self.dispatch(events);
            self.expire(Os::now());
        }
        has_come
    }

    pub(super) fn advance_handshake(&mut self, slot: usize) {
        let Some(entry) = self.slots.get_mut(slot) else { return };
        let at = entry.listener;
        let Some(listener) = self.listeners.get(at) else { return };
        let state = std::mem::replace(&mut entry.state, SlotState::Gone);
        let SlotState::Handshake(handshake) = state else { return };
        let board = listener.store.passed_board().as_object();
        match handshake.advance(&self.config, board, &self.peers) {
            Progress::Waiting(handshake) => {
                self.handshakes.is_expecting |= !handshake.is_silent();
                entry.state = SlotState::Handshake(handshake);
            }
            Progress::Admitted(mut admitted) => {
                let process = admitted.process.take();
                let stats_row = metrics::stats_row(&self.listeners);
                let row = if admitted.is_stats_client { stats_row } else { at };
                admitted.caller.watch = Watch::Server(Arc::clone(&self.shared.stop));
                let client = entry.client;
                let in_flight = match listener.handler {
                    // Beside the request for notification of news, which stays for as long as there are none.
                    Handler::Snapshot(_) => self.config.max_in_flight.max(1).saturating_add(1),
                    _ => self.config.max_in_flight,
                };
                let session = ServerSession::new(*admitted, &self.config, in_flight, row, client);
                entry.state = SlotState::Open(Box::new(session));
                self.handshake_ended();
                self.open(slot);
                self.watch_process(slot, process);
                self.check_unwatched();
            }
            #[cfg(feature = "netipc")]
            Progress::Netipc(netipc) => {
                let (handshake, hello) = *netipc;
                self.welcome_netipc(slot, handshake, &hello);
            }
            Progress::Failed(failed) => {
                self.reject_at(slot, *failed);
                self.handshake_ended();
            }
        }
    }

    /// Watches a new session's doorbell and its client's process, and gives it its first turn.
    fn open(&mut self, slot: usize) {
        let poller = &mut self.poller;
        let Some(entry) = self.slots.get_mut(slot) else { return };
        let key = entry.key;
        let listener = self.listeners.get(entry.listener);
        let Some(session) = entry.session() else { return };
        let link = session.link();
        if let Some(listener) = listener {
            listener.store.watchers().join(link);
        }
        let watched = link.event().map_or(Ok(()), |event| {
            watch(poller, event.as_object(), Source::Doorbell(key), Trigger::Edge)
        });
        let watched = watched.and_then(|()| match link.process() {
            Some(process) => {
                watch(poller, process.as_object(), Source::Process(key), Trigger::Level)
            }
            None => Ok(()),
        });
        let (row, client) = (session.row, session.client);
        let delta = ServerStats { admitted: 1, ..session.gauges() };
        self.count(row, &delta);
        self.clients.activate(client, slot);
        if watched.is_err() {
            self.end(slot, EndReason::Gone);
        }
    }

    pub(super) fn handshake_deadline(&mut self) -> Option<Instant> {
        let timeout = self.config.handshake_timeout;
        let begins = self.handshakes.delayed.first_key_value().map(|(&(begins, _), _)| begins);
        let expires = self.longest_arriving().map(|(since, _)| since.after(timeout));
        begins.into_iter().chain(expires).min()
    }

    pub(super) fn expire_handshakes(&mut self, now: Instant) {
        let timeout = self.config.handshake_timeout;
        while let Some((since, key)) = self.longest_arriving() {
            if now < since.after(timeout) {
                break;
            }
            let reason = "the handshake was not finished in time";
            self.reject_handshake(key, RefuseCode::Protocol, reason);
        }
    }
}
