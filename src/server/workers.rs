use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use bellwire_core::sync::{AtomicBool, AtomicUsize, Ordering};
use bellwire_core::{Instant, Spin, SpinPolicy, nanos};
use bellwire_shm::lock;

use super::handler::{Answer, Call, Caller, Request, Room};
use super::outbox::{FinishedJob, Outbox};
use super::watch::Watch;
use super::{ServerConfig, own_thread};
use crate::Payload;
use crate::trace::handling::Queued;
use crate::transport::memory::Charge;
use crate::transport::{Os, prelude::*};

/// Bytes that a request waiting for a worker takes besides its payload.
pub(super) const JOB: usize = 256;

/// A request for a worker, or a future.
pub(super) struct Job {
    /// The index of its client: clients have workers in turn.
    pub(super) client: usize,
    pub(super) slot: usize,
    pub(super) id: u64,
    /// The id of the session's last request before it, or its own, if it is not one-way.
    pub(super) after: u64,
    pub(super) caller: Caller,
    pub(super) request: JobPayload,
    /// What to trace of a sampled request.
    pub(super) traced: Option<Box<Queued>>,
    /// The charge of the request to its user's quota, then of the answer.
    pub(super) charge: Charge,
}

/// A request that was taken out of its session's buffers.
pub(super) enum JobPayload {
    Bytes(Vec<u8>),
    /// A batch, and its limits.
    Batch(Vec<u8>, Room),
    Mapped(Payload),
}

/// A fixed number of threads that run handlers.
pub(super) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Jobs of all sessions that may be queued.
    most_queued: usize,
}

struct Shared {
    spin: SpinPolicy,
    /// Workers that may spin for a job at the same time: more would take the processors of those that work.
    most_spinning: usize,
    jobs: Mutex<Jobs>,
    /// The number of queued jobs; changed with the lock of the jobs held.
    queued: AtomicUsize,
    /// Changes with each reason to check for a job; spinning workers poll it. Changed with the lock of the jobs held.
    changes: AtomicUsize,
    /// Signalled when there is a job, or the pool closes.
    more: Condvar,
    outbox: Arc<Outbox>,
}

/// One queue per session. Clients take turns, and so do the sessions of each client: a client with many requests or
/// sessions delays only itself.
#[derive(Default)]
struct Jobs {
    /// Queues by slot.
    queues: Vec<Queue>,
    /// Clients with sessions in `sessions`, the next one first.
    turns: VecDeque<usize>,
    /// By client: slots with queued jobs, the next one first. May include slots whose jobs were withdrawn.
    sessions: Vec<VecDeque<usize>>,
    /// The job that each worker runs.
    running: Vec<Option<Running>>,
    /// Workers that poll `changes`, and workers that wait to be notified. Before one of the former waits, it looks for a job
    /// with the lock held.
    spinning: usize,
    waiting: usize,
    /// When a waiting worker was last notified.
    notified: Option<Instant>,
    closed: bool,
}

#[derive(Default)]
struct Queue {
    /// In order of [`Job::after`]: the ids of a session's requests increase.
    jobs: VecDeque<(Arc<dyn Call>, Job)>,
    /// The client of these jobs.
    client: usize,
    /// Whether the slot is among the turns.
    has_turn: bool,
    /// Whether its jobs are held back, because nobody takes the answers.
    is_held: bool,
}

/// A job that a worker has started.
struct Running {
    slot: usize,
    id: u64,
    is_abandoned: Arc<AtomicBool>,
}

impl Jobs {
    fn queue(&mut self, slot: usize) -> Option<&mut Queue> {
        if slot >= self.queues.len() {
            self.queues.resize_with(slot + 1, Queue::default);
        }
        self.queues.get_mut(slot)
    }

    fn push(&mut self, handler: Arc<dyn Call>, job: Job) {
        let slot = job.slot;
        if let Some(queue) = self.queue(slot) {
            queue.client = job.client;
            queue.jobs.push_back((handler, job));
        }
        self.give_turn(slot);
    }

    fn pop(&mut self) -> Option<(Arc<dyn Call>, Job)> {
        loop {
            let client = self.turns.pop_front()?;
            let Some(sessions) = self.sessions.get_mut(client) else { continue };
            let slot = sessions.pop_front();
            if !sessions.is_empty() {
                self.turns.push_back(client);
            }
            let Some(queue) = slot.and_then(|slot| self.queues.get_mut(slot)) else { continue };
            queue.has_turn = false;
            if queue.is_held {
                continue;
            }
            let job = queue.jobs.pop_front();
            slot.into_iter().for_each(|slot| self.give_turn(slot));
            if job.is_some() {
                return job;
            }
        }
    }

    /// Gives a slot with queued jobs its place among the turns.
    fn give_turn(&mut self, slot: usize) {
        let Some(queue) = self.queues.get_mut(slot) else { return };
        if queue.has_turn || queue.is_held || queue.jobs.is_empty() {
            return;
        }
        queue.has_turn = true;
        let client = queue.client;
        if client >= self.sessions.len() {
            self.sessions.resize_with(client + 1, VecDeque::new);
        }
        if let Some(sessions) = self.sessions.get_mut(client) {
            sessions.push_back(slot);
            if sessions.len() == 1 {
                self.turns.push_back(client);
            }
        }
    }

    /// Records the job that a worker runs.
    fn run(&mut self, worker: usize, running: Option<Running>) {
        if let Some(place) = self.running.get_mut(worker) {
            *place = running;
        }
    }

    /// Informs the handlers of these jobs that they are abandoned.
    fn abandon(&self, these: impl Fn(&Running) -> bool) {
        for running in self.running.iter().flatten().filter(|running| these(running)) {
            running.is_abandoned.store(true, Ordering::Relaxed);
        }
    }
}

impl Workers {
    /// Starts the threads.
    pub(super) fn start(config: &ServerConfig, outbox: Arc<Outbox>) -> std::io::Result<Self> {
        let count = config.workers;
        // It reads files of the control groups: not without workers.
        let processors = match count {
            0 => 1,
            _ => thread::available_parallelism().map_or(1, usize::from),
        };
        let running = (0..count).map(|_| None).collect();
        let shared = Arc::new(Shared {
            spin: config.spin,
            most_spinning: (processors / 2).max(1),
            jobs: Mutex::new(Jobs { running, ..Jobs::default() }),
            queued: AtomicUsize::new(0),
            changes: AtomicUsize::new(0),
            more: Condvar::new(),
            outbox,
        });
        let most_queued = config.max_queued;
        let mut workers = Self { shared, threads: Vec::with_capacity(count), most_queued };
        for number in 0..count {
            let shared = Arc::clone(&workers.shared);
            let thread = thread::Builder::new().name(format!("bellwire-work-{number}"));
            let work = move || {
                own_thread::mark_handler_thread(shared.outbox.bell());
                shared.work(number);
            };
            workers.threads.push(thread.spawn(work)?);
        }
        Ok(workers)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Returns whether a session may queue another job. Every session may have at least one. So a session over the
    /// limit continues when its own job is done: it needs no wake-up, and others cannot lock it out.
    pub(super) fn has_room(&self, slot: usize) -> bool {
        // Only the reactor queues jobs.
        self.shared.queued.load(Ordering::Relaxed) < self.most_queued
            || lock(&self.shared.jobs).queues.get(slot).is_none_or(|queue| queue.jobs.is_empty())
    }

    pub(super) fn submit(&self, handler: Arc<dyn Call>, job: Job) {
        self.shared.outbox.count(1, 0);
        let mut jobs = lock(&self.shared.jobs);
        jobs.push(handler, job);
        let queued = self.shared.queued.fetch_add(1, Ordering::Relaxed) + 1;
        self.shared.bump_changes();
        // Those that spin take a job each.
        let notifies = jobs.waiting > 0 && queued > jobs.spinning;
        if notifies {
            jobs.notified = Some(Os::now());
        }
        drop(jobs);
        if notifies {
            self.shared.more.notify_one();
        }
    }

    /// Withdraws a request that no worker has started. A handler that already runs sees that it is abandoned.
    pub(super) fn withdraw(&self, slot: usize, id: u64) -> bool {
        let mut jobs = lock(&self.shared.jobs);
        jobs.abandon(|running| running.slot == slot && running.id == id);
        let Some(queue) = jobs.queues.get_mut(slot) else { return false };
        // The request is the first of those with its number; one-way requests after it follow.
        let at = queue.jobs.partition_point(|(_, job)| job.after < id);
        let is_there = queue.jobs.get(at).is_some_and(|(_, job)| job.id == id);
        let withdrawn = is_there && queue.jobs.remove(at).is_some();
        self.shared.queued.fetch_sub(usize::from(withdrawn), Ordering::Relaxed);
        self.shared.outbox.count(0, usize::from(withdrawn));
        withdrawn
    }

    /// Drops all queued jobs of a session that is over, and informs its running handlers.
    pub(super) fn withdraw_all(&self, slot: usize) {
        let mut jobs = lock(&self.shared.jobs);
        jobs.abandon(|running| running.slot == slot);
        let queued = jobs.queues.get_mut(slot).map(|queue| {
            queue.is_held = false;
            std::mem::take(&mut queue.jobs)
        });
        let count = queued.as_ref().map_or(0, VecDeque::len);
        self.shared.queued.fetch_sub(count, Ordering::Relaxed);
        self.shared.outbox.count(0, count);
        drop(jobs);
        // Outside the lock: there may be many.
        drop(queued);
    }

    /// Holds back or resumes the jobs of a session.
    pub(super) fn hold(&self, slot: usize, is_held: bool) {
        let mut jobs = lock(&self.shared.jobs);
        if let Some(queue) = jobs.queue(slot) {
            queue.is_held = is_held;
        }
        jobs.give_turn(slot);
        self.shared.bump_changes();
        drop(jobs);
        if !is_held {
            self.shared.more.notify_all();
        }
    }

    /// Starts no more jobs, and informs the running handlers that they are abandoned.
    pub(super) fn close(&self) {
        let mut jobs = lock(&self.shared.jobs);
        jobs.closed = true;
        jobs.turns.clear();
        jobs.sessions.clear();
        let queued = std::mem::take(&mut jobs.queues);
        jobs.abandon(|_| true);
        self.shared.bump_changes();
        drop(jobs);
        drop(queued);
        self.shared.more.notify_all();
        self.shared.outbox.close();
    }
}

impl Drop for Workers {
    /// Waits for the handlers that run now; queued jobs are not started.
    fn drop(&mut self) {
        self.close();
        for thread in self.threads.drain(..) {
            // Handler panics are caught where they run.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self, number: usize) {
        let mut spin = Spin::new(self.spin);
        while let Some((handler, job)) = self.next(number, &mut spin) {
            let mut answer = Answer::default();
            let status = Queued::handle(job.traced, || match job.request {
                JobPayload::Bytes(mut bytes) => {
                    let len = bytes.len();
                    handler.call_traced(&job.caller, Request::Buffer(&mut bytes, len), &mut answer)
                }
                JobPayload::Batch(bytes, room) => {
                    handler.call_batch(&job.caller, &bytes, room, &mut answer)
                }
                JobPayload::Mapped(payload) => {
                    handler.call_traced(&job.caller, Request::Mapped(payload), &mut answer)
                }
            });
            let place = (job.slot, job.caller.session, job.id);
            if self.outbox.add(FinishedJob::new(place, status, answer, job.charge)) {
                self.outbox.wait_for_room();
            }
        }
    }

    fn next(&self, worker: usize, spin: &mut Spin) -> Option<(Arc<dyn Call>, Job)> {
        let is_abandoned = Arc::new(AtomicBool::new(false));
        let mut may_spin = true;
        let mut jobs = lock(&self.jobs);
        jobs.run(worker, None);
        loop {
            if let Some((handler, mut job)) = jobs.pop() {
                self.queued.fetch_sub(1, Ordering::Relaxed);
                job.caller.watch = Watch::Job(Arc::clone(&is_abandoned));
                jobs.run(worker, Some(Running { slot: job.slot, id: job.id, is_abandoned }));
                return Some((handler, job));
            }
            if jobs.closed {
                return None;
            }
            if may_spin && jobs.spinning < self.most_spinning {
                let seen = self.changes.load(Ordering::Relaxed);
                jobs.spinning += 1;
                drop(jobs);
                let has_changed = || self.changes.load(Ordering::Relaxed) != seen;
                may_spin = spin.watch(Os::now, thread::yield_now, has_changed);
                jobs = lock(&self.jobs);
                jobs.spinning -= 1;
                continue;
            }
            let began = Os::now();
            jobs.waiting += 1;
            jobs = self.more.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            jobs.waiting -= 1;
            may_spin = true;
            if let Some(notified) = jobs.notified.filter(|notified| *notified >= began) {
                let latency = nanos(Os::now().since(notified));
                spin.parked(Some(nanos(notified.since(began))), Some(latency));
            }
        }
    }

    /// Has spinning workers check for a job. The lock of the jobs is held.
    fn bump_changes(&self) {
        let next = self.changes.load(Ordering::Relaxed).wrapping_add(1);
        self.changes.store(next, Ordering::Relaxed);
    }
}
