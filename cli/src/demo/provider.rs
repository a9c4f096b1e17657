//! The demo's provider process.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use bellwire::{EventPublisher, RunDir, Server};
use bellwire_cgroups::CgroupsSnapshot;
use bellwire_process::{Subprocess, at_end_of_input};

use super::args::DemoProvider;
use super::burst::{DemoWorkload, Handler, Order, answer};
use super::figures::Served;
use super::services::{DemoPing, DemoTick};
use crate::exit::{Exit, Failure, chain};
use crate::out;
use crate::provide::{Feed, Source, unserved};
use crate::stop::{Stop, StopReason};
use crate::this_program;
use bellwire_cgroups::scan::Limits;

/// How often the provider scans the hierarchy.
const INTERVAL: Duration = Duration::from_millis(50);
/// How many events are published at once, and how often.
const TICKS: u64 = 100;
const TICK: Duration = Duration::from_millis(10);
/// What it prints when it serves.
const READY: &str = "ready";
/// How long it may take to start or to end, on a machine that is not overloaded.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// The provider, as the demo sees it: this program again, with a hidden subcommand. It ignores Ctrl-C.
pub(super) struct Provider {
    process: Subprocess,
    lines: Receiver<Option<String>>,
}

impl Provider {
    /// Starts it, and returns when it serves.
    pub(super) fn start(run_dir: &Path, root: Option<&Path>) -> Result<Self, Failure> {
        let failed =
            |error| Failure::of(Exit::Failed, "cannot start a process of the demo", &error);
        let mut command = Command::new(this_program().map_err(failed)?);
        command.arg("--run-dir").arg(run_dir).arg("demo-provider");
        if let Some(root) = root {
            command.arg("--root").arg(root);
        }
        let (sender, lines) = mpsc::channel();
        let on_line = move |line| drop(sender.send(line));
        let process = Subprocess::start(&mut command, on_line).map_err(failed)?;
        match lines.recv_timeout(REPLY_TIMEOUT) {
            Ok(Some(line)) if line == READY => Ok(Self { process, lines }),
            _ => Err(Failure::new(Exit::Failed, "the demo's provider did not start")
                .next("`bellwire doctor` shows what this machine lacks")),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }

    /// Ends it. Returns its counters, and what was wrong with its end.
    pub(super) fn end(mut self) -> (Option<Served>, Option<String>) {
        self.process.close();
        let mut served = None;
        loop {
            match self.lines.recv_timeout(REPLY_TIMEOUT) {
                Ok(Some(line)) => served = serde_json::from_str(&line).ok(),
                Ok(None) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    return (served, Some("the provider did not end and was killed".to_owned()));
                }
            }
        }
        let wrong = match self.process.wait() {
            Ok(status) if status.success() => None,
            Ok(status) => Some(format!("the provider ended with {status}")),
            Err(error) => Some(error.to_string()),
        };
        (served, wrong)
    }
}

pub(crate) fn run(run_dir: &RunDir, args: &DemoProvider) -> Result<Exit, Failure> {
    let stop = Stop::on_termination()?;
    let mut builder = Server::builder(run_dir);
    let failed = |error| unserved(run_dir, &error);
    let publisher = builder.publish::<CgroupsSnapshot>().map_err(failed)?;
    builder.serve::<DemoPing>(|_, request| Ok(DemoPing::answer(request))).map_err(failed)?;
    let ticks = builder.events::<DemoTick>(DemoTick::DEPTH).map_err(failed)?;
    let handler = Handler::default();
    handler.join(&mut builder).map_err(failed)?;
    let (sender, orders) = mpsc::channel();
    let stopped = sender.clone();
    stop.on_request(move || drop(stopped.send(Order::Stop)));
    builder.serve::<DemoWorkload>(move |_, workload| answer(&sender, workload)).map_err(failed)?;
    let source = match &args.root {
        Some(root) => Source::hierarchy(root, Limits::default()),
        None => Source::synthetic(),
    };
    let mut feed = Feed::new(source, publisher);
    feed.step().map_err(|error| Failure::of(Exit::Failed, "no snapshot", &error))?;
    let server = builder.start().map_err(failed)?;
    out::write_all(format!("{READY}\n").as_bytes())?;
    let asked = stop.clone();
    at_end_of_input(move || _ = asked.request(StopReason::Asked));
    tick(ticks, &stop);
    let (generations, failed_scans) = follow(&mut feed, &orders);
    let stats = server.stop();
    out::json_line(&Served {
        sessions: stats.admitted,
        handshakes_failed: stats.handshakes_failed,
        accepted: stats.accepted,
        answered: stats.answered,
        refused: stats.refused,
        lost: stats.lost,
        poisoned: stats.poisoned,
        rings: stats.rings,
        parks: stats.parks,
        generations,
        failed_scans,
        burst: handler.arrivals(),
    })?;
    Ok(Exit::Ok)
}

/// Publishes changes, or what an order asks for. Returns how many generations there were, and how many scans failed.
fn follow(feed: &mut Feed, orders: &Receiver<Order>) -> (u64, u64) {
    let (mut generations, mut failed) = (1, 0);
    // The machine's source, while another one is published.
    let mut real = None;
    let mut due = Instant::now() + INTERVAL;
    loop {
        match orders.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(Order::Publish(Some((cgroups, seed)))) => {
                let count = usize::try_from(cgroups).unwrap_or(usize::MAX);
                let until_now = feed.replace_source(Source::Synthetic { count, seed });
                real.get_or_insert(until_now);
            }
            Ok(Order::Publish(None)) => {
                if let Some(real) = real.take() {
                    feed.replace_source(real);
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                due = (due + INTERVAL).max(Instant::now());
                // Synthetic cgroups do not change.
                if real.is_some() {
                    continue;
                }
            }
            Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return (generations, failed),
        }
        match feed.step() {
            Ok(Some(_)) => generations += 1,
            Ok(None) => {}
            Err(error) => {
                failed += 1;
                if failed == 1 {
                    eprintln!("bellwire demo: the last snapshot stays: {}", chain(&error));
                }
            }
        }
    }
}

/// Publishes events until the end: some at a time, a hundred times a second.
fn tick(ticks: EventPublisher<DemoTick>, stop: &Stop) {
    let stop = stop.clone();
    thread::spawn(move || {
        while stop.requested().is_none() {
            let first = ticks.sent() + 1;
            let events: Vec<u64> = (first..first + TICKS).map(DemoTick::contents).collect();
            if let Err(error) = ticks.send_all(&events) {
                eprintln!("bellwire demo: no events any more: {}", chain(&error));
                return;
            }
            stop.sleep_until(Instant::now() + TICK);
        }
    });
}
