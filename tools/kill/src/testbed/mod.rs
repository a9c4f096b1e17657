//! One processor, two survivors, and a victim at a time.

mod judge;
mod survivors;

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use nix::unistd::pipe;

use self::judge::Truth;
use self::survivors::Survivors;
use crate::address::{Address, Depth};
use crate::error::{Error, Result, system};
use crate::fork;
use crate::line::{Ask, Ended};
use crate::phase::{Phase, Scenario, Side};
use crate::trace::{Gap, Trace};
use crate::tracee::{Bell, Code, Event, Page, Reached, Tracee, read_static};
use crate::victim::{self, Orders, RAN};

/// What became of a point.
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

/// Where victims meet survivors.
pub(crate) struct Testbed {
    bell: Rc<Bell>,
    code: Code,
    survivors: Survivors,
    traces: Traces,
    /// The last point on each side whose survivor has not worked with a fresh peer yet.
    unproven: HashMap<Side, Address>,
    number: u64,
    /// The survivor's handler holds the victim's request, or will.
    holds: bool,
    patience: Duration,
}

/// What victims do that are not killed.
pub(crate) type Traces = HashMap<(Side, Scenario), Trace>;

const SIDES: [Side; 2] = [Side::Client, Side::Server];

impl Testbed {
    /// Starts both survivors and runs a few victims against each: what they hold then is the expected base.
    pub(crate) fn set_up(traces: Traces, patience: Duration) -> Result<Self> {
        crate::service::prepare();
        let bell = Rc::new(Bell::new()?);
        let survivors = Survivors::start(Rc::clone(&bell), patience)?;
        let mut testbed = Self {
            bell,
            code: Code::default(),
            survivors,
            traces,
            unproven: HashMap::new(),
            number: 0,
            holds: false,
            patience,
        };
        // It has taken its names by the time it answers.
        testbed.survivors.ask(Side::Client, &Ask::Publish { number: 1 }, None)?;
        for side in SIDES {
            for scenario in [Scenario::Fetch, Scenario::Attach, Scenario::Call] {
                testbed.dry_run(side, scenario, false)?;
            }
            testbed.survivors.settle(side)?;
        }
        Ok(testbed)
    }

    /// What was learned about victims, for the next testbed.
    pub(crate) fn into_traces(mut self) -> Traces {
        std::mem::take(&mut self.traces)
    }

    /// A phase's scenario without a kill.
    pub(crate) fn trace(&mut self, phase: &Phase) -> Result<Trace> {
        let key = (phase.side, phase.scenario);
        if let Some(trace) = self.traces.get(&key) {
            return Ok(trace.clone());
        }
        let trace = self.dry_run(phase.side, phase.scenario, true)?;
        self.check_settled(phase.side)?;
        self.traces.insert(key, trace.clone());
        Ok(trace)
    }

    /// Has a phase's scenario looked at anew.
    pub(crate) fn forget(&mut self, phase: &Phase) {
        self.traces.remove(&(phase.side, phase.scenario));
    }

    /// Kills a victim at `address`, and queries the survivor.
    pub(crate) fn kill_at(&mut self, address: Address) -> Result<Outcome> {
        let Address { phase, calls, depth } = address;
        let moved = self.trace(phase)?.moved;
        if phase.scenario == Scenario::Bind {
            self.prove(phase.side)?;
        }
        let orders = self.orders(phase.side, phase.scenario);
        let mut victim = self.at_gate(orders)?;
        let page = page(&victim, orders)?;
        let before = page.map(Page::read).transpose()?.unwrap_or_default();
        let acts = self.begin(&mut victim, orders)?;
        let mut reached = Reached::There;
        for _ in 0..calls {
            if self.pass_call(&mut victim, orders, acts)?.is_none() {
                reached = Reached::Past;
                break;
            }
        }
        if reached == Reached::There {
            match depth {
                Depth::Instructions(count) => reached = victim.step(count, &mut self.code)?,
                Depth::Asleep => reached = victim.run_to_sleep()?,
            }
        }
        let words = page.map(Page::read).transpose()?.unwrap_or_default().since(before);
        let ran = orders.requests().last() == Some(read_static(victim.pid(), &RAN)?);
        victim.kill()?;

        self.unproven.insert(phase.side, address);
        self.release(phase.side)?;
        let of = phase.scenario.requests().max(1);
        let published = (of * words.tail).checked_div(moved.tail).map_or(0, |count| count.min(of));
        let taken = moved.head > 0 && words.head >= moved.head;
        let truth = Truth { published, of, taken, ran };
        if acts {
            let ended = self.survivors.ended(phase.side, None)?;
            judge::ended(orders, truth, &ended)?;
        }
        let settled = self.survivors.settle(phase.side)?;
        judge::settled(orders, truth, &settled)?;
        Ok(match reached {
            Reached::There => Outcome::Killed { published: published == of },
            Reached::Past => Outcome::Past,
        })
    }

    /// Runs a fresh peer against both survivors that is not killed before it has done its part.
    pub(crate) fn prove_all(&mut self) -> Result<()> {
        SIDES.into_iter().try_for_each(|side| self.prove(side))
    }

    fn prove(&mut self, side: Side) -> Result<()> {
        self.dry_run(side, Scenario::Call, false)?;
        self.check_settled(side)
    }

    fn check_settled(&mut self, side: Side) -> Result<()> {
        let settled = self.survivors.settle(side)?;
        judge::at_rest(&settled)
    }

    fn orders(&mut self, side: Side, scenario: Scenario) -> Orders {
        self.number += 8;
        // A victim is slower than its survivor: it would be answered before it sleeps.
        let hold = side == Side::Client && scenario.is_short_call();
        Orders { side, scenario, number: self.number, hold }
    }

    /// Starts a victim and brings it to its gate: by then the survivor has worked with it, correctly.
    fn at_gate(&mut self, orders: Orders) -> Result<Tracee> {
        let met = self.meet(orders);
        let proven = self.unproven.remove(&orders.side);
        met.map_err(|error| match (error, proven) {
            (Error::Survivor(what), Some(address)) => Error::Survivor(format!(
                "after {address} it does not get on with a fresh peer: {what}"
            )),
            (error, _) => error,
        })
    }

    fn meet(&mut self, orders: Orders) -> Result<Tracee> {
        let Orders { side, scenario, number, .. } = orders;
        let [sheet, next] = orders.sheets();
        let mut victim = self.start(orders)?;
        victim.run_to(Event::Gate)?;
        match side {
            Side::Client if scenario == Scenario::Fetch => {
                self.survivors.ask(side, &Ask::Publish { number: next }, Some(&mut victim))?;
            }
            Side::Server if scenario != Scenario::Bind => {
                let reads = matches!(scenario, Scenario::Publish | Scenario::Fetch);
                let meet = Ask::Meet { scenario, number, sheet: reads.then_some(sheet) };
                self.survivors.ask(side, &meet, Some(&mut victim))?;
                if scenario == Scenario::Open {
                    self.survivors.ask(side, &Ask::Leave, Some(&mut victim))?;
                }
                victim.go_on()?;
                victim.run_to(Event::Gate)?;
            }
            _ => {}
        }
        Ok(victim)
    }

    fn start(&self, orders: Orders) -> Result<Tracee> {
        let run_dir = self.survivors.run_dir(orders.side).clone();
        let (wait, go) = pipe().map_err(system("make a pipe"))?;
        let pid = fork::start(|| victim::run(orders, &run_dir, &wait))?;
        let victim = Tracee::seize(pid, Rc::clone(&self.bell), self.patience)?;
        nix::unistd::write(&go, &[0]).map_err(system("start a victim"))?;
        Ok(victim)
    }

    /// Watches the relevant thread, and starts the survivor's half. Returns whether it will report how that ended.
    fn begin(&mut self, victim: &mut Tracee, orders: Orders) -> Result<bool> {
        let Orders { side, scenario, .. } = orders;
        self.holds = orders.hold;
        if side == Side::Client || scenario == Scenario::Bind {
            return Ok(false);
        }
        let is_watched_asleep = scenario != Scenario::Publish;
        if is_watched_asleep {
            victim.watch_second()?;
            victim.enter_wait()?;
        }
        let acts = scenario != Scenario::Close;
        if acts {
            let [_, sheet] = orders.sheets();
            let number = if scenario.calls() { orders.requests().start } else { sheet };
            self.survivors.say(side, &Ask::Act { scenario, number })?;
        } else {
            victim.go_on()?;
        }
        if is_watched_asleep {
            victim.leave_call(None)?;
        }
        Ok(acts)
    }

    /// Runs a scenario to its end; instruction by instruction if that is to be recorded.
    fn dry_run(&mut self, side: Side, scenario: Scenario, traces: bool) -> Result<Trace> {
        let orders = self.orders(side, scenario);
        let mut victim = self.at_gate(orders)?;
        let page = page(&victim, orders)?;
        let acts = self.begin(&mut victim, orders)?;
        let mut trace = Trace::default();
        if traces {
            trace = self.walk(&mut victim, orders, page, acts)?;
        }
        if acts {
            if !traces {
                victim.run_freely()?;
            }
            match self.survivors.ended(side, Some(&mut victim))? {
                Ended::Right => {}
                ended => return Err(Error::Survivor(format!("without a kill: {ended:?}"))),
            }
        } else if !traces {
            victim.go_on()?;
            self.release(side)?;
            victim.run_to(Event::End)?;
        }
        if side == Side::Client {
            victim.go_on()?;
            victim.run_to(Event::Gone)?;
            victim.ended_well()?;
        } else {
            victim.kill()?;
        }
        Ok(trace)
    }

    /// Lets the survivor answer, if it was to wait with it.
    fn release(&mut self, side: Side) -> Result<()> {
        if std::mem::take(&mut self.holds) {
            self.survivors.ask(side, &Ask::Release, None)?;
        }
        Ok(())
    }

    /// Runs the watched thread over its next system call, and returns that call. `None` at the end.
    fn pass_call(
        &mut self,
        victim: &mut Tracee,
        orders: Orders,
        acts: bool,
    ) -> Result<Option<i64>> {
        let side = orders.side;
        let listen = acts.then(|| self.survivors.line(side));
        let Some(call) = victim.enter_call(listen)? else { return Ok(None) };
        victim.go_on_in_call()?;
        if SLEEPS.contains(&call) {
            self.release(side)?;
        }
        let listen = acts.then(|| self.survivors.line(side));
        Ok((victim.leave_call(listen)? == Reached::There).then_some(call))
    }

    /// Runs the watched thread to its end, and counts what it does.
    fn walk(
        &mut self,
        victim: &mut Tracee,
        orders: Orders,
        page: Option<Page>,
        acts: bool,
    ) -> Result<Trace> {
        let read = || page.map(Page::read).transpose().map(Option::unwrap_or_default);
        let marks = orders.scenario == Scenario::Call;
        let start = read()?;
        let (mut trace, mut gap, mut before) = (Trace::default(), Gap::default(), start);
        'way: loop {
            while !victim.is_at_call(&mut self.code)? {
                if victim.step_once()? == Reached::Past {
                    break 'way;
                }
                let now = if marks { read()? } else { before };
                gap.step(before, now);
                before = now;
            }
            trace.gaps.push(gap);
            match self.pass_call(victim, orders, acts)? {
                Some(call) => gap = Gap { call: Some(call), ..Gap::default() },
                None => break,
            }
        }
        trace.moved = read()?.since(start);
        trace.cut_ending();
        Ok(trace)
    }
}

/// What a caller sleeps in.
const SLEEPS: [i64; 3] = [libc::SYS_futex_waitv, libc::SYS_poll, libc::SYS_ppoll];

/// The page whose words show what a victim has published, where that is more than a Close record.
fn page(victim: &Tracee, orders: Orders) -> Result<Option<Page>> {
    match (orders.side, orders.scenario) {
        (_, scenario) if scenario.calls() => Page::find(victim.pid(), "ledger"),
        (Side::Server, Scenario::Fetch) => Page::find(victim.pid(), "sheet"),
        _ => Ok(None),
    }
}
