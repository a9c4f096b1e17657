//! The measuring process: operations of one connection, by the clock.
//!
//! A *row* is operations one after the other, the clock read before and after [some](row) of them: what an operation
//! takes. With *each* timed, every operation includes two clock reads of its own, some 20 ns each.

mod batches;
mod calls;
mod events;
mod once;
mod payload;
mod row;
mod snapshot;
mod stream;
mod together;

use bellwire_floor::process::Peer;
use rustix::thread::sched_yield;

pub(crate) use payload::Payload;

use crate::Outcome;
use crate::contender::Client;
use crate::load::{Load, Work};
use crate::order::{Done, Order, obey};

/// How often to yield the processor before an order is executed.
const YIELDS: u32 = 4;

/// What the measuring process has, for its contender.
pub(crate) struct Measure<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) load: &'a Load,
}

/// Operations of one kind.
trait Operations {
    /// Does `steps` in a row, and checks the answers. Returns how many operations they were.
    fn steps(&mut self, steps: u64) -> Outcome<u64>;

    /// What is to be done before a step, outside its time.
    fn prepare(&mut self) -> Outcome<()> {
        Ok(())
    }

    /// Ends a series of steps, outside the timed part.
    fn finish(&mut self) -> Outcome<()> {
        Ok(())
    }

    /// Whether each step wants preparing, so that none can follow another in a row.
    const IS_PREPARED: bool = false;

    /// What the connection has counted.
    fn counters(&mut self) -> crate::contender::Counters;
}

impl Measure<'_> {
    /// Executes the coordinator's orders until told to end, with connections that `connect` opens.
    pub(crate) fn run<C: Client>(self, mut connect: impl FnMut() -> Outcome<C>) -> Outcome<()> {
        match self.load.work {
            Work::Calls { size, depth: 1 } => self.obey(calls::Alone::new(connect()?, size)),
            Work::Calls { size, depth } => self.obey(calls::Pipeline::new(connect()?, size, depth)),
            Work::Batches { depth: 1 } => self.obey(batches::Alone::new(connect()?)),
            Work::Batches { depth } => self.obey(batches::Pipeline::new(connect()?, depth)),
            Work::Stream { size } => self.obey(stream::Stream::new(connect()?, size, false)),
            Work::OneWay { size } => self.obey(stream::Stream::new(connect()?, size, true)),
            Work::Refresh { cgroups, changed } => {
                self.obey(snapshot::Refreshes::new(connect()?, cgroups, changed)?)
            }
            Work::Events { size } => self.obey(events::Events::new(connect()?, size)),
            Work::LookUp { cgroups } => self.obey(snapshot::LookUps::new(connect()?, cgroups)?),
            Work::Connect => self.obey(once::Connect::new(connect)),
            Work::Grow { size } => self.obey(once::Grow::new(connect()?, size)),
        }
    }

    fn obey(self, mut operations: impl Operations) -> Outcome<()> {
        self.peer.ready()?;
        obey(self.peer, |order| {
            // The coordinator shares this processor and is about to sleep: it must be asleep before the clock runs,
            // so that it does not preempt a thread that spins while being timed.
            (0..YIELDS).for_each(|_| sched_yield());
            let counters = operations.counters();
            let mut done = match order {
                Order::Row { until } => row::row(&mut operations, until)?,
                Order::Each { until, pace } => row::each(&mut operations, until, pace)?,
                Order::One => together::one(self.peer, &mut operations)?,
            };
            done.counters = operations.counters().with(counters, u64::saturating_sub);
            Ok::<Done, _>(done)
        })
    }
}
