//! Nothing is lost, duplicated or reordered, for all sizes, in one session.
//!
//! Both ends know from the seed how long each message is and every byte of it: the handler expects the next number,
//! the caller the answer to each of its requests.

use bellwire_core::sync::{AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bellwire::{
    CallError, Caller, Client, ClientConfig, Doorbell, Executed, Geometry, HandlerError,
    LaneConfig, Limits, Payload, RunDir, ServerConfig, ServerStats, Session, SessionStats, Ticket,
};

use crate::support::child::{Parent, Process};
use crate::support::guard::test_deadline;
use crate::support::pattern::{self, Rng, scatter};
use crate::support::roles::{format_stats, parse_stats};
use crate::support::services::services;
use crate::support::test_server::{
    Dir, Reconciled, client_config, provide_with, reconcile, reconcile_session,
};
use crate::support::transport::{Os, clock, prelude::*};

/// Set it to run one seed again, for instance the one that failed.
const SEED: &str = "BELLWIRE_SEED";
/// Seeds in a run, and requests of each; every request has an answer, and both are messages.
const SEEDS: u64 = 8;
const MAX_REQUESTS: u64 = 75_000;
/// Set it to send fewer requests, where each of them takes long.
const REQUESTS: &str = "BELLWIRE_REQUESTS";
const LARGEST: usize = 32 << 20;

services! {
    /// Answers the requests of one session as they were planned.
    Exact("exact"): Payload => Payload;
}

/// What one seed stands for.
#[derive(Clone)]
struct Plan {
    seed: u64,
    client: ClientConfig,
    server: ServerConfig,
}

/// A request and its answer.
#[derive(Clone, Copy)]
struct Exchange {
    request: Planned,
    answer: Planned,
}

#[derive(Clone, Copy, Debug)]
struct Planned {
    len: usize,
    made: Storage,
}

/// How a payload is made.
#[derive(Clone, Copy, Debug)]
enum Storage {
    Private,
    /// As the library chooses.
    Built,
    /// In a memfd, however short it is.
    Sealed,
}

impl Plan {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let kib = |kib: u64| Geometry::new(kib << 10).unwrap();
        let lanes = [kib(4), kib(16), kib(64)];
        let large = kib(64 << 10);
        let most = [kib(64), kib(1024), large, large, large, large];
        let attach = [None, None, None, Some(300_000), Some(2000)];
        let stream = [Some(64 << 10), Some(64 << 10), None, Some(1000)];
        let spans =
            [Duration::from_micros(100), Duration::from_millis(10), Duration::from_secs(30)];
        let mut limits = || {
            let max_shared_bytes_per_session = rng.pick(&[140 << 20, 256 << 20]);
            Limits { max_lane: rng.pick(&most), max_shared_bytes_per_session, ..Limits::default() }
        };
        let [ours, theirs] = [limits(), limits()];
        // Each doorbell comes in its turn.
        let doorbells = [Doorbell::Futex, Doorbell::Eventfd, Doorbell::Socket];
        let client = client_config().doorbell(doorbells[seed as usize % 3]).lane(
            client_config()
                .lane
                .size(rng.pick(&lanes).min(theirs.max_lane))
                .limits(ours)
                .attach_from(rng.pick(&attach))
                .stream_from(rng.pick(&stream))
                .shrink_after(rng.pick(&spans)),
        );
        let server = ServerConfig::default()
            .doorbell(rng.pick(&[Doorbell::Eventfd, Doorbell::Eventfd, Doorbell::Socket]))
            // Answers of workers come in any order.
            .workers(if seed % 8 == 7 { 2 } else { 0 })
            .lane(
                LaneConfig::default()
                    .size(rng.pick(&lanes).min(ours.max_lane))
                    .limits(theirs)
                    .attach_from(rng.pick(&attach))
                    .stream_from(rng.pick(&stream))
                    .shrink_after(rng.pick(&spans)),
            );
        Self { seed, client, server }
    }

    fn is_ordered(&self) -> bool {
        self.server.workers == 0
    }

    fn exchange(&self, number: u64) -> Exchange {
        let mut rng = Rng::new(self.seed ^ scatter(number));
        // A reader that cannot rely on the order has to read the number.
        let least = if self.is_ordered() { 0 } else { 8 };
        let mut planned = || {
            let len = match rng.below(10_000) {
                0..3 => ((rng.below(1 << 20) + (1 << 20)) << rng.below(6)).min(LARGEST),
                3..50 => rng.below_by_magnitude(1 << 20),
                50..400 => rng.below_by_magnitude(16 << 10),
                _ => rng.below(200),
            };
            let made = match rng.below(200) {
                0 => Storage::Sealed,
                1..100 => Storage::Built,
                _ => Storage::Private,
            };
            Planned { len: len.max(least), made }
        };
        Exchange { request: planned(), answer: planned() }
    }

    /// The bytes of a request; its answer has other bytes of the same number.
    fn request(&self, number: u64) -> Payload {
        self.exchange(number).request.make(number)
    }
}

/// The number in an answer's bytes.
fn echoed(number: u64) -> u64 {
    number | 1 << 63
}

impl Planned {
    fn make(self, number: u64) -> Payload {
        match self.made {
            Storage::Private => pattern::message(number, self.len).into(),
            Storage::Built => Payload::build(self.len, |into| pattern::fill(number, into)).unwrap(),
            Storage::Sealed => {
                Payload::build_from(0, self.len, |into| pattern::fill(number, into)).unwrap()
            }
        }
    }
}

/// The serving end.
struct ServerPlan {
    plan: Plan,
    /// The number that comes next.
    next: AtomicU64,
    /// Those that came, where they come in any order.
    came: Mutex<Vec<bool>>,
}

impl ServerPlan {
    fn new(plan: Plan) -> Arc<Self> {
        Arc::new(Self { plan, next: AtomicU64::new(0), came: Mutex::default() })
    }

    fn answer(&self, request: &Payload) -> Result<Payload, HandlerError> {
        let counted = self.next.fetch_add(1, Ordering::Relaxed);
        let number = if self.plan.is_ordered() { counted } else { self.read_number(request)? };
        let Exchange { request: planned, answer } = self.plan.exchange(number);
        pattern::check(number, planned.len, request)?;
        Ok(answer.make(echoed(number)))
    }

    /// The number in a request that came out of its order, for the first time.
    fn read_number(&self, request: &[u8]) -> Result<u64, HandlerError> {
        let number = request.first_chunk().ok_or("a request without a number")?;
        let number = u64::from_le_bytes(*number);
        let mut came = self.came.lock().unwrap();
        let len = came.len().max(number as usize + 1);
        came.resize(len, false);
        match std::mem::replace(&mut came[number as usize], true) {
            true => Err(HandlerError::new(format!("request {number} came twice"))),
            false => Ok(number),
        }
    }

    fn serve(self: &Arc<Self>, run_dir: &RunDir) -> Reconciled {
        let handler = Arc::clone(self);
        let answer = move |_: &Caller, request: Payload| handler.answer(&request);
        provide_with::<Exact>(run_dir, self.plan.server.clone(), answer)
    }
}

/// The process that answers.
pub(crate) fn serve(mut parent: Parent, seed: u64) {
    let handler = ServerPlan::new(Plan::new(seed));
    let server = handler.serve(&RunDir::from_environment());
    parent.send_line("ready");
    assert_eq!(parent.next_line().as_deref(), Some("stop"));
    parent.send_line(&format_stats(&server.stop()));
}

/// The calling end.
struct ClientPlan<'a> {
    plan: &'a Plan,
    session: &'a mut Session<Exact>,
    rng: Rng,
    /// The number of the next request: that many have reached the handler, or will.
    next: u64,
    in_flight: HashMap<Ticket, u64>,
    last: Option<Ticket>,
    /// Calls of which it is known that they did not run.
    unsent: u64,
}

impl<'a> ClientPlan<'a> {
    fn new(plan: &'a Plan, session: &'a mut Session<Exact>) -> Self {
        let rng = Rng::new(!plan.seed);
        Self { plan, session, rng, next: 0, in_flight: HashMap::new(), last: None, unsent: 0 }
    }

    /// Calls until this many requests were sent, and takes all answers.
    fn ask(&mut self, requests: u64) {
        let mut depth = 1;
        while self.next < requests {
            if self.rng.once_in(500) {
                depth = self.rng.pick(&[1, 2, 8, 32, 200, 1000]);
            }
            // With workers, only what needs no order.
            let is_ordered = self.plan.is_ordered();
            match self.rng.below(4000) {
                0..3 => self.trim(),
                3..8 if is_ordered => self.call_with_short_timeout(),
                8..12 if is_ordered => self.abandon(),
                12..30 => self.wait(),
                30..200 => self.call(),
                _ => self.submit(),
            }
            while self.in_flight.len() >= depth {
                self.take_or_yield();
            }
        }
        while !self.in_flight.is_empty() {
            self.take_or_yield();
        }
        assert!(self.session.try_reply().unwrap().is_none(), "an answer too many");
    }

    fn submit(&mut self) {
        let request = self.plan.request(self.next);
        loop {
            match self.session.submit(&request) {
                Ok(ticket) => {
                    self.in_flight.insert(ticket, self.next);
                    self.next += 1;
                    return;
                }
                // An empty lane may wait for its peer, too: to come after it.
                Err(CallError::WouldBlock) if self.in_flight.is_empty() => std::thread::yield_now(),
                Err(CallError::WouldBlock) => self.take_or_yield(),
                Err(error) => panic!("submit of {}: {error}", self.next),
            }
        }
    }

    /// Waits past all that is in flight.
    fn call(&mut self) {
        let number = self.next;
        self.next += 1;
        let answer = self.session.call(&self.plan.request(number));
        self.check(number, &answer.unwrap_or_else(|error| panic!("call of {number}: {error}")));
    }

    /// Has hardly time for the call. A request that was not executed is sent again, under the same number: the handler
    /// expects it.
    fn call_with_short_timeout(&mut self) {
        let number = self.next;
        let timeout = Duration::from_micros(self.rng.below(100) as u64);
        match self.session.call_within(&self.plan.request(number), timeout) {
            Ok(answer) => self.check(number, &answer),
            Err(CallError::Deadline { executed: Executed::No }) => {
                self.unsent += 1;
                return;
            }
            Err(CallError::Deadline { executed: Executed::Maybe }) => {}
            Err(error) => panic!("call of {number} in haste: {error}"),
        }
        self.next += 1;
    }

    fn abandon(&mut self) {
        let Some(ticket) = self.in_flight.keys().next().copied() else { return };
        assert!(self.session.abandon(ticket));
        self.in_flight.remove(&ticket);
    }

    fn trim(&mut self) {
        self.session.trim().unwrap();
        let stats = self.session.stats();
        assert_eq!(stats.requests.size, self.plan.client.lane.size.size(), "{stats:?}");
        // Answers in flight may have made it large again.
        if self.in_flight.is_empty() {
            assert_eq!(stats.answers.size, self.plan.server.lane.size.size(), "{stats:?}");
        }
    }

    /// Sleeps until an answer comes, as an event loop does.
    fn wait(&mut self) {
        if self.session.pollable().is_err() || self.in_flight.is_empty() {
            return;
        }
        if !self.session.arm().unwrap() {
            let fd = self.session.pollable().unwrap();
            assert!(Os::wait_any(&[fd], Some(test_deadline())).unwrap());
        }
        self.take();
    }

    fn take_or_yield(&mut self) {
        let mut guard = None;
        while !self.take() {
            let guard = *guard.get_or_insert_with(test_deadline);
            assert!(clock::now() < guard, "{} answers do not come", self.in_flight.len());
            std::thread::yield_now();
        }
    }

    /// Takes what answers have come: each was asked for, comes once, whole, and in the order of the requests.
    fn take(&mut self) -> bool {
        let before = self.in_flight.len();
        while let Some((ticket, answer)) = self.session.try_reply().unwrap() {
            let number =
                self.in_flight.remove(&ticket).expect("it was asked for, and not answered");
            self.check(number, &answer.unwrap_or_else(|error| panic!("answer {number}: {error}")));
            if self.plan.is_ordered() {
                assert!(self.last.is_none_or(|last| last < ticket), "answer {number}: reordered");
                self.last = Some(ticket);
            }
        }
        self.in_flight.len() < before
    }

    #[track_caller]
    fn check(&self, number: u64, answer: &[u8]) {
        let len = self.plan.exchange(number).answer.len;
        pattern::check(echoed(number), len, answer).unwrap();
    }
}

/// Calls as planned. Returns the numbers of the session, and how many requests have reached the handler.
fn ask(plan: &Plan, run_dir: &RunDir, requests: u64) -> (SessionStats, u64, u64) {
    let mut client = Client::<Exact>::with_config(run_dir, plan.client.clone());
    let session = client.connect().unwrap();
    let mut caller = ClientPlan::new(plan, session);
    caller.ask(requests);
    let (sent, unsent) = (caller.next, caller.unsent);
    reconcile_session(session);
    assert!(session.is_open());
    (session.stats(), sent, unsent)
}

/// Both ends counted exactly what was sent, in one session.
fn check_counters(stats: &ServerStats, sent: u64) {
    reconcile(stats);
    assert_eq!((stats.admitted, stats.accepted, stats.answered), (1, sent, sent), "{stats:?}");
}

fn run(seed: u64, requests: u64) -> SessionStats {
    let plan = Plan::new(seed);
    let dir = Dir::new();
    let mut server = Process::start(&format!("exact {seed}"), &dir.run_dir);
    let (stats, sent, unsent) = ask(&plan, &dir.run_dir, requests);
    check_counters(&parse_stats(&server.ask("stop")), sent);
    println!("  {sent} requests; {unsent} more were not executed, and said so");
    for (what, lane) in [("requests", stats.requests), ("answers", stats.answers)] {
        let (grows, shrinks, attaches) = (lane.grows, lane.shrinks, lane.attaches);
        let mib = lane.bytes >> 20;
        println!("  {what}: {mib} MiB, {grows} grows, {shrinks} shrinks, {attaches} attaches");
    }
    stats
}

/// The seeds to run: the one that was asked for, or some that begin with the time of day.
fn seeds() -> Vec<u64> {
    if let Ok(seed) = std::env::var(SEED) {
        return vec![seed.parse().expect("a seed is a number")];
    }
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let first = u64::from(clock.subsec_micros()) << 3;
    (first..first + SEEDS).collect()
}

/// How many requests of each seed are sent.
fn requests() -> u64 {
    let fewer = std::env::var(REQUESTS).ok();
    fewer.map_or(MAX_REQUESTS, |fewer| fewer.parse().expect("requests are counted"))
}

/// Says which seed it was when a test fails.
struct SeedOnDrop(u64);

impl Drop for SeedOnDrop {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to run it again: {SEED}={}", self.0);
        }
    }
}

#[test]
fn two_processes_lose_duplicate_and_reorder_nothing_in_a_million_messages() {
    let began = std::time::Instant::now();
    let (mut messages, mut totals) = (0, [(0, 0, 0); 2]);
    for seed in seeds() {
        println!("{SEED}={seed}");
        let _told = SeedOnDrop(seed);
        let stats = run(seed, requests());
        messages += 2 * requests();
        for (total, lane) in totals.iter_mut().zip([stats.requests, stats.answers]) {
            total.0 += lane.grows;
            total.1 += lane.shrinks;
            total.2 += lane.attaches;
        }
    }
    println!("{messages} messages in {:?}", began.elapsed());
    // Not of a single seed: its lanes may be as large as they can be from the beginning.
    let is_whole = std::env::var(SEED).is_err() && requests() == MAX_REQUESTS;
    let has_all = |total: &(u64, u64, u64)| total.0 > 100 && total.1 > 100 && total.2 > 100;
    assert!(!is_whole || totals.iter().all(has_all), "{totals:?}");
    assert!(!is_whole || messages >= 1_000_000);
}
