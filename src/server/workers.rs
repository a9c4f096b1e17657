use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use bellwire_core::sync::{AtomicBool, AtomicUsize, Ordering};
use bellwire_core::wire::Status;

use super::handler::{Answer, Call, Caller, Request, Room};
use super::watch::Watch;
use crate::Payload;
use crate::transport::doorbell::Event;
use crate::transport::memory::Charge;

/// A request for a worker.
pub(super) struct Job {
    /// Whose it is: clients have workers in turns.
    pub(super) client: usize,
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
    /// A batch, and how much may be in it.
    Batch(Vec<u8>, Room),
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

/// Bytes of answers that wait for the reactor, before workers do.
const MOST_FINISHED: usize = 16 << 20;

/// A fixed number of threads that run handlers.
pub(super) struct Workers {
    desk: Arc<Desk>,
    threads: Vec<JoinHandle<()>>,
    /// Jobs that may be queued, of all sessions together.
    most_queued: usize,
}

struct Desk {
    jobs: Mutex<Jobs>,
    /// How many are queued; changed with the lock of the jobs held.
    queued: AtomicUsize,
    /// Signalled when there is a job, or no more will come.
    more: Condvar,
    done: Mutex<Finished>,
    /// Signalled when answers were collected, or nobody will any more.
    collected: Condvar,
    /// Rung after an answer was put down: wakes the reactor.
    bell: Arc<Event>,
}

/// Answers that the reactor has not collected yet.
#[derive(Default)]
struct Finished {
    all: Vec<Done>,
    bytes: usize,
    closed: bool,
}

/// A queue for each session. Clients are served in turns, and of each its sessions: who has many requests, or many sessions,
/// waits for its own.
#[derive(Default)]
struct Jobs {
    /// By slot.
    queues: Vec<Queue>,
    /// Clients with sessions in `sessions`, the next one first.
    turns: VecDeque<usize>,
    /// By client: slots whose queues have something, the next one first. One whose jobs were withdrawn may be among them.
    sessions: Vec<VecDeque<usize>>,
    /// What each worker runs.
    running: Vec<Option<Running>>,
    closed: bool,
}

#[derive(Default)]
struct Queue {
    /// By id: a session's requests count up.
    jobs: VecDeque<Job>,
    /// Whose the jobs are.
    client: usize,
    /// Whether the slot is among the turns.
    has_turn: bool,
    /// Nobody takes the answers: nothing of it is begun.
    is_held: bool,
}

/// A job that a worker has begun.
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

    fn push(&mut self, job: Job) {
        let (slot, client) = (job.slot, job.client);
        if let Some(queue) = self.queue(slot) {
            queue.client = client;
            queue.jobs.push_back(job);
        }
        self.give_turn(slot);
    }

    fn pop(&mut self) -> Option<Job> {
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

    /// Sees to it that what waits in a queue has its turn.
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

    /// Notes what a worker runs.
    fn run(&mut self, worker: usize, running: Option<Running>) {
        if let Some(place) = self.running.get_mut(worker) {
            *place = running;
        }
    }

    /// Tells the handlers of these jobs that nobody waits for them.
    fn abandon(&self, these: impl Fn(&Running) -> bool) {
        for running in self.running.iter().flatten().filter(|running| these(running)) {
            running.is_abandoned.store(true, Ordering::Relaxed);
        }
    }
}

impl Workers {
    /// Starts `count` threads, whose answers ring `bell`.
    pub(super) fn start(
        count: usize,
        most_queued: usize,
        bell: Arc<Event>,
    ) -> std::io::Result<Self> {
        let running = (0..count).map(|_| None).collect();
        let jobs = Mutex::new(Jobs { running, ..Jobs::default() });
        let (queued, more, done) = (AtomicUsize::new(0), Condvar::new(), Mutex::default());
        let collected = Condvar::new();
        let desk = Arc::new(Desk { jobs, queued, more, done, collected, bell });
        let mut workers = Self { desk, threads: Vec::with_capacity(count), most_queued };
        for number in 0..count {
            let desk = Arc::clone(&workers.desk);
            let thread = thread::Builder::new().name(format!("bellwire-work-{number}"));
            workers.threads.push(thread.spawn(move || desk.work(number))?);
        }
        Ok(workers)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Whether a session may queue another job. One that may not goes on when one of its own is done, and has at least
    /// one: nobody need wake it, and nobody is kept out by others.
    pub(super) fn has_room(&self, slot: usize) -> bool {
        // Only the reactor queues.
        self.desk.queued.load(Ordering::Relaxed) < self.most_queued
            || lock(&self.desk.jobs).queues.get(slot).is_none_or(|queue| queue.jobs.is_empty())
    }

    pub(super) fn submit(&self, job: Job) {
        let mut jobs = lock(&self.desk.jobs);
        jobs.push(job);
        self.desk.queued.fetch_add(1, Ordering::Relaxed);
        drop(jobs);
        self.desk.more.notify_one();
    }

    /// Takes a request back that no worker has begun. The handler of one that runs is told that it is abandoned.
    pub(super) fn withdraw(&self, slot: usize, id: u64) -> bool {
        let mut jobs = lock(&self.desk.jobs);
        jobs.abandon(|running| running.slot == slot && running.id == id);
        let Some(queue) = jobs.queues.get_mut(slot) else { return false };
        let at = queue.jobs.binary_search_by_key(&id, |job| job.id);
        let withdrawn = at.ok().and_then(|at| queue.jobs.remove(at)).is_some();
        self.desk.queued.fetch_sub(usize::from(withdrawn), Ordering::Relaxed);
        withdrawn
    }

    /// Drops all that waits of a session, and tells what runs of it: it is over.
    pub(super) fn withdraw_all(&self, slot: usize) {
        let mut jobs = lock(&self.desk.jobs);
        jobs.abandon(|running| running.slot == slot);
        let queued = jobs.queues.get_mut(slot).map(|queue| {
            queue.is_held = false;
            std::mem::take(&mut queue.jobs)
        });
        let count = queued.as_ref().map_or(0, VecDeque::len);
        self.desk.queued.fetch_sub(count, Ordering::Relaxed);
        drop(jobs);
        // Without the lock: there may be much of it.
        drop(queued);
    }

    /// Begins nothing more of a session, or goes on with it.
    pub(super) fn hold(&self, slot: usize, is_held: bool) {
        let mut jobs = lock(&self.desk.jobs);
        if let Some(queue) = jobs.queue(slot) {
            queue.is_held = is_held;
        }
        jobs.give_turn(slot);
        drop(jobs);
        if !is_held {
            self.desk.more.notify_all();
        }
    }

    /// Begins nothing more, and tells the handlers that run that nobody waits for them.
    pub(super) fn close(&self) {
        let mut jobs = lock(&self.desk.jobs);
        jobs.closed = true;
        jobs.turns.clear();
        jobs.sessions.clear();
        let queued = std::mem::take(&mut jobs.queues);
        jobs.abandon(|_| true);
        drop(jobs);
        drop(queued);
        self.desk.more.notify_all();
        lock(&self.desk.done).closed = true;
        self.desk.collected.notify_all();
    }

    /// Whether there are answers.
    pub(super) fn has_done(&self) -> bool {
        !self.is_empty() && !lock(&self.desk.done).all.is_empty()
    }

    /// Moves the answers that are there into `into`.
    pub(super) fn collect(&self, into: &mut VecDeque<Done>) {
        let mut done = lock(&self.desk.done);
        into.extend(done.all.drain(..));
        if std::mem::take(&mut done.bytes) >= MOST_FINISHED {
            self.desk.collected.notify_all();
        }
    }
}

impl Drop for Workers {
    /// Waits for the handlers that run now; what is queued is not begun.
    fn drop(&mut self) {
        self.close();
        for thread in self.threads.drain(..) {
            // A handler's panic is caught where it runs.
            let _ = thread.join();
        }
    }
}

impl Desk {
    fn work(&self, number: usize) {
        while let Some(job) = self.next(number) {
            let mut answer = Answer::default();
            let status = match job.request {
                Parcel::Bytes(mut bytes) => {
                    let len = bytes.len();
                    job.handler.call(&job.caller, Request::Buffer(&mut bytes, len), &mut answer)
                }
                Parcel::Batch(bytes, room) => {
                    job.handler.call_batch(&job.caller, &bytes, room, &mut answer)
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
                answer = Answer::default();
            }
            self.finish(Done { slot, session, id, status, answer, _charge: charge });
        }
    }

    /// Puts an answer down, and waits while many bytes of them are there.
    fn finish(&self, answer: Done) {
        let mut done = lock(&self.done);
        done.bytes = done.bytes.saturating_add(answer.answer.len());
        done.all.push(answer);
        drop(done);
        self.bell.ring();
        done = lock(&self.done);
        while done.bytes >= MOST_FINISHED && !done.closed {
            done = self.collected.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn next(&self, worker: usize) -> Option<Job> {
        let is_abandoned = Arc::new(AtomicBool::new(false));
        let mut jobs = lock(&self.jobs);
        jobs.run(worker, None);
        loop {
            if let Some(mut job) = jobs.pop() {
                self.queued.fetch_sub(1, Ordering::Relaxed);
                job.caller.watch = Watch::Job(Arc::clone(&is_abandoned));
                jobs.run(worker, Some(Running { slot: job.slot, id: job.id, is_abandoned }));
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
