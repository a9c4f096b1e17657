//! Answers of workers and of futures, on their way to the reactor.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bellwire_core::sync::{AtomicBool, AtomicUsize, Ordering};
use bellwire_core::wire::Status;
use bellwire_shm::lock;

use super::handler::Answer;
use crate::transport::doorbell::WakeEvent;
use crate::transport::memory::Charge;
use crate::transport::prelude::*;

/// Bytes of answers that may wait for the reactor before workers block.
const MAX_BYTES: usize = 16 << 20;

/// An answer from a worker or a future.
pub(super) struct FinishedJob {
    pub(super) slot: usize,
    pub(super) session: u64,
    pub(super) id: u64,
    pub(super) status: Status,
    pub(super) answer: Answer,
    /// Held until the answer is written to the lane, or kept.
    pub(super) _charge: Charge,
}

/// The answers that the reactor has not collected yet.
pub(super) struct Outbox {
    finished: Mutex<Finished>,
    /// Whether there are answers; changed with the lock held.
    has_done: AtomicBool,
    /// Requests whose answers the reactor has not collected. Only the reactor's thread changes it.
    uncollected: AtomicUsize,
    /// Signalled when answers were collected, or never will be.
    collected: Condvar,
    /// Rung after an answer was queued, if the reactor sleeps.
    bell: Arc<WakeEvent>,
}

#[derive(Default)]
struct Finished {
    all: Vec<FinishedJob>,
    bytes: usize,
    /// Whether the reactor is to be rung for the next answer.
    rings: bool,
    closed: bool,
}

impl FinishedJob {
    /// Creates the answer to a request in a slot, of a session, with an id. Above its user's quota it is left out.
    pub(super) fn new(
        (slot, session, id): (usize, u64, u64),
        mut status: Status,
        mut answer: Answer,
        mut charge: Charge,
    ) -> Self {
        if charge.resize(answer.len() as u64).is_err() {
            answer = Answer::default();
            status = if status == Status::Ok { Status::Short } else { status };
        }
        Self { slot, session, id, status, answer, _charge: charge }
    }
}

impl Outbox {
    pub(super) fn new(bell: Arc<WakeEvent>) -> Self {
        Self {
            finished: Mutex::default(),
            has_done: AtomicBool::new(false),
            uncollected: AtomicUsize::new(0),
            collected: Condvar::new(),
            bell,
        }
    }

    pub(super) fn bell(&self) -> &Arc<WakeEvent> {
        &self.bell
    }

    /// Queues an answer. Returns whether there are so many bytes of them that a worker is to [wait](Outbox::wait_for_room).
    pub(super) fn add(&self, answer: FinishedJob) -> bool {
        let mut finished = lock(&self.finished);
        finished.bytes = finished.bytes.saturating_add(answer.answer.len());
        finished.all.push(answer);
        self.has_done.store(true, Ordering::Relaxed);
        let (is_full, rings) = (finished.bytes >= MAX_BYTES, std::mem::take(&mut finished.rings));
        drop(finished);
        if rings {
            self.bell.ring();
        }
        is_full
    }

    /// Blocks while too many bytes of answers are queued.
    pub(super) fn wait_for_room(&self) {
        let mut finished = lock(&self.finished);
        while finished.bytes >= MAX_BYTES && !finished.closed {
            finished = self.collected.wait(finished).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// No answer is collected any more.
    pub(super) fn close(&self) {
        lock(&self.finished).closed = true;
        self.collected.notify_all();
    }

    /// Counts requests that will be answered, and those that no longer will be.
    pub(super) fn count(&self, more: usize, fewer: usize) {
        let before = self.uncollected.load(Ordering::Relaxed);
        self.uncollected.store(before.wrapping_add(more).wrapping_sub(fewer), Ordering::Relaxed);
    }

    /// Returns whether answers are to come.
    pub(super) fn is_busy(&self) -> bool {
        self.uncollected.load(Ordering::Relaxed) > 0
    }

    /// Returns whether there are answers: a hint, until [`Outbox::arm_bell`].
    #[inline]
    pub(super) fn has_done(&self) -> bool {
        self.has_done.load(Ordering::Relaxed)
    }

    /// Has the bell rung for the next answer, for a reactor that is about to sleep. Returns false when there is one already.
    pub(super) fn arm_bell(&self) -> bool {
        if !self.is_busy() {
            return true;
        }
        let mut finished = lock(&self.finished);
        finished.rings = finished.all.is_empty();
        finished.rings
    }

    /// Moves the answers to `into`.
    pub(super) fn collect(&self, into: &mut impl Extend<FinishedJob>) {
        let mut finished = lock(&self.finished);
        self.count(0, finished.all.len());
        into.extend(finished.all.drain(..));
        finished.rings = false;
        self.has_done.store(false, Ordering::Relaxed);
        if std::mem::take(&mut finished.bytes) >= MAX_BYTES {
            self.collected.notify_all();
        }
    }
}
