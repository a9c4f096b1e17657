//! The process of a server.

use std::time::Duration;

use bellwire_cgroups::{self as cgroups, Meta, Mode, synthetic};
use bellwire_floor::process::Peer;
use serde_json::to_value;

use crate::Outcome;
use crate::burst::Burst;
use crate::clock::{self, Usage};
use crate::contender::{Contender, Server};
use crate::handler::Handler;
use crate::load::{Case, Work};
use crate::order::{ServerOrder, execute_orders};
use crate::sink::Sink;

/// How long the end of a stream is waited for.
const STREAM_ENDS_WITHIN: Duration = Duration::from_secs(30);

/// How many snapshots are published in turn.
const GENERATIONS: usize = 4;
/// One cgroup in so many is replaced from one to the next, and one comes back.
const CHURN: usize = 100;

/// Runs the server of a contender until told to end.
pub(crate) fn run<C: Contender>(peer: &Peer, case: &Case) -> Outcome<()> {
    let (load, handler) = (&case.load, Handler::new(&case.load));
    let mut server = C::serve(case, handler)?;
    let mut snapshots = Vec::new();
    if let Work::Refresh { cgroups, .. } | Work::LookUp { cgroups } = load.work {
        snapshots = generations(cgroups)?;
    }
    let mut snapshots = snapshots.iter().cycle();
    if let Some(first) = snapshots.next() {
        server.publish(first)?;
    }
    peer.ready()?;
    execute_orders(peer, |order| match order {
        ServerOrder::Usage => Ok(to_value((Usage::of_this_process()?, server.counters()))?),
        ServerOrder::Received => Ok(to_value(Sink::received(STREAM_ENDS_WITHIN)?)?),
        ServerOrder::Publish => {
            let began = clock::now();
            match load.work {
                Work::Events { size } => server.send_burst(Burst::new(size, handler))?,
                _ => server.publish(snapshots.next().ok_or("no snapshot to publish")?)?,
            }
            Ok(began.into())
        }
    })
}

/// Snapshots of `count` cgroups to publish in turn. In each, one cgroup in [`CHURN`] is another than in all others, and at
/// least one: as on a machine where containers come and go.
pub(crate) fn generations(count: usize) -> Outcome<Vec<Vec<u8>>> {
    let every = count.min(CHURN);
    let each = count.div_ceil(every);
    let mut entries = synthetic::entries(count + each * GENERATIONS, 7);
    let mut others = entries.split_off(count).into_iter();
    let meta = Meta::now(Mode::V2);
    (0..GENERATIONS)
        .map(|generation| {
            let mut entries = entries.clone();
            let gone = entries.iter_mut().skip(generation).step_by(every);
            gone.zip(&mut others).for_each(|(gone, come)| *gone = come);
            Ok(cgroups::encode(&entries, meta)?)
        })
        .collect()
}
