//! The processes of one contender and one scenario, and one sample of them.

use std::io;
use std::time::{Duration, Instant};

use bellwire_floor::Cpus;
use bellwire_floor::process::Child;
use bellwire_process::scratch::{self, Owned};
use bellwire_process::{resume, stop};
use tempfile::TempDir;

use crate::Outcome;
use crate::burst::EVENTS;
use crate::clock::{self, Usage};
use crate::contender::{Counters, Entry};
use crate::load::{Case, Placing};
use crate::order::{Done, Order, ServerOrder, WORD, receive_reply, request_reply, send_order};
use crate::roles;
use crate::scenario::{Clock, Scenario};
use crate::sink::Received;

/// The part of a sample for which a process of it may have waited for a processor.
const MAX_PREEMPTED: f64 = 0.02;
/// Before each sample, so that both ends are awake and warm, ms.
const WARM: u64 = 2;

/// They are stopped except while they are measured, whatever they do while they wait.
pub(crate) struct Testbed {
    pub(crate) entry: &'static Entry,
    // In this order: clients end before their server, and that before its directory goes.
    clients: Vec<Child>,
    server: Child,
    neighbor: Option<Child>,
    _dir: TempDir,
    _owned: Owned,
}

/// One sample. Counts are of both ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// What one operation took, ns.
    pub(crate) ns: f64,
    pub(crate) operations: u64,
    /// How often each took so many ns, where they were timed.
    pub(crate) took: Vec<(u64, u64)>,
    /// Time on a processor of one operation, ns: of the measuring ends, and of the server.
    pub(crate) cpu_ns: [f64; 2],
    /// Of the server's, in the kernel.
    pub(crate) kernel_server_ns: f64,
    /// Of one operation: of all ends, and of the server alone.
    pub(crate) sleeps: f64,
    pub(crate) sleeps_server: f64,
    /// Memory of the server that is resident, bytes.
    pub(crate) resident_server: u64,
    pub(crate) wakes: Option<f64>,
    pub(crate) parks: Option<f64>,
    pub(crate) system_calls: Option<f64>,
    /// Whether something else took a processor away from it.
    pub(crate) preempted: bool,
}

/// The prefix of its directories' names.
const PREFIX: &str = "bellwire-bench-";

/// A directory of its own. The leftovers of a killed run are removed now.
fn private_dir() -> Outcome<(TempDir, Owned)> {
    scratch::sweep(&std::env::temp_dir(), PREFIX);
    loop {
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
        if let Some(owned) = scratch::own(dir.path())? {
            return Ok((dir, owned));
        }
    }
}

impl Testbed {
    /// Starts them; they are stopped when it returns.
    pub(crate) fn set(entry: &'static Entry, scenario: &Scenario, cpus: Cpus) -> Outcome<Self> {
        let (dir, owned) = private_dir()?;
        let (case, load) = (Case::new(scenario.load, dir.path()), &scenario.load);
        let (ours, theirs): (&[usize], &[usize]) = match load.placing {
            Placing::Pinned => (&[cpus.client], &[cpus.peer]),
            Placing::OneCpu => (&[cpus.client], &[cpus.client]),
            Placing::Unpinned | Placing::Busy => (&[], &[]),
        };
        let start = |role, cpus| roles::start(role, entry, &case, cpus);
        let server = start(roles::SERVER, theirs)?;
        let clients = (0..load.clients).map(|_| start(roles::CLIENT, ours));
        let clients = clients.collect::<Outcome<_>>()?;
        let neighbor = (load.placing == Placing::Busy).then(roles::neighbor).transpose()?;
        let testbed = Self { entry, clients, server, neighbor, _dir: dir, _owned: owned };
        testbed.each_process(stop)?;
        Ok(testbed)
    }

    /// Lets them go on, measures, and stops them again.
    pub(crate) fn measure(&mut self, scenario: &Scenario, millis: u64) -> Outcome<Sample> {
        self.each_process(resume)?;
        let sample = self.sample(scenario, millis);
        self.each_process(stop)?;
        sample.map_err(|error| format!("{}, {}: {error}", self.entry.name, scenario.name).into())
    }

    fn sample(&mut self, scenario: &Scenario, millis: u64) -> Outcome<Sample> {
        // The second reading shows the cost of a reading.
        let (earlier, before) = (self.usage()?.0, self.usage()?);
        let (clock, schedule) = (scenario.clock(), scenario.schedule);
        let row = || Order::Row { until: clock::now() + millis * 1_000_000 };
        let each = || Order::Each { until: clock::now() + millis * 1_000_000, schedule };
        let mut sum = self.warm_up(scenario)?;
        let mut sample = match clock {
            Clock::Row => self.all(row(), &mut sum).map(|done| of_row(&done))?,
            Clock::RowThenEach => {
                let mut sample = of_row(&self.all(row(), &mut sum)?);
                let timed = self.all(each(), &mut sum)?;
                sample.took = timed.into_iter().flat_map(|done| done.took).collect();
                sample
            }
            Clock::Each => of_each(self.all(each(), &mut sum)?),
            Clock::Received => self.received(clock, row(), &mut sum)?,
            Clock::OneWay => self.received(clock, each(), &mut sum)?,
            Clock::Together => self.together(millis, &mut sum)?,
            Clock::Burst => self.bursts(millis, &mut sum)?,
        };
        let (after, reading) = (self.usage()?, before.0.since(earlier));
        sum.server = after.0.since(before.0).since(reading);
        sum.server_counters = after.1.with(before.1, u64::saturating_sub);
        sum.fill(&mut sample, self.clients.len());
        Ok(sample)
    }

    /// What is before the sample does not count, but it is part of what the server's counters and usage are of.
    fn warm_up(&mut self, scenario: &Scenario) -> Outcome<Sum> {
        let (mut sum, until) = (Sum::default(), clock::now() + WARM * 1_000_000);
        let order = match scenario.clock() {
            Clock::Together | Clock::Burst => return Ok(sum),
            Clock::OneWay | Clock::Each => Order::Each { until, schedule: scenario.schedule },
            Clock::Row | Clock::RowThenEach | Clock::Received => Order::Row { until },
        };
        self.all(order, &mut sum)?;
        if scenario.load.is_one_way() {
            self.wait_for_stream()?;
        }
        Ok(sum)
    }

    /// Has all clients do the same at the same time.
    fn all(&mut self, order: Order, sum: &mut Sum) -> Outcome<Vec<Done>> {
        self.clients.iter().try_for_each(|client| send_order(client, &order))?;
        let done: Vec<Done> = self.clients.iter().map(receive_reply).collect::<Outcome<_>>()?;
        done.iter().for_each(|done| sum.add(done));
        Ok(done)
    }

    fn received(&mut self, clock: Clock, order: Order, sum: &mut Sum) -> Outcome<Sample> {
        self.all(order, sum)?;
        let Received { operations, ns, took, .. } = self.wait_for_stream()?;
        let mut sample = Sample { operations, took, ns: per(ns, operations), ..Sample::default() };
        if clock == Clock::OneWay {
            sample.ns = median(&sample.took);
        }
        Ok(sample)
    }

    fn wait_for_stream(&mut self) -> Outcome<Received> {
        let received: Received = request_reply(&self.server, &ServerOrder::Received)?;
        if received.wrong > 0 {
            let (wrong, all) = (received.wrong, received.operations);
            return Err(format!("{wrong} of {all} messages arrived falsified, lost or out of order: do not use these figures").into());
        }
        Ok(received)
    }

    /// For so long: the server publishes, then all clients refresh.
    fn together(&mut self, millis: u64, sum: &mut Sum) -> Outcome<Sample> {
        let mut sample = Sample::default();
        let (mut ns, mut spans) = (0, Vec::new());
        let began = Instant::now();
        while spans.is_empty() || began.elapsed() < Duration::from_millis(millis) {
            self.publish()?;
            let done = self.one(sum, |_| Ok(()))?;
            sample.operations += done.len() as u64;
            ns += span(&done);
            spans.extend(done.into_iter().flat_map(|done| done.took));
        }
        sample.ns = per(ns, sample.operations);
        sample.took = spans;
        Ok(sample)
    }

    /// For so long: all clients wait for events, and the server publishes a burst of them.
    fn bursts(&mut self, millis: u64, sum: &mut Sum) -> Outcome<Sample> {
        let mut sample = Sample::default();
        let (mut ns, mut first) = (0, true);
        let began = Instant::now();
        while ns == 0 || began.elapsed() < Duration::from_millis(millis) {
            let mut began = 0;
            let done = self.one(sum, |testbed| {
                began = testbed.publish()?;
                Ok(())
            })?;
            // In the first one, readers may still find the publisher.
            if std::mem::take(&mut first) {
                continue;
            }
            let ended = done.iter().map(|done| done.span.1).max().unwrap_or(0);
            ns += ended.saturating_sub(began);
            sample.operations += EVENTS;
        }
        sample.ns = per(ns, sample.operations);
        Ok(sample)
    }

    /// Has the server publish. When it began.
    fn publish(&self) -> Outcome<u64> {
        request_reply(&self.server, &ServerOrder::Publish)
    }

    /// One operation of each, which all begin at the start word, and `then` something else. No client reports its own before
    /// all have ended theirs.
    fn one(
        &mut self,
        sum: &mut Sum,
        then: impl FnOnce(&Self) -> Outcome<()>,
    ) -> Outcome<Vec<Done>> {
        self.clients.iter().try_for_each(|client| send_order(client, &Order::One))?;
        self.clients.iter().try_for_each(|client| client.receive().map(drop))?;
        self.clients.iter().try_for_each(|client| client.send(WORD))?;
        then(self)?;
        self.clients.iter().try_for_each(|client| client.receive().map(drop))?;
        self.clients.iter().try_for_each(|client| client.send(WORD))?;
        let done: Vec<Done> = self.clients.iter().map(receive_reply).collect::<Outcome<_>>()?;
        done.iter().for_each(|done| sum.add(done));
        Ok(done)
    }

    fn usage(&self) -> Outcome<(Usage, Counters)> {
        request_reply(&self.server, &ServerOrder::Usage)
    }

    fn each_process(&self, signal: fn(u32) -> io::Result<()>) -> Outcome<()> {
        let mut all = self.clients.iter().chain([&self.server]).chain(&self.neighbor);
        Ok(all.try_for_each(|child| signal(child.pid()))?)
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        // A stopped process does not read the order to end.
        let _ = self.each_process(resume);
    }
}

/// What the clients and the server have used and counted together, warm-up included.
#[derive(Default)]
struct Sum {
    operations: u64,
    /// The time that the measuring ends took, one after the other.
    ns: u64,
    clients: Usage,
    schedule_spin_ns: u64,
    counters: Option<Counters>,
    server: Usage,
    server_counters: Counters,
}

impl Sum {
    fn add(&mut self, done: &Done) {
        self.operations += done.operations;
        self.ns += done.ns;
        self.clients = self.clients.with(done.usage, u64::wrapping_add);
        self.schedule_spin_ns += done.schedule_spin_ns;
        let so_far = self.counters.map(|counters| counters.with(done.counters, u64::wrapping_add));
        self.counters = Some(so_far.unwrap_or(done.counters));
    }

    fn fill(&self, sample: &mut Sample, clients: usize) {
        let each = |count: u64| per(count, self.operations);
        let (server, counters) = (self.server, self.counters.unwrap_or_default());
        let both = counters.with(self.server_counters, u64::wrapping_add);
        sample.cpu_ns =
            [each(self.clients.cpu_ns.saturating_sub(self.schedule_spin_ns)), each(server.cpu_ns)];
        sample.kernel_server_ns = each(server.kernel_ns);
        sample.sleeps = each(self.clients.sleeps + server.sleeps);
        sample.sleeps_server = each(server.sleeps);
        sample.resident_server = server.resident;
        sample.wakes = both.wakes.map(each);
        sample.parks = both.parks.map(each);
        sample.system_calls = both.system_calls.or(counters.system_calls).map(each);
        let waited = self.clients.waited_ns.max(server.waited_ns);
        sample.preempted = clients == 1 && per(waited, 1) > MAX_PREEMPTED * per(self.ns, 1);
    }
}

/// What clients that work at the same time did together, from the first that began to the last that ended. Their rates may not
/// be added: with more clients than processors, one that has not begun yet takes nothing from those that run.
fn of_row(done: &[Done]) -> Sample {
    let operations = done.iter().map(|done| done.operations).sum();
    // Of one client, what it prepares between operations does not count.
    let ns = if let [one] = done { one.ns } else { span(done) };
    Sample { ns: per(ns, operations), operations, ..Sample::default() }
}

/// From the first that began to the last that ended.
fn span(done: &[Done]) -> u64 {
    let began = done.iter().map(|done| done.span.0).min().unwrap_or(0);
    let ended = done.iter().map(|done| done.span.1).max().unwrap_or(0);
    ended - began
}

fn of_each(done: Vec<Done>) -> Sample {
    let operations = done.iter().map(|done| done.operations).sum();
    let took: Vec<_> = done.into_iter().flat_map(|done| done.took).collect();
    Sample { ns: median(&took), operations, took, ..Sample::default() }
}

/// The value in the middle.
fn median(took: &[(u64, u64)]) -> f64 {
    let mut hist = crate::hist::new();
    crate::hist::add(&mut hist, took);
    per(hist.value_at_quantile(0.5), 1)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn per(count: u64, operations: u64) -> f64 {
    count as f64 / operations.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "both are whole")]
    fn clients_that_do_not_overlap_do_not_count_as_if_they_did() {
        let done = |began: u64| Done {
            operations: 10,
            ns: 100,
            span: (began, began + 100),
            ..Done::default()
        };
        assert_eq!(of_row(&[done(0), done(0)]).ns, 5.0);
        assert_eq!(of_row(&[done(0), done(100)]).ns, 10.0);
        assert_eq!(of_row(&[Done { ns: 50, ..done(0) }]).ns, 5.0, "without what it prepared");
    }
}
