//! The burst in the middle of the demo: snapshots and messages that grow by four orders of magnitude and shrink again, on
//! sessions that stay open.
//!
//! The consumer orders snapshots through the service demo-phase and sends messages through the service demo-burst, on two
//! sessions. Both ends check and count each message.

mod arrivals;
mod figures;
mod held;
mod lane;
mod line;
mod message;
mod phase;
mod served;

use std::thread;
use std::time::{Duration, Instant};

use bellwire::{Current, RunDir, SnapshotCache};
use bellwire_cgroups::{CgroupsSnapshot, Index};

use super::protocol::FromConsumer;
use super::tally::Tally;
use crate::exit::{Failure, chain};
use crate::out;
pub(super) use arrivals::Arrivals;
pub(super) use figures::{Burst, LaneChange, LaneSpan, SessionFigures, Shown};
use held::Memory;
use line::Line;
use phase::PhaseClient;
pub(super) use phase::{DemoPhase, Order, Phase, answer};
pub(super) use served::Handler;

/// The numbers of cgroups in the burst's snapshots.
pub(super) const SNAPSHOTS: [usize; 3] = [16, 100_000, 16];
/// The longest message of the burst, in bytes.
pub(super) const LONGEST: usize = 16 << 20;
/// How long a snapshot may take. An unoptimized build on a busy machine needs many seconds for a large one.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long the release of memory may take at the end, and how often it is checked.
const REST: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

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
    phase: PhaseClient,
    done: Option<Burst>,
}

impl BurstClient {
    /// Opens the sessions.
    pub(super) fn connect(run_dir: &RunDir) -> Result<Self, Failure> {
        let lines = [Line::connect("burst", run_dir)?, Line::connect("burst 2", run_dir)?];
        Ok(Self { lines, phase: PhaseClient::connect(run_dir)?, done: None })
    }

    /// Runs the whole phase. A failure is counted as an error; the checks then find what is missing.
    pub(super) fn run(
        &mut self,
        cache: &mut SnapshotCache<CgroupsSnapshot>,
        tally: &mut Tally,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        let mut burst = Burst::default();
        let ran = self.all(cache, tally, &mut burst);
        let back = self.back(cache, tally);
        for trouble in [&ran, &back] {
            if let Err(Trouble::Wrong(what)) = trouble {
                tally.error(&format!("burst: {what}"));
            }
        }
        burst.seconds = begun.elapsed().as_secs_f64();
        for line in &self.lines {
            line.add_to(&mut burst);
        }
        self.done = Some(burst);
        match (ran, back) {
            (Err(Trouble::Output(failure)), _) | (_, Err(Trouble::Output(failure))) => Err(failure),
            _ => Ok(()),
        }
    }

    /// Returns its figures, if it ran, and the sessions as they are now.
    pub(super) fn end(mut self) -> (Option<Burst>, Vec<SessionFigures>) {
        let [first, second] = &mut self.lines;
        let sessions = [first.figures(), second.figures(), self.phase.figures()];
        (self.done, sessions.into_iter().flatten().collect())
    }

    fn all(
        &mut self,
        cache: &mut SnapshotCache<CgroupsSnapshot>,
        tally: &mut Tally,
        burst: &mut Burst,
    ) -> Result<(), Trouble> {
        let [few, many, few_again] = SNAPSHOTS;
        burst.snapshots.push(self.show(1, few, cache, tally)?);
        burst.shared.before = self.phase.held()?;
        burst.snapshots.push(self.show(2, many, cache, tally)?);
        self.messages()?;
        burst.shared.most = self.phase.held()?;
        for line in &mut self.lines {
            line.trim()?;
        }
        burst.snapshots.push(self.show(3, few_again, cache, tally)?);
        burst.shared.after = self.rest(burst.shared.before)?;
        Ok(())
    }

    /// Waits until the provider, which watches the memory that it passed, has seen its return, and returns what is still
    /// held.
    fn rest(&mut self, before: Memory) -> Result<Memory, Trouble> {
        let until = Instant::now() + REST;
        loop {
            let now = self.phase.held()?;
            if now.pieces <= before.pieces || Instant::now() >= until {
                return Ok(now);
            }
            thread::sleep(LOOK);
        }
    }

    /// Makes the provider publish this machine's cgroups again, and waits for them.
    fn back(
        &mut self,
        cache: &mut SnapshotCache<CgroupsSnapshot>,
        tally: &mut Tally,
    ) -> Result<(), Trouble> {
        let begun = cache.current().map_or(0, Current::generation);
        self.phase.order(Phase::Real)?;
        next(cache, tally, Instant::now() + PATIENCE, |generation, _| generation > begun)?;
        Ok(())
    }

    fn messages(&mut self) -> Result<(), Trouble> {
        let [first, second] = &mut self.lines;
        GROWTH.iter().try_for_each(|step| first.take(*step))?;
        SECOND.iter().try_for_each(|step| second.take(*step))?;
        let shared = Line::attached(ATTACHED)?;
        first.call_attached(&shared)?;
        second.call_attached(&shared)
    }

    /// Makes the provider publish synthetic cgroups, and waits until all of them were seen.
    fn show(
        &mut self,
        seed: u64,
        cgroups: usize,
        cache: &mut SnapshotCache<CgroupsSnapshot>,
        tally: &mut Tally,
    ) -> Result<Shown, Trouble> {
        let expected = phase::synthetic(cgroups, seed);
        let begun = Instant::now();
        self.phase.order(Phase::Show { cgroups, seed })?;
        let same = |_, index: &Index| phase::is_exactly(index.view(), &expected);
        let (generation, bytes) = next(cache, tally, begun + PATIENCE, same)?;
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let shown = Shown { cgroups, generation, bytes, nanos };
        out::json_line(&FromConsumer::Shown(shown))?;
        Ok(shown)
    }
}

/// Waits for the intended snapshot and checks each one that arrives. Returns its generation and its length in bytes.
fn next(
    cache: &mut SnapshotCache<CgroupsSnapshot>,
    tally: &mut Tally,
    until: Instant,
    is_meant: impl Fn(u64, &Index) -> bool,
) -> Result<(u64, usize), Trouble> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let waited = cache.wait_for_change(Some(left));
        let waited = waited.map_err(|error| Trouble::Wrong(chain(&error)))?;
        tally.came(cache);
        let current = cache.current();
        let meant = current.filter(|current| is_meant(current.generation(), current.index()));
        if let Some(meant) = meant {
            return Ok((meant.generation(), meant.bytes().len()));
        }
        if left.is_zero() {
            let state = cache.state();
            return Err(Trouble::Wrong(format!(
                "the snapshot did not come: {waited:?}, {state:?}"
            )));
        }
    }
}

/// Why the phase ended early.
#[derive(Debug)]
enum Trouble {
    /// A message failed, or an expected one did not arrive.
    Wrong(String),
    /// Nobody reads the consumer's output.
    Output(Failure),
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Output(error.into())
    }
}

impl From<bellwire::CallError> for Trouble {
    fn from(error: bellwire::CallError) -> Self {
        Self::Wrong(chain(&error))
    }
}

impl From<bellwire::Shortage> for Trouble {
    fn from(error: bellwire::Shortage) -> Self {
        Self::Wrong(chain(&error))
    }
}
