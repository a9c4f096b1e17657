//! Requests whose handlers are futures, each a task of a runtime.
#![cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "without it no handler is a future"))]

use std::sync::{Arc, Mutex};
use std::thread;

use bellwire_core::sync::{AtomicBool, Ordering};
use bellwire_core::wire::{ONE_WAY, Status};
use bellwire_shm::lock;
use hashbrown::HashMap;

use super::handler::{Answer, Caller};
use super::outbox::{FinishedJob, Outbox};
use super::workers::{Job, JobPayload};
use crate::transport::memory::Charge;

/// A handler that returns a future.
pub(super) trait Task: Send + Sync {
    /// Starts the future for a request, which ends with [`Running::finish`]. Returns what aborts it.
    fn spawn(self: Arc<Self>, caller: Caller, request: JobPayload, running: Running) -> Abort;
}

/// Drops a task's future, unless it has ended.
pub(super) type Abort = Box<dyn FnOnce() + Send>;

/// The requests that wait for their futures.
pub(super) struct Tasks {
    shared: Arc<Shared>,
    /// Whether a service of this server has such a handler.
    is_used: bool,
    /// Tasks of all sessions that may run.
    most: usize,
}

struct Shared {
    running: Mutex<Slots>,
    outbox: Arc<Outbox>,
}

#[derive(Default)]
struct Slots {
    /// By slot of the session, then by the request's id, or by a number of its own for one that is not answered.
    slots: Vec<HashMap<Key, Entry, foldhash::fast::RandomState>>,
    count: usize,
    next: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Request(u64),
    OneWay(u64),
}

struct Entry {
    /// Tells tasks of successive sessions in one slot apart.
    number: u64,
    is_claimed: Arc<AtomicBool>,
    /// `None` until the task was spawned.
    abort: Option<Abort>,
}

/// A request whose future runs. Dropped before it has finished, because the future panicked or its runtime ended, it answers
/// so.
pub(super) struct Running {
    shared: Arc<Shared>,
    slot: usize,
    key: Key,
    number: u64,
    session: u64,
    id: u64,
    /// Set by its first poll or by its withdrawal, whichever comes first.
    is_claimed: Arc<AtomicBool>,
    charge: Option<Charge>,
}

/// What a cancelled request is answered with.
pub(super) enum Withdrawn {
    /// Its handler has not begun.
    Unbegun,
    /// Its future was dropped on the way.
    Begun,
}

impl Tasks {
    pub(super) fn new(is_used: bool, most: usize, outbox: Arc<Outbox>) -> Self {
        let shared = Arc::new(Shared { running: Mutex::default(), outbox });
        Self { shared, is_used, most }
    }

    pub(super) fn is_used(&self) -> bool {
        self.is_used
    }

    /// Returns whether a session may start another task. Every session may have at least one.
    pub(super) fn has_room(&self, slot: usize) -> bool {
        let running = lock(&self.shared.running);
        running.count < self.most || running.slots.get(slot).is_none_or(HashMap::is_empty)
    }

    /// Starts the handler's future for a request.
    pub(super) fn start(&self, task: Arc<dyn Task>, job: Job) {
        let Job { slot, id, caller, request, charge, .. } = job;
        let (session, is_claimed) = (caller.session, Arc::new(AtomicBool::new(false)));
        self.shared.outbox.count(1, 0);
        let mut running = lock(&self.shared.running);
        let number = running.next;
        running.next += 1;
        let key = if id == ONE_WAY { Key::OneWay(number) } else { Key::Request(id) };
        running.add(slot, key, Entry { number, is_claimed: Arc::clone(&is_claimed), abort: None });
        drop(running);
        let (shared, charge) = (Arc::clone(&self.shared), Some(charge));
        let started = Running { shared, slot, key, number, session, id, is_claimed, charge };
        let abort = task.spawn(caller, request, started);
        // Unless it has ended already.
        if let Some(entry) = lock(&self.shared.running).get(slot, key, number) {
            entry.abort = Some(abort);
        }
    }

    /// Withdraws a request, unless it has ended. If its future has begun, it is dropped where it waits.
    pub(super) fn withdraw(&self, slot: usize, id: u64) -> Option<Withdrawn> {
        if !self.is_used {
            return None;
        }
        let entry = lock(&self.shared.running).remove(slot, Key::Request(id), None)?;
        self.shared.outbox.count(0, 1);
        Some(entry.withdraw())
    }

    /// Drops the futures of a session that is over.
    pub(super) fn withdraw_all(&self, slot: usize) {
        if !self.is_used {
            return;
        }
        let mut running = lock(&self.shared.running);
        let Some(entries) = running.slots.get_mut(slot).map(std::mem::take) else { return };
        running.count -= entries.len();
        self.shared.outbox.count(0, entries.len());
        drop(running);
        for entry in entries.into_values() {
            entry.withdraw();
        }
    }

    /// Drops all futures: the server stops.
    pub(super) fn close(&self) {
        let slots = std::mem::take(&mut lock(&self.shared.running).slots);
        for (_, entry) in slots.into_iter().flatten() {
            entry.withdraw();
        }
    }
}

impl Slots {
    fn add(&mut self, slot: usize, key: Key, entry: Entry) {
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, HashMap::default);
        }
        if let Some(entries) = self.slots.get_mut(slot) {
            // A client that uses an id again has violated the protocol before.
            self.count += usize::from(entries.insert(key, entry).is_none());
        }
    }

    fn get(&mut self, slot: usize, key: Key, number: u64) -> Option<&mut Entry> {
        self.slots.get_mut(slot)?.get_mut(&key).filter(|entry| entry.number == number)
    }

    fn remove(&mut self, slot: usize, key: Key, number: Option<u64>) -> Option<Entry> {
        let entries = self.slots.get_mut(slot)?;
        let is_it = |entry: &Entry| number.is_none_or(|number| number == entry.number);
        entries.get(&key).filter(|entry| is_it(entry))?;
        self.count -= 1;
        entries.remove(&key)
    }
}

impl Entry {
    fn withdraw(self) -> Withdrawn {
        // Relaxed: nothing else is read or written by its outcome.
        let has_begun = self.is_claimed.swap(true, Ordering::Relaxed);
        if let Some(abort) = self.abort {
            abort();
        }
        if has_begun { Withdrawn::Begun } else { Withdrawn::Unbegun }
    }
}

impl Running {
    /// Returns whether the handler may begin: the request was not withdrawn.
    pub(super) fn begin(&self) -> bool {
        // Relaxed: as in `withdraw`.
        !self.is_claimed.swap(true, Ordering::Relaxed)
    }

    /// Queues the answer and rings the reactor, unless the request was withdrawn.
    pub(super) fn finish(mut self, status: Status, answer: Answer) {
        self.answer(status, answer);
    }

    fn answer(&mut self, status: Status, answer: Answer) {
        let Some(charge) = self.charge.take() else { return };
        let removed = lock(&self.shared.running).remove(self.slot, self.key, Some(self.number));
        if removed.is_none() {
            return;
        }
        let place = (self.slot, self.session, self.id);
        // However much is queued, a thread of the runtime does not wait.
        let _ = self.shared.outbox.add(FinishedJob::new(place, status, answer, charge));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut answer = Answer::default();
        let status = if !self.is_claimed.load(Ordering::Relaxed) {
            Status::Stopping
        } else if thread::panicking() {
            Status::Panicked
        } else {
            // Its runtime has ended: the handler may have done something.
            answer.explain("the runtime of the handler ended while it waited");
            Status::Failed
        };
        self.answer(status, answer);
    }
}
