//! The demo's consumer process.

use std::io::BufRead;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use bellwire::{Client, Current, Delivery, Refreshed, RunDir, SnapshotCache, Start, Subscriber};
use bellwire_cgroups::{CgroupsSnapshot, View, name_hash};

use super::burst::{BurstClient, SessionFigures};
use super::expect::Expectations;
use super::protocol::{DemoPing, DemoTick, FromConsumer, ToConsumer, Totals};
use super::tally::Tally;
use crate::exit::{Exit, Failure, chain};
use crate::out;
use crate::stop::Stop;

/// How long each activity lasts at a time. See the demo's `--help`.
const CALLS: Duration = Duration::from_millis(20);
const REFRESHES: Duration = Duration::from_millis(10);
const LOOKUPS: Duration = Duration::from_millis(10);
const PAUSE: Duration = Duration::from_millis(10);
/// How many refreshes or look-ups are made between two clock reads, which cost more than they do.
const BATCH: u32 = 256;
const LOOKED_UP: usize = 64;
/// A name that no cgroup has.
const ABSENT: &str = "bellwire-demo: no such cgroup";
/// How long to wait for the provider's first snapshot.
const FIRST: Duration = Duration::from_secs(10);

pub(crate) fn run(run_dir: &RunDir) -> Result<Exit, Failure> {
    let stop = Stop::on_termination()?;
    stop.on_request(|| std::process::exit(i32::from(Exit::Terminated as u8)));
    let orders = orders();
    let mut consumer = Consumer::connect(run_dir)?;
    loop {
        consumer.cycle();
        consumer.tell()?;
        match orders.recv_timeout(PAUSE) {
            Ok(ToConsumer::Made(made)) => consumer.expected.made(made),
            Ok(ToConsumer::Removed { path }) => consumer.expected.removed(path),
            Ok(ToConsumer::Burst) => consumer.burst()?,
            Ok(ToConsumer::Finish) => break,
            Err(RecvTimeoutError::Timeout) => {}
            // Without the demo there is no work.
            Err(RecvTimeoutError::Disconnected) => return Ok(Exit::Failed),
        }
    }
    let session = consumer.client.session().map(|session| session.stats());
    let calls = session.as_ref().map(|stats| SessionFigures::new("calls", stats));
    let (burst, sessions) = consumer.burst.end();
    let totals = Totals {
        burst,
        sessions: calls.into_iter().chain(sessions).collect(),
        ..consumer.tally.totals(session.unwrap_or_default())
    };
    out::json_line(&FromConsumer::Done(Box::new(totals)))?;
    Ok(Exit::Ok)
}

/// Reads orders from standard input.
fn orders() -> Receiver<ToConsumer> {
    let (sender, orders) = mpsc::channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(order) = line.map_err(drop).and_then(|line| parse(&line)) else { return };
            if sender.send(order).is_err() {
                return;
            }
        }
    });
    orders
}

fn parse(line: &str) -> Result<ToConsumer, ()> {
    serde_json::from_str(line).map_err(drop)
}

struct Consumer {
    cache: SnapshotCache<CgroupsSnapshot>,
    client: Client<DemoPing>,
    ticks: Subscriber<DemoTick>,
    burst: BurstClient,
    expected: Expectations,
    tally: Tally,
    sequence: u64,
}

impl Consumer {
    /// Opens all sessions and waits for the first snapshot.
    fn connect(run_dir: &RunDir) -> Result<Self, Failure> {
        let begun = Instant::now();
        let mut client = Client::new(run_dir);
        let provider = client.connect()?.provider_pid();
        let connect_nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let burst = BurstClient::connect(run_dir)?;
        let cache = SnapshotCache::new(run_dir);
        let ticks = Subscriber::new(run_dir, Start::Oldest);
        let (expected, tally) = (Expectations::default(), Tally::new()?);
        let mut consumer = Self { cache, client, ticks, burst, expected, tally, sequence: 0 };
        let first = consumer.cache.wait_for_change(Some(FIRST));
        if !matches!(first, Ok(Refreshed::Changed)) {
            let state = consumer.cache.state();
            return Err(Failure::new(
                Exit::Deadline,
                format!("no first snapshot: {first:?}, {state:?}"),
            ));
        }
        consumer.changed();
        out::json_line(&FromConsumer::Ready { connect_nanos, provider })?;
        consumer.tally.start();
        Ok(consumer)
    }

    fn cycle(&mut self) {
        self.calls(Instant::now() + CALLS);
        self.refreshes(Instant::now() + REFRESHES);
        self.lookups(Instant::now() + LOOKUPS);
        self.events();
    }

    /// Runs the burst, during which the snapshots show no cgroup of this machine.
    fn burst(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        self.burst.run(&mut self.cache, &mut self.tally)?;
        self.expected.postpone(begun.elapsed());
        Ok(())
    }

    /// Reports the figures of a second, and which expectations were met or not.
    fn tell(&mut self) -> Result<(), Failure> {
        if let Some(current) = self.cache.current() {
            self.expected.check(current.index().view());
        }
        for verdict in self.expected.take_verdicts() {
            out::json_line(&verdict)?;
        }
        if !self.tally.second_is_over() {
            return Ok(());
        }
        let session = self.client.session().map(|session| session.stats()).unwrap_or_default();
        let current = self.cache.current();
        let generation = current.map_or(0, Current::generation);
        let cgroups = current.map_or(0, |current| current.index().view().len());
        let second = self.tally.second(generation, cgroups, session);
        Ok(out::json_line(&FromConsumer::Second(second))?)
    }

    /// Calls in a closed loop: each call begins after the previous answer.
    fn calls(&mut self, until: Instant) {
        let mut begun = Instant::now();
        while begun < until {
            let request = self.request();
            let answer = self.client.call(&request);
            // One clock read ends this call and begins the next.
            let ended = Instant::now();
            match answer {
                Ok(answer) if answer == DemoPing::answer(request) => {
                    self.tally.answered(ended - begun);
                }
                Ok(_) => self.tally.wrong_answer(),
                Err(error) => self.tally.error(&format!("call: {}", chain(&error))),
            }
            begun = Instant::now();
        }
    }

    /// Returns 64 bytes that no other call sends.
    fn request(&mut self) -> [u8; 64] {
        self.sequence += 1;
        let mut request = [0; 64];
        for (word, salt) in request.chunks_exact_mut(8).zip(1_u64..) {
            let mixed = self.sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7) ^ salt;
            word.copy_from_slice(&mixed.to_le_bytes());
        }
        request
    }

    /// Refreshes in tight batches. A batch ends at a change, so that its remainder counts for the change.
    fn refreshes(&mut self, until: Instant) {
        let mut begun = Instant::now();
        while begun < until {
            let mut unchanged = 0;
            let mut last = Ok(Refreshed::Unchanged);
            while unchanged < BATCH {
                last = self.cache.refresh();
                if !matches!(last, Ok(Refreshed::Unchanged)) {
                    break;
                }
                unchanged += 1;
            }
            let ended = Instant::now();
            match last {
                Ok(Refreshed::Unchanged) => self.tally.unchanged(unchanged, ended - begun),
                Ok(Refreshed::Changed) => {
                    self.tally.changed(unchanged, ended - begun);
                    self.changed();
                }
                // The snapshot will arrive soon.
                Ok(Refreshed::Pending) => self.tally.unchanged(unchanged, ended - begun),
                Ok(other) => {
                    self.tally.unavailable(&format!("{other:?}: {:?}", self.cache.state()));
                }
                Err(error) => self.tally.error(&format!("refresh: {}", chain(&error))),
            }
            begun = Instant::now();
        }
    }

    /// Checks a new snapshot.
    fn changed(&mut self) {
        let Some(current) = self.cache.current() else { return };
        self.tally.came(&self.cache);
        self.expected.check(current.index().view());
    }

    /// Takes all events that are there, and checks each.
    fn events(&mut self) {
        let begun = Instant::now();
        loop {
            match self.ticks.try_next() {
                Ok(Some(Delivery::Event { sequence, event })) => self.tally.event(sequence, event),
                Ok(Some(Delivery::Missed { events })) => self.tally.missed(events),
                Ok(Some(Delivery::Restarted)) => self.tally.error("events: another publisher"),
                Ok(None) => break,
                Err(error) => {
                    self.tally.error(&format!("events: {}", chain(&error)));
                    break;
                }
            }
        }
        self.tally.took_events(begun.elapsed());
    }

    /// Looks every cgroup up by id, path and name, repeatedly.
    fn lookups(&mut self, until: Instant) {
        let Some(current) = self.cache.current() else { return };
        let view = current.index().view();
        let absent = name_hash(ABSENT);
        let mut round = view.iter().cycle();
        loop {
            let begun = Instant::now();
            let (mut made, mut wrong) = (0, 0);
            for cgroup in round.by_ref().take(LOOKED_UP) {
                wrong += u64::from(view.find_by_id(cgroup.id) != Some(cgroup));
                wrong += u64::from(view.find_by_path(cgroup.path) != Some(cgroup));
                wrong += u64::from(!is_named(view, cgroup.name_hash, cgroup.name));
                made += 3;
            }
            let absent_found = u64::from(view.find_by_name(absent, ABSENT).is_some());
            let ended = Instant::now();
            self.tally.lookups(made, wrong, absent_found, ended - begun);
            if ended >= until {
                return;
            }
        }
    }
}

/// Returns whether the look-up finds a cgroup of this name; several may have it.
fn is_named(view: View<'_>, hash: u64, name: &str) -> bool {
    view.find_by_name(hash, name).is_some_and(|found| found.name == name && found.name_hash == hash)
}
