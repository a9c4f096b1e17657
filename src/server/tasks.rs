//! Requests whose handlers are futures, each a task of a runtime.
#![cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "without it no handler is a future"))]

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::thread;

use bellwire_core::sync::{AtomicBool, Ordering};
use bellwire_core::wire::Status;
use bellwire_shm::lock;

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

/// Starts futures for requests, and withdraws them.
pub(super) struct Tasks {
    shared: Arc<Shared>,
    /// Whether a service of this server has such a handler.
    is_used: bool,
    /// Tasks of all sessions that may run.
    most: usize,
}

struct Shared {
    waiting: Mutex<Waiting>,
    outbox: Arc<Outbox>,
}

/// The requests that wait for their futures.
#[derive(Default)]
struct Waiting {
    all: BTreeMap<Key, Entry>,
    next: u64,
}

/// The slot of its session, the request's id, and a number of the task's own, which tells one-way requests apart, and tasks of
/// successive sessions in one slot.
type Key = (usize, u64, u64);

/// Returns the range of the keys of a slot.
fn of_slot(slot: usize) -> RangeInclusive<Key> {
    (slot, 0, 0)..=(slot, u64::MAX, u64::MAX)
}

struct Entry {
    is_claimed: Arc<AtomicBool>,
    /// `None` until the task was spawned.
    abort: Option<Abort>,
}

/// A request whose future runs. Dropped before it has finished, because the future panicked or its runtime ended, it answers
/// so.
pub(super) struct Running {
    shared: Arc<Shared>,
    key: Key,
    session: u64,
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
        let shared = Arc::new(Shared { waiting: Mutex::default(), outbox });
        Self { shared, is_used, most }
    }

    pub(super) fn is_used(&self) -> bool {
        self.is_used
    }

    /// Returns whether a session may start another task. Every session may have at least one.
    pub(super) fn has_room(&self, slot: usize) -> bool {
        let waiting = lock(&self.shared.waiting);
        waiting.all.len() < self.most || waiting.all.range(of_slot(slot)).next().is_none()
    }

    /// Starts the handler's future for a request.
    pub(super) fn start(&self, task: Arc<dyn Task>, job: Job) {
        let Job { slot, id, caller, request, charge, .. } = job;
        let (session, is_claimed) = (caller.session, Arc::new(AtomicBool::new(false)));
        self.shared.outbox.count(1, 0);
        let mut waiting = lock(&self.shared.waiting);
        let key = (slot, id, waiting.next);
        waiting.next += 1;
        waiting.all.insert(key, Entry { is_claimed: Arc::clone(&is_claimed), abort: None });
        drop(waiting);
        let (shared, charge) = (Arc::clone(&self.shared), Some(charge));
        let abort =
            task.spawn(caller, request, Running { shared, key, session, is_claimed, charge });
        // Unless it has ended already.
        if let Some(entry) = lock(&self.shared.waiting).all.get_mut(&key) {
            entry.abort = Some(abort);
        }
    }

    /// Withdraws a request, unless it has ended. If its future has begun, it is dropped where it waits.
    pub(super) fn withdraw(&self, slot: usize, id: u64) -> Option<Withdrawn> {
        if !self.is_used {
            return None;
        }
        let mut waiting = lock(&self.shared.waiting);
        let key = *waiting.all.range((slot, id, 0)..=(slot, id, u64::MAX)).next()?.0;
        let entry = waiting.all.remove(&key)?;
        drop(waiting);
        self.shared.outbox.count(0, 1);
        Some(entry.withdraw())
    }

    /// Drops the futures of a session that is over.
    pub(super) fn withdraw_all(&self, slot: usize) {
        if !self.is_used {
            return;
        }
        let mut waiting = lock(&self.shared.waiting);
        let keys: Vec<Key> = waiting.all.range(of_slot(slot)).map(|(key, _)| *key).collect();
        let entries: Vec<_> = keys.iter().filter_map(|key| waiting.all.remove(key)).collect();
        self.shared.outbox.count(0, entries.len());
        drop(waiting);
        for entry in entries {
            entry.withdraw();
        }
    }

    /// Drops all futures: the server stops.
    pub(super) fn close(&self) {
        let all = std::mem::take(&mut lock(&self.shared.waiting).all);
        for entry in all.into_values() {
            entry.withdraw();
        }
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
        let removed = lock(&self.shared.waiting).all.remove(&self.key);
        if removed.is_none() {
            return;
        }
        let (slot, id, _) = self.key;
        let place = (slot, self.session, id);
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
