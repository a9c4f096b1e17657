//! The process of a server.

use std::time::Duration;

use bellwire::cgroups::{self, Meta, Mode, synthetic};
use bellwire_floor::process::Peer;

use crate::Outcome;
use crate::clock::Usage;
use crate::contender::{Contender, Server};
use crate::handler::Handler;
use crate::load::{Load, Place, Work};
use crate::order::{ServerOrder, ServerSays, obey};
use crate::sink::Sink;

/// How long the end of a stream is waited for.
const STREAM_ENDS_WITHIN: Duration = Duration::from_secs(30);

/// What a server's process was started with.
pub(crate) struct Serve<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) place: &'a Place,
    pub(crate) load: &'a Load,
}

/// Runs the server of a contender until told to end.
pub(crate) fn run<C: Contender>(serve: &Serve<'_>) -> Outcome<()> {
    let Serve { peer, place, load } = *serve;
    let mut server = C::serve(place, load, Handler::new(load))?;
    let mut snapshot = Vec::new();
    if let Work::Refresh { cgroups, .. } | Work::LookUp { cgroups } = load.work {
        snapshot = cgroups::encode(&synthetic::entries(cgroups, 7), Meta::now(Mode::V2))?;
        server.publish(&snapshot)?;
    }
    peer.ready()?;
    obey(peer, |order| match order {
        ServerOrder::Usage => Ok(ServerSays::Usage(Usage::of_this_process()?, server.counters())),
        ServerOrder::Received => Ok(ServerSays::Received(Sink::received(STREAM_ENDS_WITHIN)?)),
        ServerOrder::Publish => server.publish(&snapshot).map(|()| ServerSays::Published),
    })
}
