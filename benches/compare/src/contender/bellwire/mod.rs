//! Bellwire, as its documentation advises: its defaults, arrays for what has a fixed length, plain bytes for the
//! rest.

mod batched;
mod batches;
mod calls;
mod configured;
mod events;
mod snapshot;
mod tasks;

use std::marker::PhantomData;
use std::time::Duration;

use bellwire::{
    Backpressure, Client, ClientConfig, HandlerError, Payload, Publisher, RunDir, Server,
    ServerConfig, Service, Session, SnapshotCache,
};
use bellwire_cgroups::CgroupsSnapshot;

pub(super) use batched::Batched;
use configured::Setup;
pub(super) use configured::{Defaults, Uring, Workers};
pub(super) use tasks::Tasks;

use super::{Contender, ContenderInfo, Counters};
use crate::Outcome;
use crate::burst::Burst;
use crate::handler::Handler;
use crate::load::{Case, Load, Work};
use crate::measure::Measure;

/// How long an answer is waited for.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// This project, with one configuration of the server.
pub(super) struct Bellwire<S>(PhantomData<S>);

/// Echoes messages of a fixed length.
struct Echo<const N: usize>;
/// Echoes messages of any length.
struct EchoBytes;
/// Answers items.
struct Items;
/// Takes messages of a fixed length, with empty answers.
struct Sink<const N: usize>;
/// Takes messages of any length.
struct SinkBytes;

impl<const N: usize> Service for Echo<N> {
    const NAME: &'static str = match N {
        8 => "bench-echo-8",
        64 => "bench-echo-64",
        _ => "bench-echo-1024",
    };
    type Request = [u8; N];
    type Response = [u8; N];
}

impl<const N: usize> Service for Sink<N> {
    const NAME: &'static str = match N {
        64 => "bench-sink-64",
        _ => "bench-sink-1024",
    };
    type Request = [u8; N];
    type Response = [u8; 0];
}

impl Service for EchoBytes {
    const NAME: &'static str = "bench-echo-bytes";
    type Request = Payload;
    type Response = Payload;
}

impl Service for SinkBytes {
    const NAME: &'static str = "bench-sink-bytes";
    type Request = Payload;
    type Response = [u8; 0];
}

impl Service for Items {
    const NAME: &'static str = "bench-items";
    type Request = u64;
    type Response = u64;
}

/// The server, and what it publishes.
struct Running {
    server: Server,
    publisher: Publisher<CgroupsSnapshot>,
    events: events::Publishers,
}

impl<S: Setup> Contender for Bellwire<S> {
    const NAME: &'static str = S::NAME;

    fn about() -> ContenderInfo {
        ContenderInfo::of_this_project(S::settings())
    }

    fn refuses(load: &Load) -> Option<&'static str> {
        S::refuses(load)
    }

    fn serve(case: &Case, handler: Handler) -> Outcome<impl super::Server> {
        serve_with(S::config(), case, handler)
    }

    fn measure(case: &Case, measure: Measure<'_>) -> Outcome<()> {
        match case.load.work {
            Work::Batches { .. } => measure.run(|| batches::Caller::connect(case)),
            Work::Refresh { .. } | Work::LookUp { .. } => {
                measure.run(|| Ok(SnapshotCache::<CgroupsSnapshot>::new(&RunDir::new(case.dir()))))
            }
            Work::Events { size: 1024 } => measure.run(|| Ok(events::subscriber::<1024>(case))),
            Work::Events { .. } => measure.run(|| Ok(events::subscriber::<64>(case))),
            Work::Stream { size } | Work::OneWay { size } => match size {
                64 => measure.run(|| connected::<Sink<64>>(case)),
                1024 => measure.run(|| connected::<Sink<1024>>(case)),
                _ => measure.run(|| connected::<SinkBytes>(case)),
            },
            Work::Calls { size: 8, .. } => measure.run(|| connected::<Echo<8>>(case)),
            Work::Calls { size: 64, .. } | Work::Sessions { .. } | Work::Connect => {
                measure.run(|| connected::<Echo<64>>(case))
            }
            Work::Calls { size: 1024, .. } => measure.run(|| connected::<Echo<1024>>(case)),
            Work::Calls { .. } | Work::Grow { .. } => measure.run(|| connected::<EchoBytes>(case)),
        }
    }
}

fn serve_with(config: ServerConfig, case: &Case, handler: Handler) -> Outcome<Running> {
    let run_dir = RunDir::new(case.dir());
    let mut builder = Server::builder_with_config(&run_dir, config);
    builder.serve::<Echo<8>>(move |_, bytes| Ok(echo(handler, bytes)))?;
    builder.serve::<Echo<64>>(move |_, bytes| Ok(echo(handler, bytes)))?;
    builder.serve::<Echo<1024>>(move |_, bytes| Ok(echo(handler, bytes)))?;
    builder.serve::<EchoBytes>(move |_, bytes| echo_bytes(handler, &bytes))?;
    builder.serve_batches::<Items>(move |_, items, answers| {
        answers.extend(items.iter().map(|item| handler.item(*item)));
    })?;
    builder.serve::<Sink<64>>(move |_, bytes| taken(handler, &bytes))?;
    builder.serve::<Sink<1024>>(move |_, bytes| taken(handler, &bytes))?;
    builder.serve::<SinkBytes>(move |_, bytes| taken(handler, &bytes))?;
    let publisher = builder.publish::<CgroupsSnapshot>()?;
    let events = events::Publishers::new(&mut builder)?;
    Ok(Running { server: builder.start()?, publisher, events })
}

impl super::Server for Running {
    fn counters(&self) -> Counters {
        let stats = self.server.stats();
        Counters::of_waits(stats.rings, stats.parks)
    }

    fn publish(&mut self, snapshot: &[u8]) -> Outcome<()> {
        self.publisher.publish(snapshot)?;
        Ok(())
    }

    fn send_burst(&mut self, burst: Burst) -> Outcome<()> {
        self.events.send(burst)
    }
}

/// With the library's defaults, but for a pipeline: its lane is to have room for all that is in flight.
fn connected<S: Service>(case: &Case) -> Outcome<Client<S>> {
    let many = case.load.depth() > 1;
    let backpressure = if many { Backpressure::Grow } else { Backpressure::default() };
    let config = ClientConfig::default().backpressure(backpressure);
    let mut client = Client::with_config(&RunDir::new(case.dir()), config);
    client.connect()?;
    Ok(client)
}

fn echo<const N: usize>(handler: Handler, mut bytes: [u8; N]) -> [u8; N] {
    handler.answer(&mut bytes);
    bytes
}

fn taken(handler: Handler, bytes: &[u8]) -> Result<[u8; 0], HandlerError> {
    handler.take(bytes);
    Ok([])
}

fn echo_bytes(handler: Handler, request: &Payload) -> Result<Payload, HandlerError> {
    Ok(Payload::build(request.len(), |bytes| {
        bytes.copy_from_slice(request);
        handler.answer(bytes);
    })?)
}

/// The open session of a client that has connected.
#[inline]
fn session_of<S: Service>(client: &mut Client<S>) -> Outcome<&mut Session<S>> {
    client.session().ok_or_else(|| "the session is gone".into())
}

fn counters_of<S: Service>(client: &mut Client<S>) -> Counters {
    client.session().map_or_else(Counters::default, |session| {
        let stats = session.stats();
        Counters::of_waits(stats.rings, stats.parks)
    })
}
