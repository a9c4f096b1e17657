use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use super::child::{Process, Who};
use super::protocol::{FromConsumer, FromProvider, Served, ToConsumer, Totals};
use super::report::{Report, Start};
use super::world::{Change, World};
use super::{Event, Outcome};
use crate::exit::{Exit, Failure};
use crate::stop::Stop;
use crate::this_program;

/// How often the provider scans the hierarchy.
const INTERVAL: &str = "50ms";
/// How often cgroups change.
const STEP: Duration = Duration::from_millis(100);
/// How long both processes may be silent: an unoptimized build on a busy machine needs a minute for the burst's large
/// snapshot.
const SILENCE: Duration = Duration::from_secs(180);
/// How long a process may take for an immediate action, on a machine that is not overloaded.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running demo.
pub(super) struct Run {
    provider: Process,
    consumer: Process,
    events: Receiver<Event>,
    /// When a process last sent a message.
    heard: Instant,
    stop: Stop,
    seconds: u64,
    provider_ended: bool,
    consumer_ended: bool,
    outcome: Outcome,
}

impl Run {
    /// Starts both processes, the provider first.
    pub(super) fn start(
        run_dir: &Path,
        root: Option<&Path>,
        world: World,
        stop: &Stop,
        report: &mut Report,
    ) -> Result<Self, Failure> {
        let (sender, events) = mpsc::channel();
        let stopped = sender.clone();
        stop.on_request(move || drop(stopped.send(Event::Stop)));
        let mut command = again("demo-provider", run_dir)?;
        command.args(["--interval", INTERVAL]);
        if let Some(root) = root {
            command.arg("--root").arg(root);
        }
        let provider = Process::start(Who::Provider, &mut command, &sender, Event::Provider)?;
        let Event::Provider(FromProvider::Ready { cgroups, mode }) = next(&events, PATIENCE)?
        else {
            return Err(unready(Who::Provider));
        };
        let mut command = again("demo-consumer", run_dir)?;
        let consumer = Process::start(Who::Consumer, &mut command, &sender, Event::Consumer)?;
        let ready = next(&events, PATIENCE)?;
        let Event::Consumer(FromConsumer::Ready { connect_nanos, provider: seen }) = ready else {
            return Err(unready(Who::Consumer));
        };
        report.start(&Start {
            provider: provider.pid(),
            consumer: consumer.pid(),
            run_dir,
            real: root.is_some(),
            mode: &mode,
            cgroups,
            connect_nanos,
            world: &world,
        })?;
        let mut ends = Vec::new();
        if seen != Some(provider.pid()) {
            ends.push(format!("the consumer reached process {seen:?} instead of the provider"));
        }
        let outcome = Outcome {
            seconds: Vec::new(),
            lane_changes: Vec::new(),
            connect_nanos,
            totals: None,
            served: None,
            ends,
            world,
            interrupted: None,
        };
        Ok(Self {
            provider,
            consumer,
            events,
            heard: Instant::now(),
            stop: stop.clone(),
            seconds: report.seconds(),
            provider_ended: false,
            consumer_ended: false,
            outcome,
        })
    }

    /// Changes cgroups for the requested number of seconds, and ends everything in order.
    pub(super) fn measure(mut self, report: &mut Report) -> Result<Outcome, Failure> {
        self.change_the_world(report)?;
        self.settle(report)?;
        self.consumer.tell(&ToConsumer::Finish);
        self.until(PATIENCE, report, |run| run.consumer_ended)?;
        let consumer = self.consumer.end(self.consumer_ended);
        self.provider.close();
        self.until(PATIENCE, report, |run| run.provider_ended)?;
        let provider = self.provider.end(self.provider_ended);
        self.outcome.ends.extend([consumer, provider].into_iter().filter_map(Result::err));
        Ok(self.outcome)
    }

    fn change_the_world(&mut self, report: &mut Report) -> Result<(), Failure> {
        let whole = Duration::from_secs(self.seconds);
        let begun = Instant::now();
        let mut burst_due = true;
        while self.heard.elapsed() < SILENCE
            && (burst_due || !self.is_measured())
            && !self.is_over()
        {
            if burst_due && begun.elapsed() >= whole / 2 {
                self.consumer.tell(&ToConsumer::Burst);
                burst_due = false;
            }
            let changes = self.outcome.world.step();
            self.tell(changes);
            self.until(STEP, report, Self::is_measured)?;
        }
        Ok(())
    }

    /// Removes all cgroups and waits until the consumer has seen that.
    fn settle(&mut self, report: &mut Report) -> Result<(), Failure> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until && !self.outcome.world.is_settled() && !self.has_lost_one() {
            let changes = self.outcome.world.shrink();
            self.tell(changes);
            self.until(STEP, report, |run| run.outcome.world.is_settled())?;
        }
        Ok(())
    }

    fn tell(&mut self, changes: Vec<Change>) {
        for change in changes {
            self.consumer.tell(&match change {
                Change::Made(made) => ToConsumer::Made(made),
                Change::Removed(path) => ToConsumer::Removed { path },
            });
        }
    }

    /// Returns whether the last second is over. One line may cover several seconds, as long as the burst takes.
    fn is_measured(&self) -> bool {
        self.outcome.seconds.last().is_some_and(|last| last.second >= self.seconds)
    }

    /// Returns whether there is no reason to continue.
    fn is_over(&self) -> bool {
        self.outcome.interrupted.is_some() || self.has_lost_one()
    }

    /// Returns whether a process ended before it was asked to.
    fn has_lost_one(&self) -> bool {
        self.provider_ended || self.consumer_ended
    }

    /// Handles events until `done`, or for `limit`.
    fn until(
        &mut self,
        limit: Duration,
        report: &mut Report,
        done: impl Fn(&Self) -> bool,
    ) -> Result<(), Failure> {
        let until = Instant::now() + limit;
        while !done(self) {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(event) = self.events.recv_timeout(left) else { return Ok(()) };
            let stopped = matches!(event, Event::Stop);
            self.take(event, report)?;
            if stopped {
                return Ok(());
            }
        }
        Ok(())
    }

    fn take(&mut self, event: Event, report: &mut Report) -> Result<(), Failure> {
        self.heard = Instant::now();
        let is_measured = self.is_measured();
        let outcome = &mut self.outcome;
        match event {
            Event::Consumer(FromConsumer::Second(second)) => {
                if !is_measured {
                    outcome.seconds.push(second);
                    report.second(&second)?;
                }
            }
            Event::Consumer(FromConsumer::Lane(change)) => {
                report.lane(&change)?;
                outcome.lane_changes.push(change);
            }
            Event::Consumer(FromConsumer::Shown(shown)) => report.shown(&shown)?,
            Event::Consumer(FromConsumer::Found { path, ok }) => outcome.world.found(&path, ok),
            Event::Consumer(FromConsumer::Gone { ok, .. }) => outcome.world.gone(ok),
            Event::Consumer(FromConsumer::Done(totals)) => outcome.totals = Some::<Totals>(*totals),
            Event::Provider(FromProvider::Done(served)) => outcome.served = Some::<Served>(served),
            Event::Ended(Who::Provider) => self.provider_ended = true,
            Event::Ended(Who::Consumer) => self.consumer_ended = true,
            Event::Garbled(who, why) => {
                outcome.ends.push(format!("the {} sent an invalid message: {why}", who.name()));
            }
            Event::Stop => outcome.interrupted = self.stop.requested(),
            Event::Consumer(FromConsumer::Ready { .. })
            | Event::Provider(FromProvider::Ready { .. }) => {}
        }
        Ok(())
    }
}

/// Returns a command that runs this program again.
fn again(subcommand: &str, run_dir: &Path) -> Result<Command, Failure> {
    let failed = |error| Failure::of(Exit::Failed, "cannot find this program's file", &error);
    let mut command = Command::new(this_program().map_err(failed)?);
    command.arg("--run-dir").arg(run_dir).arg(subcommand);
    Ok(command)
}

fn next(events: &Receiver<Event>, limit: Duration) -> Result<Event, Failure> {
    let slow = |_| Failure::new(Exit::Deadline, "a process of the demo did not start in time");
    events.recv_timeout(limit).map_err(slow)
}

fn unready(who: Who) -> Failure {
    Failure::new(Exit::Failed, format!("the demo's {} did not start", who.name()))
        .next("`bellwire doctor` shows what this machine lacks")
}
