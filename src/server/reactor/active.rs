//! Decides which sessions are polled, for how long, and when their clients have to ring instead.

use std::time::Duration;

use bellwire_core::{Instant, SpinCounter, nanos};

use slab::Slab;

use super::clients::Clients;
use super::{Reactor, Slot};
use crate::server::outbox::Outbox;
use crate::server::session::Schedule;
use crate::server::source::SlotKey;
use crate::transport::{Os, prelude::*};

/// Rounds without work after which a session is armed while others are busy: for a single session, and for one among
/// many, all of which a round polls.
const ROUNDS_BEFORE_ARMED: u32 = 4096;
const LEAST_BEFORE_ARMED: u32 = 256;
/// How soon a paused session is retried.
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(50);

impl Reactor {
    /// Polls a session from now on.
    pub(super) fn activate(&mut self, slot: usize) {
        let Some(session) = self.session(slot) else { return };
        if session.schedule == Schedule::Armed {
            session.schedule = Schedule::Active { idle_turns: 0 };
            session.end().disarm();
            let client = session.client;
            self.clients.activate(client, slot);
        }
    }

    /// Returns whether a session was without work long enough and could be armed: then it is no longer active.
    pub(super) fn arm_if_idle(&mut self, slot: usize) -> bool {
        let active = u32::try_from(self.clients.active()).unwrap_or(u32::MAX);
        let rounds = (ROUNDS_BEFORE_ARMED / active.max(1)).max(LEAST_BEFORE_ARMED);
        let Some(session) = self.session(slot) else { return true };
        let is_idle =
            matches!(session.schedule, Schedule::Active { idle_turns } if idle_turns >= rounds);
        if !is_idle || !matches!(session.arm(), Ok(false)) {
            return false;
        }
        self.watch_for_stall(slot, Os::now());
        true
    }

    /// Stops polling a session.
    pub(super) fn deactivate(&mut self, slot: usize) {
        self.flush_stats(slot);
        if let Some(session) = self.session(slot) {
            session.schedule = Schedule::Armed;
            let client = session.client;
            self.clients.deactivate(client, slot);
        }
    }

    /// Polls the active sessions for a bounded time. Returns true when there is work.
    pub(super) fn spin_for_work(&mut self) -> bool {
        if self.clients.active() == 0 {
            return false;
        }
        let Self { clients, slots, outbox, spins: [for_clients, for_workers], .. } = self;
        // Only this thread submits jobs.
        let outbox = outbox.is_busy().then_some(&**outbox);
        let spin = if outbox.is_some() { for_workers } else { for_clients };
        spin.exchanged(std::mem::take(&mut self.exchanged));
        let budget = spin.budget();
        if budget == 0 {
            return false;
        }
        let sole = clients.sole_active();
        let mut counter = SpinCounter::new(budget);
        loop {
            if has_work(clients, sole, slots, outbox) {
                spin.hit(counter.spun());
                if let Some(slot) = sole {
                    // It competes with no other, so that its turn need not wait for the next round.
                    let work = self.turn_of(slot);
                    self.poll_budget.count(work, &self.clients);
                }
                return true;
            }
            std::hint::spin_loop();
            if !counter.count() && !spin.yields_first() {
                continue;
            }
            let has_published =
                self.listeners.iter().any(|listener| listener.store.has_published());
            if has_published || self.shared.stop.get().is_some() {
                self.wake_subscribers();
                return true;
            }
            let poll_after_yield = || {
                std::thread::yield_now();
                has_work(clients, sole, slots, outbox)
            };
            if !spin.tick(&mut counter, Os::now, poll_after_yield) {
                return false;
            }
        }
    }

    /// Gives a turn to sessions whose clients may await the new snapshot: they did not ring for it.
    pub(super) fn wake_subscribers(&mut self) {
        for at in 0..self.listeners.len() {
            if !self.listeners.get(at).is_some_and(|listener| listener.store.take_published()) {
                continue;
            }
            let readers = self.slots.iter_mut().filter(|(_, entry)| entry.listener == at);
            let moved = readers
                .filter_map(|(slot, entry)| entry.session()?.mark_published().then_some(slot));
            for slot in moved.collect::<Vec<_>>() {
                self.activate(slot);
            }
        }
    }

    /// Flushes counters and shrinks lanes that have been oversized for long, for some of the active sessions at a time.
    /// An idle session costs nothing, and keeps its lane until it is used or trimmed.
    pub(super) fn maintain_some(&mut self, now: Instant) {
        for key in self.clients.next_active_batch() {
            let Some(slot) = self.clients.active_at(key) else { return };
            self.flush_stats(slot);
            if let Some(session) = self.session(slot) {
                session.end_mut().shrink_idle(now);
            }
        }
    }

    /// Schedules the retry of a session that waits for descriptors or memory, or whose channel is not polled.
    pub(super) fn retry_later(&mut self, key: SlotKey, retry_after: Duration) {
        if let Some(entry) = self.slots.get_mut(key.slot) {
            if !std::mem::replace(&mut entry.is_retried, true) {
                let due = aligned(Os::now().after(retry_after), retry_after);
                self.retries.push((due, key));
                self.retry_at = Some(self.retry_at.map_or(due, |at| at.min(due)));
            }
        }
    }

    /// Has the sessions retried that are due, each in its client's share.
    pub(super) fn retry_due(&mut self, now: Instant) {
        let (due, rest): (Vec<_>, _) =
            std::mem::take(&mut self.retries).into_iter().partition(|&(due, _)| due <= now);
        let next = rest.iter().map(|&(due, _)| due).min();
        (self.retries, self.retry_at) = (rest, next.map(|due| due.max(now.after(RETRY_AFTER))));
        for (_, key) in due {
            if self.is_current(key) {
                if let Some(entry) = self.slots.get_mut(key.slot) {
                    entry.is_retried = false;
                    self.mark_ready(key);
                }
            }
        }
    }

    /// Arms all active sessions. Returns true when one of them has work already.
    pub(super) fn arm_all(&mut self, now: Instant) -> bool {
        let mut moved = false;
        for slot in self.clients.all_active() {
            if let Some(session) = self.slots.get_mut(slot).and_then(Slot::session) {
                // A session that is over is handled in its turn.
                moved |= session.arm().unwrap_or(true);
            }
        }
        if !moved {
            while let Some(slot) = self.clients.any_active() {
                self.deactivate(slot);
                self.watch_for_stall(slot, now);
            }
        }
        moved
    }
}

/// Returns whether an active session has moved, or a worker or a future has an answer. The sessions before it prefetch until
/// the next poll.
#[inline]
fn has_work(
    clients: &Clients,
    sole: Option<usize>,
    slots: &mut Slab<Slot>,
    outbox: Option<&Outbox>,
) -> bool {
    let mut has_moved = |&slot: &usize| {
        let Some(session) = slots.get_mut(slot).and_then(Slot::session) else { return false };
        if !session.holds_off() && session.has_moved() {
            return true;
        }
        session.end_mut().prefetch();
        false
    };
    let has_moved = match &sole {
        Some(slot) => has_moved(slot),
        None => clients.by_client().flatten().any(has_moved),
    };
    has_moved || outbox.is_some_and(Outbox::has_done)
}

/// Returns the last multiple of `interval` up to `time`, so that sessions are retried together: a call that comes each
/// millisecond meets one long retry each interval, not one of many short ones.
fn aligned(time: Instant, interval: Duration) -> Instant {
    let interval = nanos(interval);
    Instant::from_nanos(time.as_nanos() / interval * interval)
}
