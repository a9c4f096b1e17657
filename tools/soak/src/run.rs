//! The phases of a soak: rounds of faults, each followed by a quiet phase in which all processes run and the steady ones are
//! sampled.

use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use bellwire_process::{self as process, ResourceUsage};
use fastrand::Rng;

use crate::Event;
use crate::args::Soak;
use crate::faults::{Fault, Fired};
use crate::members::{Launch, Member, ROLES, Role, State};
use crate::protocol::{CallCounts, ChildMessage, ConsumerCalls, Defect, Served};
use crate::report::Report;
use bellwire_cli::exit::{Exit, Failure};
use bellwire_cli::stop::{Stop, StopReason};

/// The minimum and maximum duration of the faults of one round. In between, a twelfth of the whole run.
const FAULTS: [Duration; 2] = [Duration::from_millis(800), Duration::from_millis(2_000)];
/// How long all processes run before the steady ones are sampled.
const SETTLE_TIME: Duration = Duration::from_millis(400);
/// How long it may take until every intended session is open.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of first rounds whose samples do not count: figures that grow with use have grown by then.
const UNCOUNTED: u32 = 1;
/// The minimum number of samples: a run with fewer continues after its time, up to thrice that.
const SAMPLES: usize = 6;
/// How long a process may take to start, or to end in order. Generous, since the machine may be busy.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(30);

/// All results of a soak.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) seed: u64,
    pub(super) seconds: f64,
    pub(super) fired: Fired,
    /// The number of the steady consumer.
    pub(super) steady_id: u64,
    /// Counters of the steady consumer.
    pub(super) steady: ConsumerCalls,
    /// Counters of all other consumers, as last reported.
    pub(super) faulted_consumers: ConsumerCalls,
    pub(super) provider: Served,
    /// Counters of all providers with faults, as last reported.
    pub(super) faulted_providers: Served,
    /// Reports that did not add up, of any process at any time.
    pub(super) unreconciled: u64,
    /// Processes that ended otherwise than requested.
    pub(super) process_failures: Vec<String>,
    /// The second of each sample, and what the steady provider and the steady consumer held.
    pub(super) samples: Vec<(f64, [ResourceUsage; 2])>,
    pub(super) interrupted: Option<StopReason>,
}

impl Outcome {
    /// Returns the counters of all consumers.
    pub(super) fn total(&self) -> CallCounts {
        let mut total = self.steady.total();
        total.add(&self.faulted_consumers.total());
        total
    }
}

pub(super) struct Run<'a> {
    launch: Launch<'a>,
    members: Vec<Member>,
    next_id: u64,
    random: Rng,
    events: Receiver<Event>,
    stop: Stop,
    began: Instant,
    reported_at: Instant,
    /// Faults to inject before any random ones.
    due: Vec<Fault>,
    /// Processes that end now are not replaced.
    is_ending: bool,
    outcome: Outcome,
}

impl<'a> Run<'a> {
    pub(super) fn start(
        run_dir: &'a Path,
        args: &'a Soak,
        stop: &Stop,
        report: &mut Report,
    ) -> Result<Self, Failure> {
        let (sender, events) = mpsc::channel();
        let stopped = sender.clone();
        stop.on_request(move || drop(stopped.send(Event::Stop)));
        let seed = args.seed.unwrap_or_else(|| u64::from(std::process::id()));
        let now = Instant::now();
        let mut run = Self {
            launch: Launch { run_dir, args, seed, events: sender },
            members: Vec::new(),
            next_id: 0,
            random: Rng::with_seed(seed),
            events,
            stop: stop.clone(),
            began: now,
            reported_at: now,
            due: Fault::each(),
            is_ending: false,
            outcome: Outcome { seed, ..Outcome::default() },
        };
        report.start(seed)?;
        for role in ROLES {
            let who = run.number();
            if role == Role::SteadyConsumer {
                run.outcome.steady_id = who;
            }
            run.members.push(Member::start(role, who, &run.launch)?);
            // Providers first, so that consumers find them.
            if !run.until(PROCESS_TIMEOUT, report, Run::everybody_runs)? {
                return Err(Failure::new(
                    Exit::Failed,
                    format!("the {} did not start", role.name()),
                )
                .next("`bellwire doctor` shows what this machine lacks"));
            }
        }
        run.began = Instant::now();
        Ok(run)
    }

    /// Runs all rounds and ends everything in order.
    pub(super) fn finish(mut self, report: &mut Report) -> Result<Outcome, Failure> {
        let whole = Duration::from_secs(self.launch.args.seconds.into());
        let mut round = 0;
        let lasts = |run: &Self| {
            let (elapsed, samples) = (run.began.elapsed(), run.outcome.samples.len());
            elapsed < whole || (samples < SAMPLES && elapsed < whole * 3)
        };
        while lasts(&self) && !self.is_over() {
            self.faults(report)?;
            self.settle_and_sample(report, round >= UNCOUNTED)?;
            round += 1;
        }
        self.end(report)?;
        self.outcome.seconds = self.began.elapsed().as_secs_f64();
        Ok(self.outcome)
    }

    fn faults(&mut self, report: &mut Report) -> Result<(), Failure> {
        let [least, most] = FAULTS;
        let whole = Duration::from_secs(self.launch.args.seconds.into());
        let until = Instant::now() + (whole / 12).clamp(least, most);
        while Instant::now() < until && !self.is_over() {
            let every = u64::try_from(self.launch.args.kill_every.as_millis()).unwrap_or(400);
            let pause = Duration::from_millis(self.random.u64(every / 2..=every + every / 2));
            self.until(pause, report, Run::is_over)?;
            // One of each kind first, so that none is left out by chance.
            let fault = self.due.pop().unwrap_or_else(|| Fault::draw(&mut self.random));
            if !self.inject(fault)? && self.due.len() < Fault::each().len() {
                self.due.insert(0, fault);
            }
        }
        Ok(())
    }

    /// Waits until all processes run again, and samples the steady ones.
    fn settle_and_sample(&mut self, report: &mut Report, counts: bool) -> Result<(), Failure> {
        if !self.until(PROCESS_TIMEOUT, report, |run| run.everybody_runs() || run.is_over())? {
            self.outcome
                .process_failures
                .push("a process or a session was not restored in time".into());
        }
        self.until(SETTLE_TIME, report, Run::is_over)?;
        self.until(OPEN_TIMEOUT, report, |run| run.all_sessions_open() || run.is_over())?;
        if self.is_over() || !self.all_sessions_open() || !counts {
            return Ok(());
        }
        let held = [Role::SteadyProvider, Role::SteadyConsumer].map(|role| {
            let pid = self.members.iter().find(|member| member.role == role).and_then(Member::pid);
            pid.and_then(|pid| process::resource_usage(pid).ok())
        });
        if let [Some(provider), Some(consumer)] = held {
            let at = self.began.elapsed().as_secs_f64();
            self.outcome.samples.push((at, [provider, consumer]));
        }
        Ok(())
    }

    /// Injects a fault; returns false if there is no process for it.
    fn inject(&mut self, fault: Fault) -> Result<bool, Failure> {
        let now = Instant::now();
        let defect = self.launch.args.defect;
        let away = Duration::from_millis(self.random.u64(..200));
        let Some(member) = self
            .members
            .iter_mut()
            .find(|member| member.role == fault.role() && member.state == State::Running)
        else {
            return Ok(false);
        };
        match fault {
            Fault::Kill(_) if defect == Some(Defect::NoKill) => {}
            Fault::Kill(role) => {
                if member.kill().is_some_and(process::was_killed) {
                    self.outcome.fired.killed(role);
                }
                member.state = State::Away(now + away);
                self.account(role);
            }
            Fault::Stop(role, millis) => {
                let Some(pid) = member.pid() else { return Ok(false) };
                process::stop(pid)?;
                let limit = now + PROCESS_TIMEOUT;
                while !process::is_stopped(pid) && Instant::now() < limit {
                    thread::sleep(Duration::from_micros(100));
                }
                if process::is_stopped(pid) {
                    self.outcome.fired.stopped(role);
                }
                member.state = State::Stopped(Instant::now() + Duration::from_millis(millis));
            }
            Fault::Restart(_) => {
                member.ask_to_end();
                member.state = State::Ending(now + PROCESS_TIMEOUT);
            }
        }
        Ok(true)
    }

    /// Handles events and due actions until `done` or for `limit`. Returns whether it is done.
    fn until(
        &mut self,
        limit: Duration,
        report: &mut Report,
        done: impl Fn(&Self) -> bool,
    ) -> Result<bool, Failure> {
        let until = Instant::now() + limit;
        while !done(self) {
            self.run_due_actions()?;
            let now = Instant::now();
            if now >= until {
                return Ok(false);
            }
            if now - self.reported_at >= report.every() {
                self.reported_at = now;
                self.report_progress(report)?;
            }
            let due = self.next_due().min(until).min(self.reported_at + report.every());
            if let Ok(event) = self.events.recv_timeout(due.saturating_duration_since(now)) {
                self.take(event);
            }
        }
        Ok(true)
    }

    fn report_progress(&self, report: &Report) -> Result<(), Failure> {
        let mut consumer_calls = self.outcome.faulted_consumers.clone();
        self.members.iter().for_each(|member| consumer_calls.add(&member.consumer_calls));
        let held = self.outcome.samples.last().map(|(_, held)| *held);
        report.progress(self.began.elapsed(), &consumer_calls.total(), &self.outcome.fired, held)
    }

    fn take(&mut self, event: Event) {
        let (who, event) = match event {
            Event::Stop => {
                self.outcome.interrupted = self.stop.requested();
                return;
            }
            Event::ChildMessage(who, received) => (who, Some(received)),
            Event::Ended(who) => (who, None),
        };
        // Messages of a killed process may still arrive.
        let Some(member) = self.members.iter_mut().find(|member| member.who == who) else { return };
        match event {
            Some(ChildMessage::Ready) => member.state = State::Running,
            Some(ChildMessage::ConsumerCalls(consumer_calls)) => {
                let is_sound =
                    consumer_calls.steady.is_sound() && consumer_calls.faulted.is_sound();
                self.outcome.unreconciled += u64::from(!is_sound);
                member.consumer_calls = consumer_calls;
            }
            Some(ChildMessage::Served(served)) => member.served = served,
            Some(ChildMessage::Done) => member.is_done = true,
            None => self.ended(who),
        }
    }

    /// A process has closed its output.
    fn ended(&mut self, who: u64) {
        let Some(member) = self.members.iter_mut().find(|member| member.who == who) else { return };
        // A killed process has been waited for already.
        let Some(status) = member.wait() else { return };
        let (role, was_requested) = (member.role, matches!(member.state, State::Ending(_)));
        let is_clean = status.success() && member.is_done;
        let reconciles = role.is_consumer() || member.served.reconciles();
        member.state = State::Away(Instant::now());
        if !was_requested || !is_clean {
            self.outcome.process_failures.push(format!("the {} ended with {status}", role.name()));
        } else if !role.is_steady() && !self.is_ending {
            self.outcome.fired.restarted(role);
        }
        if was_requested && !reconciles {
            self.outcome
                .process_failures
                .push(format!("the {}'s counters do not add up", role.name()));
        }
        self.account(role);
    }

    /// Adds the counters of a process that has ended.
    fn account(&mut self, role: Role) {
        let Some(member) = self.members.iter_mut().find(|member| member.role == role) else {
            return;
        };
        let consumer_calls = std::mem::take(&mut member.consumer_calls);
        let served = std::mem::take(&mut member.served);
        let Outcome { steady, faulted_consumers, provider, faulted_providers, fired, .. } =
            &mut self.outcome;
        let (grown, shrunk) = (consumer_calls.total().grown, consumer_calls.total().shrunk);
        fired.lanes_grown += grown;
        fired.lanes_shrunk += shrunk;
        fired.clients_stalled += served.stalled;
        match role {
            Role::SteadyConsumer => *steady = consumer_calls,
            Role::SteadyProvider => *provider = served,
            Role::FaultedConsumer(_) => faulted_consumers.add(&consumer_calls),
            Role::FaultedProvider => {
                faulted_providers.damaged += served.damaged;
                faulted_providers.repeated += served.repeated;
                faulted_providers.poisoned += served.poisoned;
                faulted_providers.stalled += served.stalled;
            }
        }
    }

    fn run_due_actions(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        for at in 0..self.members.len() {
            let is_restarted = self.is_restarted(at);
            let Some(member) = self.members.get_mut(at) else { break };
            match member.state {
                State::Stopped(until) if now >= until => {
                    if let Some(pid) = member.pid() {
                        process::resume(pid)?;
                    }
                    member.state = State::Running;
                }
                State::Ending(until) if now >= until => {
                    let role = member.role;
                    member.kill();
                    member.state = State::Away(now);
                    let failure = format!("the {} did not end and was killed", role.name());
                    self.outcome.process_failures.push(failure);
                    self.account(role);
                }
                State::Away(until) if now >= until && is_restarted => {
                    let role = member.role;
                    let who = self.number();
                    let next = Member::start(role, who, &self.launch)?;
                    if let Some(member) = self.members.get_mut(at) {
                        *member = next;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn next_due(&self) -> Instant {
        let due = self.members.iter().enumerate().filter_map(|(at, member)| match member.state {
            State::Stopped(until) | State::Ending(until) => Some(until),
            State::Away(until) if self.is_restarted(at) => Some(until),
            _ => None,
        });
        due.min().unwrap_or_else(|| Instant::now() + PROCESS_TIMEOUT)
    }

    fn is_restarted(&self, at: usize) -> bool {
        !self.is_ending && self.members.get(at).is_some_and(|member| !member.role.is_steady())
    }

    /// Ends the consumers and then the providers.
    fn end(&mut self, report: &mut Report) -> Result<(), Failure> {
        self.is_ending = true;
        for is_consumer in [true, false] {
            for member in &mut self.members {
                if member.role.is_consumer() != is_consumer {
                    continue;
                }
                if let (State::Stopped(_), Some(pid)) = (member.state, member.pid()) {
                    process::resume(pid)?;
                }
                if member.pid().is_some() {
                    member.ask_to_end();
                    member.state = State::Ending(Instant::now() + PROCESS_TIMEOUT);
                }
            }
            let gone = |run: &Self| {
                let ours =
                    run.members.iter().filter(|member| member.role.is_consumer() == is_consumer);
                ours.into_iter().all(|member| !matches!(member.state, State::Ending(_)))
            };
            self.until(PROCESS_TIMEOUT + SETTLE_TIME, report, gone)?;
        }
        Ok(())
    }

    fn everybody_runs(&self) -> bool {
        self.members.iter().all(|member| member.state == State::Running)
    }

    /// Returns whether every intended session is open, so that samples are comparable.
    fn all_sessions_open(&self) -> bool {
        let consumers = ROLES.into_iter().filter(|role| role.is_consumer()).count() as u64;
        let sessions = consumers * u64::from(self.launch.args.sessions);
        let mut providers = self.members.iter().filter(|member| !member.role.is_consumer());
        self.everybody_runs() && providers.all(|member| member.served.sessions == sessions)
    }

    /// Returns whether there is no reason to continue.
    fn is_over(&self) -> bool {
        let is_lost =
            |member: &Member| member.role.is_steady() && matches!(member.state, State::Away(_));
        self.outcome.interrupted.is_some() || self.members.iter().any(is_lost)
    }

    fn number(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}
