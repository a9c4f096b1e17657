//! The measuring process: operations of one connection, by the clock.
//!
//! A *row* is operations one after the other, the clock read before and after [some](row) of them: what an operation
//! takes. With *each* timed, every operation includes two clock reads of its own, some 20 ns each.

mod batches;
mod calls;
mod connections;
mod payload;
mod row;
mod snapshot;
mod stream;

use bellwire_floor::process::Peer;
use rustix::thread::sched_yield;

pub(crate) use payload::Payload;

use crate::Outcome;
use crate::contender::Client;
use crate::load::{Load, SMALL, Work};
use crate::order::{Done, Order, execute_orders};
use connections::{InTurn, Reopened};

/// How often to yield the processor before an order is executed.
const YIELDS: u32 = 4;

/// What the measuring process has, for its contender.
pub(crate) struct Measure<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) load: &'a Load,
}

/// Operations of one kind.
trait Operations<C> {
    /// Does `steps` in a row, and checks the answers. Returns how many operations they were.
    fn steps(&mut self, client: &mut C, steps: u64) -> Outcome<u64>;

    /// What is to be done before a step, outside its time.
    fn prepare(&mut self, _: &mut C) -> Outcome<()> {
        Ok(())
    }

    /// Ends a series of steps, outside the timed part.
    fn finish(&mut self, _: &mut C) -> Outcome<()> {
        Ok(())
    }

    /// Whether each step wants preparing, so that none can follow another in a row.
    const IS_PREPARED: bool = false;
}

impl Measure<'_> {
    /// Executes the coordinator's orders until told to end, with connections that `connect` opens.
    pub(crate) fn run<C: Client>(self, mut connect: impl FnMut() -> Outcome<C>) -> Outcome<()> {
        match self.load.work {
            Work::Calls { size, depth: 1 } => self.execute(connect()?, calls::Alone::new(size)),
            Work::Calls { size, depth } => {
                self.execute(connect()?, calls::Pipeline::new(size, depth))
            }
            Work::Sessions { each } => {
                let clients = (0..each).map(|_| connect()).collect::<Outcome<_>>()?;
                self.execute(InTurn::new(clients), calls::Alone::new(SMALL))
            }
            Work::Batches { depth: 1 } => self.execute(connect()?, batches::Alone::new()),
            Work::Batches { depth } => self.execute(connect()?, batches::Pipeline::new(depth)),
            Work::Stream { size } => self.execute(connect()?, stream::Stream::new(size, false)),
            Work::OneWay { size } => self.execute(connect()?, stream::Stream::new(size, true)),
            Work::Refresh { cgroups, changed } => {
                let mut client = connect()?;
                let refreshes = snapshot::Refreshes::new(&mut client, cgroups, changed)?;
                self.execute(client, refreshes)
            }
            Work::Events { size } => self.execute(connect()?, stream::Events::new(size)),
            Work::LookUp { cgroups } => {
                let mut client = connect()?;
                let look_ups = snapshot::LookUps::new(&mut client, cgroups)?;
                self.execute(client, look_ups)
            }
            Work::Connect => self.execute(Reopened::new(connect), calls::First::new(None, SMALL)),
            Work::Grow { size } => self.execute(connect()?, calls::First::new(Some(SMALL), size)),
        }
    }

    fn execute<C: Client>(self, mut client: C, mut operations: impl Operations<C>) -> Outcome<()> {
        self.peer.ready()?;
        execute_orders(self.peer, |order| {
            // The coordinator shares this processor and is about to sleep: it must be asleep before the clock runs,
            // so that it does not preempt a thread that spins while being timed.
            (0..YIELDS).for_each(|_| sched_yield());
            let counters = client.counters();
            let mut done = match order {
                Order::Row { until } => row::row(&mut client, &mut operations, until)?,
                Order::Each { until, schedule } => {
                    row::each(&mut client, &mut operations, until, schedule)?
                }
                Order::One => row::together(self.peer, &mut client, &mut operations)?,
            };
            done.counters = client.counters().with(counters, u64::saturating_sub);
            Ok::<Done, _>(done)
        })
    }
}
