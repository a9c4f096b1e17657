//! A consumer process of the soak: threads that call both services, each with sessions of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bellwire::{
    Backoff, CallError, Client, ClientConfig, Doorbell, Executed, SessionStats, Ticket,
};
use bellwire_process as process;
use fastrand::Rng;

use crate::args::Child;
use crate::header::Header;
use crate::protocol::{self, CallCounts, ChildMessage, ConsumerCalls, Defect, Echo};
use bellwire_cli::exit::{Exit, Failure};
use bellwire_cli::message::SHORTEST;
use bellwire_cli::out;

/// The time within which a provider without faults answers, on any machine.
const STEADY_TIMEOUT: Duration = Duration::from_secs(30);
/// Shorter than some stops of a provider.
const CHURN_TIMEOUT: Duration = Duration::from_millis(150);
/// How long a thread deliberately takes no answers, which is longer than a provider waits, and how rarely it does so.
const STALL: Duration = Duration::from_millis(4_500);
const STALL_ONCE_IN: u64 = 20_000;
/// The longest message.
const LONGEST: usize = 512 << 10;
/// The request from which on an injected defect takes effect, once.
const DEFECTIVE_FROM: u64 = 5;

pub(crate) fn run(child: &Child) -> Result<Exit, Failure> {
    process::end_with_parent();
    let is_over = Arc::new(OnceLock::<()>::new());
    let consumer_calls: Vec<Arc<Mutex<ConsumerCalls>>> =
        (0..child.sessions).map(|_| Arc::default()).collect();
    let mut threads = Vec::new();
    for (thread, consumer_calls) in consumer_calls.iter().enumerate() {
        let mut worker = Worker::new(child, thread as u64, consumer_calls);
        let is_over = Arc::clone(&is_over);
        threads.push(thread::spawn(move || {
            worker.warm_up();
            while is_over.get().is_none() {
                worker.step();
            }
            worker.lines.iter_mut().for_each(Line::note_lanes);
        }));
    }
    protocol::report(|| ChildMessage::ConsumerCalls(sum(&consumer_calls)))?;
    let _ = is_over.set(());
    let panicked = threads.into_iter().map(thread::JoinHandle::join).any(|ended| ended.is_err());
    out::json_line(&ChildMessage::ConsumerCalls(sum(&consumer_calls)))?;
    if panicked {
        return Err(Failure::new(Exit::Failed, "a thread of the consumer panicked"));
    }
    out::json_line(&ChildMessage::Done)?;
    Ok(Exit::Ok)
}

fn sum(consumer_calls: &[Arc<Mutex<ConsumerCalls>>]) -> ConsumerCalls {
    let mut sum = ConsumerCalls::default();
    consumer_calls.iter().for_each(|consumer_calls| sum.add(&lock(consumer_calls)));
    sum
}

/// Nothing that holds this lock can panic halfway through a change.
fn lock(consumer_calls: &Mutex<ConsumerCalls>) -> MutexGuard<'_, ConsumerCalls> {
    consumer_calls.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One thread's clients.
struct Worker {
    random: Rng,
    stops_taking: bool,
    /// To the steady provider, and to the faulted one.
    lines: [Line; 2],
}

impl Worker {
    fn new(child: &Child, thread: u64, consumer_calls: &Arc<Mutex<ConsumerCalls>>) -> Self {
        let doorbells = [Doorbell::Futex, Doorbell::Eventfd, Doorbell::Socket];
        let doorbell = doorbells.into_iter().cycle().nth(usize::try_from(thread % 3).unwrap_or(0));
        let backoff =
            Backoff::default().initial(Duration::from_millis(1)).max(Duration::from_millis(20));
        let line = |steady: bool| {
            let timeout = if steady { STEADY_TIMEOUT } else { CHURN_TIMEOUT };
            let connect_timeout = ClientConfig::default().connect_timeout.max(timeout);
            let config = ClientConfig::default()
                .doorbell(doorbell.unwrap_or(Doorbell::Futex))
                .backoff(backoff)
                .timeout(timeout)
                .connect_timeout(connect_timeout);
            Line {
                client: Client::with_config(&protocol::run_dir(&child.run_dir, steady), config),
                last: Header { who: child.who, thread, sequence: 0, answer: 0 },
                timeout,
                consumer_calls: Arc::clone(consumer_calls),
                call_counts: match steady {
                    true => |consumer_calls| &mut consumer_calls.steady,
                    false => |consumer_calls| &mut consumer_calls.faulted,
                },
                lanes: [0; 2],
                defect: child.defect.filter(|_| steady && thread == 0),
            }
        };
        Self {
            random: Rng::with_seed(child.seed ^ (child.who << 32) ^ thread),
            stops_taking: !child.role.is_steady(),
            lines: [line(true), line(false)],
        }
    }

    /// Sends the longest messages, so that buffers have grown before the first sample.
    fn warm_up(&mut self) {
        self.lines.iter_mut().for_each(|line| line.call(LONGEST, LONGEST));
    }

    fn step(&mut self) {
        let (kind, which) = (self.random.usize(..100), self.random.usize(..2));
        let longest = match kind {
            0..2 => LONGEST,
            2..10 => 64 << 10,
            _ => 2 << 10,
        };
        let [request, answer] = [(); 2].map(|()| self.random.usize(SHORTEST..longest));
        let burst = self.random.usize(2..17);
        let stalls = self.stops_taking && self.random.u64(..STALL_ONCE_IN) == 0;
        if let Some(line) = self.lines.get_mut(which) {
            if stalls {
                line.burst(burst, STALL);
            }
            line.step(kind, request, answer, burst);
        }
        thread::sleep(Duration::from_millis(self.random.u64(..4)));
    }
}

/// A thread's calls to one provider.
struct Line {
    client: Client<Echo>,
    /// The last request, which has the thread's highest number.
    last: Header,
    /// How long an answer may take.
    timeout: Duration,
    consumer_calls: Arc<Mutex<ConsumerCalls>>,
    call_counts: fn(&mut ConsumerCalls) -> &mut CallCounts,
    /// How often the session's lanes have grown and shrunk, when last checked.
    lanes: [u64; 2],
    defect: Option<Defect>,
}

impl Line {
    fn step(&mut self, kind: usize, request: usize, answer: usize, burst: usize) {
        match kind {
            10..20 => self.burst(burst, Duration::ZERO),
            // Now and then, and especially after lanes have grown.
            0 | 20 => self.trim(),
            _ => self.call(request, answer),
        }
        self.note_lanes();
    }

    fn book<T>(&self, change: impl FnOnce(&mut CallCounts) -> T) -> T {
        change((self.call_counts)(&mut lock(&self.consumer_calls)))
    }

    /// Makes one call and checks its answer.
    fn call(&mut self, request: usize, answer: usize) {
        let header = self.last.next(answer as u64);
        let bytes = header.write(request);
        self.book(|call_counts| {
            call_counts.made += 1;
            call_counts.in_flight += 1;
        });
        let answered = self.client.call(&bytes);
        let defect = self.defect.take_if(|_| header.sequence >= DEFECTIVE_FROM);
        if defect == Some(Defect::RunTwice) {
            let _ = self.client.call(&bytes);
        }
        let is_absent = matches!(answered, Err(CallError::Absent { .. }));
        self.book(|call_counts| match defect {
            Some(Defect::LostCall) => call_counts.in_flight -= 1,
            _ => record(call_counts, Some(header), answered),
        });
        if is_absent {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends many requests whose answers arrive in any order. Takes no answers for `not_reading` first.
    fn burst(&mut self, requests: usize, not_reading: Duration) {
        let Ok(session) = self.client.connect() else { return };
        let mut waiting: BTreeMap<Ticket, Header> = BTreeMap::new();
        for _ in 0..requests {
            let header = self.last.next(SHORTEST as u64);
            let sent = session.submit(&header.write(SHORTEST));
            let mut consumer_calls = lock(&self.consumer_calls);
            let call_counts = (self.call_counts)(&mut consumer_calls);
            call_counts.made += 1;
            match sent {
                Ok(ticket) => {
                    call_counts.in_flight += 1;
                    waiting.insert(ticket, header);
                }
                Err(error) => call_counts.fail(&error),
            }
        }
        thread::sleep(not_reading);
        let until = Instant::now() + self.timeout;
        let ended = loop {
            if waiting.is_empty() {
                return;
            }
            match session.try_reply() {
                Ok(Some((ticket, answer))) => {
                    let header = waiting.remove(&ticket);
                    record((self.call_counts)(&mut lock(&self.consumer_calls)), header, answer);
                }
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_micros(200)),
                Ok(None) => break CallError::Deadline { executed: Executed::Maybe },
                Err(error) => break error,
            }
        };
        // The remaining requests were sent: as far as is known here, each may have been executed.
        for ticket in waiting.into_keys() {
            session.abandon(ticket);
            let mut consumer_calls = lock(&self.consumer_calls);
            let call_counts = (self.call_counts)(&mut consumer_calls);
            call_counts.in_flight -= 1;
            call_counts.failed += 1;
            call_counts.give_reason(&ended);
        }
    }

    /// Shrinks the lanes.
    fn trim(&mut self) {
        if let Some(session) = self.client.session() {
            // Fails if the provider is gone: the next call reports that.
            let _ = session.trim();
        }
        self.client.refresh();
    }

    /// Counts how often the lanes of the current session have changed their sizes.
    fn note_lanes(&mut self) {
        let Some(session) = self.client.session() else {
            self.lanes = [0; 2];
            return;
        };
        let stats = session.stats();
        let seen = [
            stats.requests.grows + stats.answers.grows,
            stats.requests.shrinks + stats.answers.shrinks,
        ];
        // If there are fewer changes, this is another session than last time.
        let [grown, shrunk] = match seen.iter().zip(&self.lanes).all(|(now, last)| now >= last) {
            true => [seen[0] - self.lanes[0], seen[1] - self.lanes[1]],
            false => seen,
        };
        self.lanes = seen;
        let is_wrong = !reconciles(&stats);
        self.book(|call_counts| {
            call_counts.grown += grown;
            call_counts.shrunk += shrunk;
            call_counts.miscounted += u64::from(is_wrong);
        });
    }
}

/// Counts the result of one of many requests.
fn record(
    call_counts: &mut CallCounts,
    header: Option<Header>,
    answer: Result<Vec<u8>, CallError>,
) {
    let Some(header) = header else {
        // Nothing waited for it.
        call_counts.wrong += 1;
        return;
    };
    call_counts.in_flight -= 1;
    match answer {
        Ok(answer) if header.is_answered_by(&answer) => call_counts.answered += 1,
        Ok(_) => call_counts.wrong += 1,
        Err(error) => call_counts.fail(&error),
    }
}

fn reconciles(stats: &SessionStats) -> bool {
    stats.made == stats.answered + stats.refused + stats.failed + stats.in_flight
}
