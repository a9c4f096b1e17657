//! The demo's consumer, which is the demo's own process.

use std::thread;
use std::time::{Duration, Instant};

use bellwire::{
    Client, CurrentSnapshot, Delivery, Refreshed, RunDir, SnapshotCache, StartAt, Subscriber,
};
use bellwire_cgroups::{CgroupsSnapshot, Meta, View, name_hash};

use super::burst::{Burst, BurstClient, BurstContext, SessionFigures};
use super::figures::{Second, Totals};
use super::provider::Provider;
use super::report::Report;
use super::services::{DemoPing, DemoTick};
use super::tally::Tally;
use super::test_cgroups::TestCgroups;
use crate::exit::{Exit, Failure, chain};
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
/// How long to wait for the provider's first snapshot, and at the end until it shows that all cgroups are gone.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(10);
/// How often cgroups change.
const STEP: Duration = Duration::from_millis(100);

pub(super) struct Consumer {
    cache: SnapshotCache<CgroupsSnapshot>,
    client: Client<DemoPing>,
    ticks: Subscriber<DemoTick>,
    burst_client: BurstClient,
    /// `None` until it ran.
    burst: Option<Burst>,
    pub(super) test_cgroups: TestCgroups,
    tally: Tally,
    sequence: u64,
    /// How long the first session took to open.
    pub(super) connect_nanos: u64,
    /// The process at the other end of that session.
    pub(super) provider: Option<u32>,
}

impl Consumer {
    /// Opens all sessions and waits for the first snapshot.
    pub(super) fn connect(run_dir: &RunDir, test_cgroups: TestCgroups) -> Result<Self, Failure> {
        let begun = Instant::now();
        let mut client = Client::new(run_dir);
        let provider = client.connect()?.provider_pid();
        let connect_nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut consumer = Self {
            cache: SnapshotCache::new(run_dir),
            client,
            ticks: Subscriber::new(run_dir, StartAt::Oldest),
            burst_client: BurstClient::connect(run_dir)?,
            burst: None,
            test_cgroups,
            tally: Tally::new()?,
            sequence: 0,
            connect_nanos,
            provider,
        };
        let first = consumer.cache.wait_for_change(Some(CATCH_UP_TIMEOUT));
        if !matches!(first, Ok(Refreshed::Changed)) {
            let what = format!("no first snapshot: {first:?}, {:?}", consumer.cache.state());
            return Err(Failure::new(Exit::Deadline, what));
        }
        consumer.changed();
        Ok(consumer)
    }

    /// Returns how many cgroups the current snapshot has, and what it says of itself.
    pub(super) fn snapshot(&self) -> Option<(usize, Meta)> {
        let view = self.cache.current()?.index().view();
        Some((view.len(), view.meta()))
    }

    /// Works for so many seconds, with the burst halfway and cgroups that change. Then removes all cgroups and waits until
    /// that is seen. A line may cover several seconds, as long as the burst takes.
    pub(super) fn run(
        &mut self,
        seconds: u64,
        stop: &Stop,
        provider: &mut Provider,
        report: &mut Report,
    ) -> Result<Vec<Second>, Failure> {
        self.tally.start();
        let begun = Instant::now();
        let mut step_at = begun;
        let mut measured: Vec<Second> = Vec::new();
        let is_measured = |measured: &[Second]| {
            measured.last().is_some_and(|last: &Second| last.second >= seconds)
        };
        while (self.burst.is_none() || !is_measured(&measured))
            && stop.requested().is_none()
            && !provider.has_ended()
        {
            if self.burst.is_none() && begun.elapsed() >= Duration::from_secs(seconds) / 2 {
                self.burst(report, stop);
                if self.is_burst_interrupted() {
                    // The provider shows no cgroup of this machine: that those made are gone would not be seen.
                    return Ok(measured);
                }
            }
            if Instant::now() >= step_at {
                self.test_cgroups.step();
                step_at = Instant::now() + STEP;
            }
            self.cycle();
            if self.tally.second_is_over() && !is_measured(&measured) {
                let second = self.second();
                report.second(&second)?;
                measured.push(second);
            }
            stop.sleep_until(Instant::now() + PAUSE);
        }
        let until = Instant::now() + CATCH_UP_TIMEOUT;
        while !self.test_cgroups.is_caught_up() && Instant::now() < until && !provider.has_ended() {
            self.test_cgroups.shrink();
            self.refreshes(Instant::now() + REFRESHES);
            self.check_test_cgroups();
            thread::sleep(PAUSE);
        }
        Ok(measured)
    }

    /// Returns all figures, and the cgroups.
    pub(super) fn end(mut self) -> (Totals, TestCgroups) {
        let session = self.client.session().map(|session| session.stats());
        let calls = session.as_ref().map(|stats| SessionFigures::new("calls", stats));
        let totals = Totals {
            sessions: calls.into_iter().chain(self.burst_client.sessions()).collect(),
            burst: self.burst,
            ..self.tally.totals(session.unwrap_or_default())
        };
        (totals, self.test_cgroups)
    }

    fn cycle(&mut self) {
        self.calls(Instant::now() + CALLS);
        self.refreshes(Instant::now() + REFRESHES);
        self.lookups(Instant::now() + LOOKUPS);
        self.events();
        self.check_test_cgroups();
    }

    /// Runs the burst, during which the snapshots show no cgroup of this machine.
    fn burst(&mut self, report: &mut Report, stop: &Stop) {
        let begun = Instant::now();
        let (cache, tally) = (&mut self.cache, &mut self.tally);
        self.burst = Some(self.burst_client.run(&mut BurstContext { cache, tally, report, stop }));
        self.test_cgroups.postpone(begun.elapsed());
    }

    fn is_burst_interrupted(&self) -> bool {
        self.burst.as_ref().is_some_and(|burst| burst.is_interrupted)
    }

    /// Looks for the cgroups that were made and removed.
    fn check_test_cgroups(&mut self) {
        if let Some(current) = self.cache.current() {
            self.test_cgroups.check(current.index().view());
        }
    }

    /// Ends a second.
    fn second(&mut self) -> Second {
        let session = self.client.session().map(|session| session.stats()).unwrap_or_default();
        let current = self.cache.current();
        let generation = current.map_or(0, CurrentSnapshot::generation);
        let cgroups = current.map_or(0, |current| current.index().view().len());
        self.tally.second(generation, cgroups, session)
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
        self.tally.record_snapshot(&self.cache);
        self.check_test_cgroups();
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
