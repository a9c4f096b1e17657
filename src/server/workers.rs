use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use bellwire_core::wire::Status;

use super::handler::{Answer, Call, Caller, Request};
use crate::Payload;
use crate::transport::doorbell::Event;
use crate::transport::memory::Charge;

/// A request for a worker.
pub(super) struct Job {
    pub(super) slot: usize,
    pub(super) id: u64,
    pub(super) caller: Caller,
    pub(super) handler: Arc<dyn Call>,
    pub(super) request: Parcel,
    /// Of the request, on its user's quota; of the answer, when there is one.
    pub(super) charge: Charge,
}

/// A request that was taken away from its session's buffers.
pub(super) enum Parcel {
    Bytes(Vec<u8>),
    /// A batch, and the longest answer to it in bytes.
    Batch(Vec<u8>, usize),
    Mapped(Payload),
}

/// An answer from a worker.
pub(super) struct Done {
    pub(super) slot: usize,
    pub(super) session: u64,
    pub(super) id: u64,
    pub(super) status: Status,
    pub(super) answer: Answer,
    /// Until the answer is in the lane, or kept.
    pub(super) _charge: Charge,
}

/// A fixed number of threads that run handlers.
pub(super) struct Workers {
    desk: Arc<Desk>,
    threads: Vec<JoinHandle<()>>,
}

struct Desk {
    jobs: Mutex<Jobs>,
    /// Signalled when there is a job, or no more will come.
    more: Condvar,
    done: Mutex<Vec<Done>>,
    /// Rung after an answer was put down: wakes the reactor.
    bell: Arc<Event>,
}

/// A queue for each session, served in turns: a session with many requests waits for its own.
#[derive(Default)]
struct Jobs {
    /// By slot.
    queues: Vec<Queue>,
    /// Slots whose queues have something, the next one first. One whose jobs were withdrawn may be among them.
    turns: VecDeque<usize>,
    closed: bool,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Whether the slot is among the turns.
    has_turn: bool,
}

impl Jobs {
    fn push(&mut self, job: Job) {
        let slot = job.slot;
        if slot >= self.queues.len() {
            self.queues.resize_with(slot + 1, Queue::default);
        }
        if let Some(queue) = self.queues.get_mut(slot) {
            queue.jobs.push_back(job);
            if !std::mem::replace(&mut queue.has_turn, true) {
                self.turns.push_back(slot);
            }
        }
    }

    fn pop(&mut self) -> Option<Job> {
        loop {
            let slot = self.turns.pop_front()?;
            let Some(queue) = self.queues.get_mut(slot) else { continue };
            let job = queue.jobs.pop_front();
            queue.has_turn = !queue.jobs.is_empty();
            if queue.has_turn {
                self.turns.push_back(slot);
            }
            if job.is_some() {
                return job;
            }
        }
    }
}

impl Workers {
    /// Starts `count` threads, whose answers ring `bell`.
    pub(super) fn start(count: usize, bell: Arc<Event>) -> std::io::Result<Self> {
        let jobs = Mutex::new(Jobs::default());
        let desk = Arc::new(Desk { jobs, more: Condvar::new(), done: Mutex::default(), bell });
        let mut workers = Self { desk, threads: Vec::with_capacity(count) };
        for number in 0..count {
            let desk = Arc::clone(&workers.desk);
            let thread = thread::Builder::new().name(format!("bellwire-work-{number}"));
            workers.threads.push(thread.spawn(move || desk.work())?);
        }
        Ok(workers)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    pub(super) fn submit(&self, job: Job) {
        lock(&self.desk.jobs).push(job);
        self.desk.more.notify_one();
    }

    /// Takes a request back that no worker has begun.
    pub(super) fn withdraw(&self, slot: usize, id: u64) -> bool {
        let mut jobs = lock(&self.desk.jobs);
        let Some(queue) = jobs.queues.get_mut(slot) else { return false };
        let at = queue.jobs.iter().position(|job| job.id == id);
        at.and_then(|at| queue.jobs.remove(at)).is_some()
    }

    /// Drops all that waits of a session: it is over.
    pub(super) fn withdraw_all(&self, slot: usize) {
        let queued =
            lock(&self.desk.jobs).queues.get_mut(slot).map(|queue| std::mem::take(&mut queue.jobs));
        // Without the lock: there may be much of it.
        drop(queued);
    }

    /// Whether there are answers.
    pub(super) fn has_done(&self) -> bool {
        !self.is_empty() && !lock(&self.desk.done).is_empty()
    }

    /// Moves the answers that are there into `into`.
    pub(super) fn collect(&self, into: &mut Vec<Done>) {
        into.append(&mut lock(&self.desk.done));
    }
}

impl Drop for Workers {
    /// Waits for the handlers that run now; what is queued is not begun.
    fn drop(&mut self) {
        {
            let mut jobs = lock(&self.desk.jobs);
            jobs.closed = true;
            jobs.queues.clear();
        }
        self.desk.more.notify_all();
        for thread in self.threads.drain(..) {
            // A handler's panic is caught where it runs.
            let _ = thread.join();
        }
    }
}

impl Desk {
    fn work(&self) {
        while let Some(job) = self.next() {
            let mut answer = Answer::default();
            let status = match job.request {
                Parcel::Bytes(mut bytes) => {
                    let len = bytes.len();
                    job.handler.call(&job.caller, Request::Buffer(&mut bytes, len), &mut answer)
                }
                Parcel::Batch(bytes, limit) => {
                    job.handler.call_batch(&job.caller, &bytes, limit, &mut answer)
                }
                Parcel::Mapped(payload) => {
                    job.handler.call(&job.caller, Request::Mapped(payload), &mut answer)
                }
            };
            let (slot, session, id, mut charge) =
                (job.slot, job.caller.session, job.id, job.charge);
            let is_over = charge.resize(answer.len() as u64).is_err();
            let status = if is_over && status == Status::Ok { Status::Short } else { status };
            if is_over {
                answer.clear();
            }
            lock(&self.done).push(Done { slot, session, id, status, answer, _charge: charge });
            self.bell.ring();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut jobs = lock(&self.jobs);
        loop {
            if let Some(job) = jobs.pop() {
                return Some(job);
            }
            if jobs.closed {
                return None;
            }
            jobs = self.more.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// No code that holds these locks can panic halfway through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
