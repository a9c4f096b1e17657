//! The whole run: workers on all processors, progress, and the summary.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, IsTerminal, Write, stderr};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::prctl::set_child_subreaper;
use nix::sys::wait::waitpid;
use serde::Serialize;

use crate::args::Args;
use crate::error::{Error, Result, io, system};
use crate::worker::Report;

/// The outcome of the run.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) seed: u64,
    /// How many victims were killed at their address.
    pub(crate) killed: u64,
    /// How many victims reached the end of their scenario first, and were killed after it.
    pub(crate) past: u64,
    pub(crate) seconds: f64,
    pub(crate) phases: BTreeMap<String, Tally>,
    pub(crate) findings: Vec<Finding>,
}

/// A survivor that misbehaved.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) address: String,
    pub(crate) what: String,
}

/// The points of one phase.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Tally {
    /// How many system calls and instructions the phase has.
    pub(crate) calls: usize,
    pub(crate) instructions: u64,
    pub(crate) killed: u64,
    pub(crate) past: u64,
    /// How many of the killed victims had published their message.
    pub(crate) published: u64,
    /// How many different addresses they were killed at.
    pub(crate) addresses: usize,
    #[serde(skip)]
    seen: BTreeSet<String>,
}

/// The worker processes. Dropping this kills them, and with them all processes that they started.
struct Workers(Vec<Child>);

impl Drop for Workers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Their child processes died with them, and this process reaps them.
        while waitpid(None, None).is_ok() {}
    }
}

pub(crate) fn run(args: &Args, seed: u64) -> Result<Summary> {
    let start = Instant::now();
    let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let count = processors.clamp(1, usize::try_from(args.points).unwrap_or(1).max(1));
    let (send, reports) = mpsc::channel();
    set_child_subreaper(true).map_err(system("become a child subreaper"))?;
    let mut workers = Workers(Vec::new());
    for index in 0..count {
        let mut child = worker(seed, index, count)?;
        let output = child.stdout.take();
        workers.0.push(child);
        let send = send.clone();
        thread::spawn(move || {
            for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()) {
                let Ok(line) = line else { return };
                let _ = send.send(serde_json::from_str::<Report>(&line).map_err(|_| line));
            }
        });
    }
    drop(send);
    let mut summary = Summary::new(seed);
    let mut shown_at = Instant::now();
    for report in reports {
        summary.add(report.map_err(Error::Worker)?);
        if summary.findings.len() >= args.findings {
            break;
        }
        if shown_at.elapsed() > PROGRESS_INTERVAL {
            shown_at = Instant::now();
            show_progress(&summary, args.points, start.elapsed());
        }
    }
    if stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    if summary.findings.len() < args.findings {
        for child in &mut workers.0 {
            let status = child.wait().map_err(io("wait for a worker"))?;
            if !status.success() {
                return Err(Error::Worker(status.to_string()));
            }
        }
    }
    summary.seconds = start.elapsed().as_secs_f64();
    Ok(summary)
}

const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// Starts this program again as worker `index` of `of`, with the same arguments and the seed.
fn worker(seed: u64, index: usize, of: usize) -> Result<Child> {
    let program = std::env::current_exe().map_err(io("find this program"))?;
    Command::new(program)
        .args(std::env::args_os().skip(1))
        .args(["--worker", &index.to_string(), &of.to_string()])
        .env(SEED, seed.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(io("start a worker"))
}

/// Carries the seed to the workers.
pub(crate) const SEED: &str = "BELLWIRE_KILL_SEED";

fn show_progress(summary: &Summary, points: u64, elapsed: Duration) {
    let mut out = stderr().lock();
    if out.is_terminal() {
        let done = summary.killed + summary.past;
        let rate = (done as f64) / elapsed.as_secs_f64();
        let findings = summary.findings.len();
        let _ = write!(
            out,
            "\r{done} of {points} points, {rate:.0} a second, {findings} findings\x1b[K"
        );
    }
}

impl Summary {
    fn new(seed: u64) -> Self {
        let phases = BTreeMap::new();
        Self { seed, killed: 0, past: 0, seconds: 0.0, phases, findings: Vec::new() }
    }

    fn add(&mut self, report: Report) {
        match report {
            Report::Phase { phase, calls, instructions } => {
                let tally = self.phases.entry(phase).or_default();
                tally.calls = tally.calls.max(calls);
                tally.instructions = tally.instructions.max(instructions);
            }
            Report::Killed { address, published } => {
                self.killed += 1;
                let tally = self.tally(&address);
                tally.killed += 1;
                tally.published += u64::from(published);
                tally.seen.insert(address);
                tally.addresses = tally.seen.len();
            }
            Report::Past { address } => {
                self.past += 1;
                self.tally(&address).past += 1;
            }
            Report::Found { address, what } => self.findings.push(Finding { address, what }),
        }
    }

    fn tally(&mut self, address: &str) -> &mut Tally {
        let phase = address.split(':').next().unwrap_or(address);
        self.phases.entry(phase.to_owned()).or_default()
    }
}
