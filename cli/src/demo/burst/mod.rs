//! The burst in the middle of the demo: snapshots and messages that grow by four orders of magnitude and shrink again, on
//! sessions that stay open.
//!
//! The consumer orders snapshots through the service demo-workload and sends messages through the service demo-burst, on two
//! sessions. Both ends check and count each message.

mod arrivals;
mod figures;
mod lane;
mod line;
mod message;
mod served;
mod workload;

use std::time::{Duration, Instant};

use bellwire::{Client, CurrentSnapshot, RunDir, SnapshotCache};
use bellwire_cgroups::{CgroupsSnapshot, Index};

use super::report::Report;
use super::tally::Tally;
use crate::exit::{Exit, Failure, chain};
use crate::stop::Stop;
pub(super) use arrivals::Arrivals;
pub(super) use figures::{Burst, LaneChange, LaneSpan, SessionFigures, Shown};
use line::Line;
pub(super) use served::Handler;
pub(super) use workload::{DemoWorkload, Order, answer};
use workload::{Memory, Workload};

/// The numbers of cgroups in the burst's snapshots.
pub(super) const SNAPSHOTS: [usize; 3] = [16, 100_000, 16];
/// The longest message of the burst, in bytes.
pub(super) const LONGEST: usize = 16 << 20;
/// How long a snapshot may take. An unoptimized build on a busy machine needs many seconds for a large one.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(120);

/// How long the release of memory may take at the end.
const REST: Duration = Duration::from_secs(10);
/// How often a wait checks what it waits for, or whether the demo shall end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How messages grow on the first session, and how much of that the second one gets.
const GROWTH: [Step; 9] = [
    Step::Calls(64, 64),
    Step::Calls(64, 8 << 10),
    Step::Calls(32, 60 << 10),
    Step::Calls(8, 1 << 20),
    Step::Ahead(4096, 64),
    Step::Ahead(512, 8 << 10),
    Step::Ahead(128, 60 << 10),
    Step::Ahead(16, 1 << 20),
    Step::Calls(2, LONGEST),
];
const SECOND: [Step; 2] = [Step::Ahead(4096, 64), Step::Ahead(16, 1 << 20)];
/// The size in bytes of the message in a memfd of its own that both sessions get.
const ATTACHED: usize = 4 << 20;

/// A number of messages of a size in bytes, both ways.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Each after the previous answer.
    Calls(u64, usize),
    /// Each as soon as there is room for it.
    Ahead(u64, usize),
}

/// The consumer's sessions for the burst.
pub(super) struct BurstClient {
    lines: [Line; 2],
    workload: Client<DemoWorkload>,
}

/// What a burst runs with.
pub(super) struct BurstContext<'a> {
    pub(super) cache: &'a mut SnapshotCache<CgroupsSnapshot>,
    pub(super) tally: &'a mut Tally,
    pub(super) report: &'a mut Report,
    pub(super) stop: &'a Stop,
}

impl BurstClient {
    /// Opens the sessions.
    pub(super) fn connect(run_dir: &RunDir) -> Result<Self, Failure> {
        let lines = [Line::connect("burst", run_dir)?, Line::connect("burst 2", run_dir)?];
        let mut workload = Client::new(run_dir);
        workload.connect()?;
        Ok(Self { lines, workload })
    }

    /// Runs the whole phase, or until the demo shall end. A failure is counted as an error; the checks then find what is
    /// missing.
    pub(super) fn run(&mut self, context: &mut BurstContext<'_>) -> Burst {
        let begun = Instant::now();
        let mut burst = Burst::default();
        let ran = self.all(context, &mut burst);
        let back = context.stop.check().and_then(|()| self.back(context));
        for failed in [ran, back].into_iter().filter_map(Result::err) {
            // SIGTERM may have reached the provider, too: what fails from then on is no error.
            burst.is_interrupted = context.stop.requested().is_some();
            if !burst.is_interrupted {
                context.tally.error(&format!("burst: {failed}"));
            }
        }
        burst.seconds = begun.elapsed().as_secs_f64();
        burst.lanes = self.lines.iter().flat_map(Line::spans).collect();
        burst
    }

    /// Returns the sessions as they are now.
    pub(super) fn sessions(&mut self) -> impl Iterator<Item = SessionFigures> {
        let [first, second] = &mut self.lines;
        let workload = self
            .workload
            .session()
            .map(|workload| SessionFigures::new("workload", &workload.stats()));
        [first.figures(), second.figures(), workload].into_iter().flatten()
    }

    fn all(&mut self, context: &mut BurstContext<'_>, burst: &mut Burst) -> Result<(), Failure> {
        let [few, many, few_again] = SNAPSHOTS;
        self.show(1, few, context, burst)?;
        burst.shared.before = self.memory()?;
        self.show(2, many, context, burst)?;
        self.messages(context, burst)?;
        burst.shared.most = self.memory()?;
        let reported = burst.lane_changes.len();
        self.lines.iter_mut().try_for_each(|line| line.trim(burst))?;
        context.report.lanes(burst.lane_changes.iter().skip(reported))?;
        self.show(3, few_again, context, burst)?;
        burst.shared.after = self.rest(burst.shared.before, context.stop)?;
        Ok(())
    }

    /// Returns the shared memory of both processes.
    fn memory(&mut self) -> Result<Memory, Failure> {
        let theirs = self.workload.call(&Workload::UNCHANGED)?;
        let ours = bellwire_doctor::shared_memory().map_err(|error| {
            Failure::of(Exit::Failed, "cannot determine the shared memory", &error)
        })?;
        Ok(Memory::of(ours, theirs))
    }

    /// Waits until the provider, which watches the memory that it passed, has seen its return, and returns what is still
    /// held.
    fn rest(&mut self, before: Memory, stop: &Stop) -> Result<Memory, Failure> {
        let until = Instant::now() + REST;
        loop {
            stop.check()?;
            let now = self.memory()?;
            if now.pieces <= before.pieces || Instant::now() >= until {
                return Ok(now);
            }
            stop.sleep_until(Instant::now() + POLL_INTERVAL);
        }
    }

    /// Makes the provider publish this machine's cgroups again, and waits for them.
    fn back(&mut self, context: &mut BurstContext<'_>) -> Result<(), Failure> {
        let begun = context.cache.current().map_or(0, CurrentSnapshot::generation);
        self.workload.call(&Workload::REAL)?;
        next(context, Instant::now() + SNAPSHOT_TIMEOUT, |generation, _| generation > begun)?;
        Ok(())
    }

    fn messages(
        &mut self,
        context: &mut BurstContext<'_>,
        burst: &mut Burst,
    ) -> Result<(), Failure> {
        for (line, steps) in self.lines.iter_mut().zip([&GROWTH[..], &SECOND]) {
            for step in steps {
                let reported = burst.lane_changes.len();
                line.take(*step, context.stop, burst)?;
                context.report.lanes(burst.lane_changes.iter().skip(reported))?;
            }
        }
        let shared = Line::attached(ATTACHED)?;
        self.lines.iter_mut().try_for_each(|line| {
            context.stop.check()?;
            line.call_attached(&shared, burst)
        })
    }

    /// Makes the provider publish synthetic cgroups, and waits until all of them were seen.
    fn show(
        &mut self,
        seed: u64,
        cgroups: usize,
        context: &mut BurstContext<'_>,
        burst: &mut Burst,
    ) -> Result<(), Failure> {
        let expected = workload::cgroups(cgroups, seed);
        context.stop.check()?;
        let begun = Instant::now();
        self.workload.call(&Workload::synthetic(cgroups, seed))?;
        let stop = context.stop;
        let is_running = || stop.requested().is_none();
        let same = |_, index: &Index| workload::is_exactly(index.view(), &expected, is_running);
        let (generation, bytes) = next(context, begun + SNAPSHOT_TIMEOUT, same)?;
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let shown = Shown { cgroups, generation, bytes, nanos };
        burst.snapshots.push(shown);
        context.report.shown(&shown)
    }
}

/// Waits for the intended snapshot and checks each one that arrives. Returns its generation and its length in bytes.
fn next(
    context: &mut BurstContext<'_>,
    until: Instant,
    is_meant: impl Fn(u64, &Index) -> bool,
) -> Result<(u64, usize), Failure> {
    let BurstContext { cache, tally, stop, .. } = context;
    loop {
        stop.check()?;
        let left = until.saturating_duration_since(Instant::now());
        let waited = cache.wait_for_change(Some(left.min(POLL_INTERVAL)));
        let waited = waited.map_err(|error| Failure::new(Exit::Failed, chain(&error)))?;
        tally.record_snapshot(cache);
        let current = cache.current();
        let meant = current.filter(|current| is_meant(current.generation(), current.index()));
        if let Some(meant) = meant {
            return Ok((meant.generation(), meant.bytes().len()));
        }
        if left.is_zero() {
            let what = format!("the snapshot did not come: {waited:?}, {:?}", cache.state());
            return Err(Failure::new(Exit::Failed, what));
        }
    }
}
