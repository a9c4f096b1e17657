//! One processor, two survivors, and a victim at a time.

mod judge;
mod survivors;

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use bellwire::{Event as _, Service, Snapshot};
use nix::unistd::pipe;

use self::judge::VictimState;
use self::survivors::Survivors;
use crate::address::{Address, Depth};
use crate::channel::{Command, ScenarioResult};
use crate::error::{Error, Result, system};
use crate::fork;
use crate::phase::{Kind, Language, Phase, Scenario, Side};
use crate::service::{NumberedCall, NumberedEvent, PassedSnapshot, RingSnapshot};
use crate::trace::{Gap, Trace};
use crate::tracee::{Code, Event, Page, Poller, Progress, Reached, Tracee, read_static};
use crate::victim::{self, RAN, VictimTask};

/// The outcome of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Killed there.
    Killed {
        /// Whether the victim's message was published by then.
        published: bool,
    },
    /// The scenario had ended; killed after it.
    Past,
}

/// Runs victims against the survivors.
pub(crate) struct Testbed {
    poller: Rc<Poller>,
    code: Code,
    survivors: Survivors,
    traces: Traces,
    /// The last point on each side whose survivor has not worked with a new peer since.
    unverified: HashMap<Side, Address>,
    number: u64,
    /// The survivor's handler holds the victim's request, or will do so.
    is_held: bool,
    timeout: Duration,
}

/// The traces of victims that were not killed.
pub(crate) type Traces = HashMap<Kind, Rc<Trace>>;

const SIDES: [Side; 2] = [Side::Client, Side::Server];

impl Testbed {
    /// Starts both survivors and runs a few victims against each: the resources that they hold then are the baseline.
    pub(crate) fn new(traces: Traces, timeout: Duration) -> Result<Self> {
        crate::service::prepare();
        let poller = Rc::new(Poller::new()?);
        let survivors = Survivors::start(Rc::clone(&poller), timeout)?;
        let mut testbed = Self {
            poller,
            code: Code::default(),
            survivors,
            traces,
            unverified: HashMap::new(),
            number: 0,
            is_held: false,
            timeout,
        };
        // The survivor listens by the time it answers.
        testbed.survivors.execute(Side::Client, &Command::Publish { number: 1 }, None)?;
        for side in SIDES {
            let publishing = match side {
                Side::Client => &[][..],
                Side::Server => &[Scenario::Broadcast, Scenario::Events],
            };
            let all = [Scenario::Fetch, Scenario::Attach, Scenario::Call];
            for scenario in publishing.iter().chain(&all) {
                testbed.dry_run((Language::Rust, side, *scenario), false)?;
            }
            testbed.survivors.quiesce(side)?;
        }
        Ok(testbed)
    }

    /// Returns the traces, for the next testbed.
    pub(crate) fn into_traces(mut self) -> Traces {
        std::mem::take(&mut self.traces)
    }

    /// Returns the trace of a phase's scenario without a kill.
    pub(crate) fn trace(&mut self, phase: &Phase) -> Result<Rc<Trace>> {
        let key = phase.kind();
        if let Some(trace) = self.traces.get(&key) {
            return Ok(Rc::clone(trace));
        }
        let trace = Rc::new(self.dry_run(phase.kind(), true)?);
        self.check_clean(phase.side)?;
        self.traces.insert(key, Rc::clone(&trace));
        Ok(trace)
    }

    /// Forgets the trace of a phase's scenario, so that the next call records another one.
    pub(crate) fn forget(&mut self, phase: &Phase) {
        self.traces.remove(&phase.kind());
    }

    /// Kills a victim at `address`, and queries the survivor.
    pub(crate) fn kill_at(&mut self, address: Address) -> Result<Outcome> {
        let Address { phase, calls, depth } = address;
        let trace = self.trace(phase)?;
        let moved = trace.moved;
        if phase.scenario == Scenario::Bind {
            self.verify(phase.side)?;
        }
        let task = self.next_task(phase.kind());
        let mut victim = self.start_at_gate(task)?;
        let progress = progress(&victim, task)?;
        let before = progress.map(Progress::read).transpose()?.unwrap_or_default();
        let reports = self.start_scenario(&mut victim, task)?;
        let mut reached = Reached::There;
        for _ in 0..calls {
            if self.step_over_call(&mut victim, task, reports)?.is_none() {
                reached = Reached::Past;
                break;
            }
        }
        if reached == Reached::There {
            match depth {
                Depth::Instructions(count) => {
                    let path = trace.gaps.get(calls).map_or(&[][..], |gap| &gap.path);
                    reached = victim.step(count, path, &mut self.code)?;
                }
                Depth::Asleep => reached = victim.run_to_sleep()?,
            }
        }
        let words = progress.map(Progress::read).transpose()?.unwrap_or_default().since(before);
        let ran = task.requests().last() == Some(read_static(victim.pid(), &RAN)?);
        victim.kill()?;

        self.unverified.insert(phase.side, address);
        self.release(phase.side)?;
        let total = phase.scenario.messages();
        let published =
            (total * words.tail).checked_div(moved.tail).map_or(0, |count| count.min(total));
        let taken = moved.head > 0 && words.head >= moved.head;
        let state = VictimState { published, total, taken, ran };
        let reads_late = phase.scenario == Scenario::Overrun;
        if reads_late {
            self.run_survivor(task)?;
        }
        if reports || reads_late {
            let result = self.survivors.scenario_result(phase.side, None)?;
            judge::check_result(task, state, &result)?;
        }
        let quiescent = self.survivors.quiesce(phase.side)?;
        judge::check_quiescent(task, state, &quiescent)?;
        Ok(match reached {
            Reached::There => Outcome::Killed { published: published == total },
            Reached::Past => Outcome::Past,
        })
    }

    /// Verifies that both survivors still work: runs a victim against each that is not killed before its scenario ends.
    pub(crate) fn verify_all(&mut self) -> Result<()> {
        SIDES.into_iter().try_for_each(|side| self.verify(side))
    }

    fn verify(&mut self, side: Side) -> Result<()> {
        self.dry_run((Language::Rust, side, Scenario::Call), false)?;
        self.check_clean(side)
    }

    fn check_clean(&mut self, side: Side) -> Result<()> {
        judge::check_clean(&self.survivors.quiesce(side)?)
    }

    fn next_task(&mut self, (language, side, scenario): Kind) -> VictimTask {
        self.number += 8;
        // A traced victim is slower than its survivor: without this the answer would arrive before the victim sleeps.
        let hold = side == Side::Client && scenario.is_short_call();
        VictimTask { language, side, scenario, number: self.number, hold }
    }

    /// Starts a victim and runs it to its gate: by then the survivor has worked with it correctly.
    fn start_at_gate(&mut self, task: VictimTask) -> Result<Tracee> {
        let connected = self.connect(task);
        let unverified = self.unverified.remove(&task.side);
        connected.map_err(|error| match (error, unverified) {
            (Error::Survivor(what), Some(address)) => Error::Survivor(format!(
                "after {address} it does not work with a new victim: {what}"
            )),
            (error, _) => error,
        })
    }

    fn connect(&mut self, task: VictimTask) -> Result<Tracee> {
        let VictimTask { side, scenario, number, .. } = task;
        let [first, second] = task.snapshots();
        let mut victim = self.start(task)?;
        victim.run_to(Event::Gate)?;
        match side {
            Side::Client if scenario == Scenario::Fetch => {
                let publish = Command::Publish { number: second };
                self.survivors.execute(side, &publish, Some(&mut victim))?;
            }
            Side::Server if scenario != Scenario::Bind => {
                let reads =
                    matches!(scenario, Scenario::Publish | Scenario::Broadcast | Scenario::Fetch);
                let snapshot = reads.then_some(first);
                let connect = Command::Connect { scenario, number, snapshot };
                self.survivors.execute(side, &connect, Some(&mut victim))?;
                if scenario == Scenario::Open {
                    self.survivors.execute(side, &Command::Disconnect, Some(&mut victim))?;
                }
                victim.resume_main()?;
                victim.run_to(Event::Gate)?;
            }
            _ => {}
        }
        Ok(victim)
    }

    fn start(&self, task: VictimTask) -> Result<Tracee> {
        let run_dir = self.survivors.run_dir(task.side).clone();
        let (wait, go) = pipe().map_err(system("create a pipe"))?;
        let pid = fork::start(|| victim::run(task, &run_dir, &wait))?;
        let victim = Tracee::seize(pid, Rc::clone(&self.poller), self.timeout)?;
        nix::unistd::write(&go, &[0]).map_err(system("start a victim"))?;
        Ok(victim)
    }

    /// Watches the relevant thread, and starts the survivor's half of the scenario. Returns whether the survivor will
    /// report a result.
    fn start_scenario(&mut self, victim: &mut Tracee, task: VictimTask) -> Result<bool> {
        let VictimTask { side, scenario, .. } = task;
        self.is_held = task.hold;
        if side == Side::Client || scenario == Scenario::Bind {
            return Ok(false);
        }
        let is_watched_asleep = !scenario.is_publishing();
        if is_watched_asleep {
            victim.watch_second()?;
            victim.enter_wait()?;
        }
        let reports = !matches!(scenario, Scenario::Close | Scenario::Overrun);
        if reports {
            self.run_survivor(task)?;
        } else if is_watched_asleep {
            victim.resume_main()?;
        }
        if is_watched_asleep {
            victim.leave_call(None)?;
        }
        Ok(reports)
    }

    /// Starts the survivor's half of the scenario.
    fn run_survivor(&mut self, task: VictimTask) -> Result<()> {
        let VictimTask { side, scenario, .. } = task;
        let [_, snapshot] = task.snapshots();
        let number = if scenario.calls() { task.requests().start } else { snapshot };
        self.survivors.send(side, &Command::Run { scenario, number })
    }

    /// Runs a scenario to its end; records a trace, instruction by instruction, if `records`.
    fn dry_run(&mut self, kind: Kind, records: bool) -> Result<Trace> {
        let task = self.next_task(kind);
        let VictimTask { side, scenario, .. } = task;
        let mut victim = self.start_at_gate(task)?;
        let progress = progress(&victim, task)?;
        let reports = self.start_scenario(&mut victim, task)?;
        let mut trace = Trace::default();
        if records {
            trace = self.record_trace(&mut victim, task, progress, reports)?;
        }
        if reports {
            if !records {
                victim.run_freely()?;
            }
        } else if !records {
            victim.resume_main()?;
            self.release(side)?;
            victim.run_to(Event::End)?;
        }
        let reads_late = scenario == Scenario::Overrun;
        if reads_late {
            self.run_survivor(task)?;
        }
        if reports || reads_late {
            match self.survivors.scenario_result(side, Some(&mut victim))? {
                ScenarioResult::Correct => {}
                result => return Err(Error::Survivor(format!("without a kill: {result:?}"))),
            }
        }
        if side == Side::Client {
            victim.resume_main()?;
            victim.run_to(Event::Exited)?;
            victim.check_exit()?;
        } else {
            victim.kill()?;
        }
        Ok(trace)
    }

    /// Releases the request that the survivor's handler holds, if any.
    fn release(&mut self, side: Side) -> Result<()> {
        if std::mem::take(&mut self.is_held) {
            self.survivors.execute(side, &Command::Release, None)?;
        }
        Ok(())
    }

    /// Runs the watched thread to the end of its next system call, and returns that call; `None` at the scenario's end.
    fn step_over_call(
        &mut self,
        victim: &mut Tracee,
        task: VictimTask,
        reports: bool,
    ) -> Result<Option<i64>> {
        let side = task.side;
        let channel = reports.then(|| self.survivors.channel(side));
        let Some(call) = victim.enter_call(channel)? else { return Ok(None) };
        victim.resume_to_call_stop()?;
        if BLOCKING_CALLS.contains(&call) {
            self.release(side)?;
        }
        let channel = reports.then(|| self.survivors.channel(side));
        Ok((victim.leave_call(channel)? == Reached::There).then_some(call))
    }

    /// Steps the watched thread to the end of the scenario, and records its trace.
    fn record_trace(
        &mut self,
        victim: &mut Tracee,
        task: VictimTask,
        progress: Option<Progress>,
        reports: bool,
    ) -> Result<Trace> {
        let read = || progress.map(Progress::read).transpose().map(Option::unwrap_or_default);
        let reads_page = task.scenario == Scenario::Call;
        let start = read()?;
        let (mut trace, mut gap, mut before) = (Trace::default(), Gap::default(), start);
        'scenario: loop {
            while let Some(address) = victim.next_instruction(&mut self.code)? {
                if victim.step_once()? == Reached::Past {
                    break 'scenario;
                }
                let now = if reads_page { read()? } else { before };
                gap.step(address, before, now);
                before = now;
            }
            trace.gaps.push(gap);
            match self.step_over_call(victim, task, reports)? {
                Some(call) => gap = Gap { call: Some(call), ..Gap::default() },
                None => break,
            }
        }
        trace.moved = read()?.since(start);
        trace.cut_ending();
        Ok(trace)
    }
}

/// The system calls in which a caller sleeps.
const BLOCKING_CALLS: [i64; 3] = [libc::SYS_futex_waitv, libc::SYS_poll, libc::SYS_ppoll];

/// What shows what a victim has published; `None` for scenarios that publish only a Close record, or memory of its own.
fn progress(victim: &Tracee, task: VictimTask) -> Result<Option<Progress>> {
    let pid = victim.pid();
    let page = |service| Ok(Page::find(pid, service)?.map(Progress::Page));
    match (task.side, task.scenario) {
        (_, scenario) if scenario.calls() => page(NumberedCall::NAME),
        (Side::Server, Scenario::Fetch) => page(PassedSnapshot::NAME),
        (Side::Server, Scenario::Broadcast) => {
            Ok(Some(Progress::Board { pid, service: RingSnapshot::NAME }))
        }
        (_, scenario) if scenario.has_events() => {
            Ok(Some(Progress::Events { pid, service: NumberedEvent::NAME }))
        }
        _ => Ok(None),
    }
}
