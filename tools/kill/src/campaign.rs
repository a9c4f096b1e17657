//! The whole run: workers on all processors, progress, and the summary.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write, stderr};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::Serialize;

use crate::args::Args;
use crate::channel::Channel;
use crate::error::{Error, Result, system};
use crate::fork;
use crate::worker::{self, Report};

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
struct Workers(Vec<Pid>);

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &self.0 {
            let _ = kill(*worker, Signal::SIGKILL);
        }
        // Their child processes die with them, and this process reaps all.
        while waitpid(None, None).is_ok() {}
    }
}

pub(crate) fn run(args: &Args, seed: u64) -> Result<Summary> {
    let start = Instant::now();
    let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let count = processors.clamp(1, usize::try_from(args.points).unwrap_or(1).max(1)) as u64;
    set_child_subreaper(true).map_err(system("become a child subreaper"))?;
    let (mut workers, mut channels) = (Workers(Vec::new()), Vec::new());
    for index in 0..count {
        let [ours, theirs] = Channel::pair(["a worker", "the campaign"])?;
        workers.0.push(fork::start(|| worker::run(args, seed, (index, count), theirs))?);
        channels.push(ours);
    }
    let (send, reports) = mpsc::channel();
    for mut channel in channels {
        let send = send.clone();
        thread::spawn(move || {
            while let Some(report) = channel.receive::<Report>().transpose() {
                let is_last = report.is_err();
                if send.send(report).is_err() || is_last {
                    return;
                }
            }
        });
    }
    drop(send);
    let mut summary = Summary::new(seed);
    let mut shown_at = Instant::now();
    for report in reports {
        summary.add(report?);
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
        while let Some(worker) = workers.0.pop() {
            match waitpid(worker, None).map_err(system("wait for a worker"))? {
                WaitStatus::Exited(_, 0) => {}
                status => return Err(Error::Worker(format!("{status:?}"))),
            }
        }
    }
    summary.seconds = start.elapsed().as_secs_f64();
    Ok(summary)
}

const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

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
