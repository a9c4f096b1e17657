//! One processor's share of the points.

use std::collections::HashMap;
use std::time::Duration;

use fastrand::Rng;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::address::{Address, Depth};
use crate::args::Args;
use crate::channel::Channel;
use crate::error::{Error, Result, system};
use crate::phase::Phase;
use crate::testbed::{Outcome, Testbed, Traces};
use crate::trace::{Span, draw};

/// What a worker reports.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The first point of a phase: how many system calls and instructions the phase has.
    Phase {
        phase: String,
        calls: usize,
        instructions: u64,
    },
    Killed {
        address: String,
        published: bool,
    },
    /// The scenario ended before the address was reached.
    Past {
        address: String,
    },
    Found {
        address: String,
        what: String,
    },
}

/// Kills at points `index`, `index + of`, … and reports each. The process exits if that fails.
pub(crate) fn run(args: &Args, seed: u64, (index, of): (u64, u64), campaign: Channel) {
    if let Err(error) = kill_all(args, seed, (index, of), campaign) {
        eprintln!("error: {error}");
        std::process::exit(2);
    }
}

fn kill_all(args: &Args, seed: u64, (index, of): (u64, u64), campaign: Channel) -> Result<()> {
    pin(index)?;
    let mut worker = Worker {
        campaign,
        testbed: None,
        traces: Traces::new(),
        spans: HashMap::new(),
        timeout: Duration::from_secs(args.timeout),
    };
    let phases = args.phases();
    let mut last = None;
    for point in (index..args.points).step_by(usize::try_from(of).unwrap_or(1)) {
        let at = usize::try_from(point).unwrap_or(0) % phases.len();
        let Some(phase) = phases.get(at).copied() else { break };
        let mut address =
            args.only.unwrap_or(Address { phase, calls: 0, depth: Depth::Instructions(0) });
        let result = worker.kill_once(args, random(seed, point), &mut address);
        let name = address.to_string();
        let report = match result {
            Ok(Outcome::Killed { published }) => Report::Killed { address: name, published },
            Ok(Outcome::Past) => Report::Past { address: name },
            Err(Error::Survivor(what)) => {
                // The survivors are in an unknown state: the next victims get new ones.
                worker.traces = worker.testbed.take().map(Testbed::into_traces).unwrap_or_default();
                Report::Found { address: name, what }
            }
            Err(error) => return Err(error),
        };
        worker.campaign.send(&report)?;
        last = Some(address);
    }
    if let (Some(testbed), Some(address)) = (&mut worker.testbed, last)
        && let Err(Error::Survivor(what)) = testbed.verify_all()
    {
        worker.campaign.send(&Report::Found { address: address.to_string(), what })?;
    }
    Ok(())
}

/// The random numbers of one point, whichever worker it falls to.
fn random(seed: u64, point: u64) -> Rng {
    Rng::with_seed(seed ^ point.wrapping_mul(0xd134_2543_de82_ef95))
}

struct Worker {
    /// Where it reports.
    campaign: Channel,
    testbed: Option<Testbed>,
    traces: Traces,
    spans: HashMap<&'static str, Vec<Span>>,
    timeout: Duration,
}

impl Worker {
    /// Draws a point, unless one is given, and kills there.
    fn kill_once(
        &mut self,
        args: &Args,
        mut random: Rng,
        address: &mut Address,
    ) -> Result<Outcome> {
        let testbed = match &mut self.testbed {
            Some(testbed) => testbed,
            none => none.insert(Testbed::new(std::mem::take(&mut self.traces), self.timeout)?),
        };
        if args.only.is_none() {
            let phase = address.phase;
            let spans = match self.spans.get(phase.name) {
                Some(spans) => spans,
                None => self.spans.entry(phase.name).or_insert(find_spans(
                    testbed,
                    phase,
                    &mut self.campaign,
                )?),
            };
            *address = draw(phase, spans, &mut random).ok_or_else(|| empty(phase))?;
        }
        testbed.kill_at(*address)
    }
}

/// How often a trace is recorded again if a phase is missing from it: on a busy machine a victim may find its answer
/// before it has armed its doorbell.
const TRACE_RETRIES: u32 = 4;

/// Finds the spans of a phase in the trace of a victim that is not killed.
fn find_spans(
    testbed: &mut Testbed,
    phase: &'static Phase,
    campaign: &mut Channel,
) -> Result<Vec<Span>> {
    let mut spans = testbed.trace(phase)?.spans(phase);
    for _ in 0..TRACE_RETRIES {
        if spans.is_ok() {
            break;
        }
        testbed.forget(phase);
        spans = testbed.trace(phase)?.spans(phase);
    }
    let spans = spans?;
    let calls = spans.iter().filter(|span| span.is_behind_call()).count();
    let instructions = spans.iter().map(Span::len).sum();
    campaign.send(&Report::Phase { phase: phase.name.to_owned(), calls, instructions })?;
    Ok(spans)
}

fn empty(phase: &Phase) -> Error {
    Error::NoPhase { phase: phase.name, why: "it has no instruction".to_owned() }
}

/// All of a worker's processes share one processor: a switch between two of them is cheap, a wake-up across
/// processors is not.
fn pin(index: u64) -> Result<()> {
    let here = Pid::from_raw(0);
    let allowed = sched_getaffinity(here).map_err(system("query the CPU affinity"))?;
    let cpus: Vec<usize> =
        (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)).collect();
    let at = usize::try_from(index).unwrap_or(0) % cpus.len().max(1);
    let mut set = CpuSet::new();
    if let Some(cpu) = cpus.get(at) {
        set.set(*cpu).map_err(system("select a processor"))?;
        sched_setaffinity(here, &set).map_err(system("set the CPU affinity"))?;
    }
    Ok(())
}
