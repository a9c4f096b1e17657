//! Calls of tasks, in a runtime of one thread.

use std::collections::VecDeque;

use bellwire::{
    AsyncClient, AsyncSession, Backpressure, CallError, ClientConfig, RunDir, ServerConfig, Service,
};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::calls::{Bytes, put};
use super::{Bellwire, Echo, Running, counted, serve_with};
use crate::Outcome;
use crate::contender::{self, About, Contender, Counters};
use crate::handler::Handler;
use crate::load::{Load, Place, Work};
use crate::measure::Measure;

/// This project, as a program that uses tokio does.
pub(in crate::contender) struct Tasks;

impl Contender for Tasks {
    const NAME: &'static str = "bellwire-async";
    type Server = Running;

    fn about() -> About {
        let About { version, .. } = Bellwire::about();
        let settings = "as bellwire; a client of a tokio runtime of one thread, a task for each call of a pipeline";
        About { version, settings: settings.to_owned() }
    }

    fn refuses(load: &Load) -> Option<&'static str> {
        match load.work {
            Work::Calls { size: 8 | 64 | 1024, .. } => None,
            Work::Calls { .. } => Some("has calls of 8, 64 and 1024 bytes here"),
            _ => Some("as bellwire: only calls differ"),
        }
    }

    fn serve(place: &Place, _: &Load, handler: Handler) -> Outcome<Running> {
        serve_with(ServerConfig::default(), place, handler)
    }

    fn measure(place: &Place, load: &Load, measure: Measure<'_>) -> Outcome<()> {
        let run_dir = RunDir::new(place.dir());
        match load.work {
            Work::Calls { size: 8, .. } => measure.run(|| Caller::<8>::new(&run_dir)),
            Work::Calls { size: 1024, .. } => measure.run(|| Caller::<1024>::new(&run_dir)),
            _ => measure.run(|| Caller::<64>::new(&run_dir)),
        }
    }
}

struct Caller<const N: usize>
where
    Echo<N>: Service<Request = [u8; N], Response = [u8; N]>,
{
    session: AsyncSession<Echo<N>>,
    in_flight: VecDeque<JoinHandle<Result<[u8; N], CallError>>>,
    // Dropped last: the session's driver is one of its tasks.
    runtime: Runtime,
}

impl<const N: usize> Caller<N>
where
    Echo<N>: Service<Request = [u8; N], Response = [u8; N]>,
{
    fn new(run_dir: &RunDir) -> Outcome<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let config = ClientConfig::default().backpressure(Backpressure::Grow);
        let client = AsyncClient::with_config(run_dir, config);
        let session = runtime.block_on(client.connect())?;
        Ok(Self { session, in_flight: VecDeque::new(), runtime })
    }
}

impl<const N: usize> contender::Client for Caller<N>
where
    Echo<N>: Service<Request = [u8; N], Response = [u8; N]>,
{
    #[inline]
    fn call(&mut self, request: &[u8], answer: &mut [u8]) -> Outcome<usize> {
        let request = request.try_into()?;
        put(self.runtime.block_on(self.session.call(request))?.bytes(), answer)
    }

    #[inline]
    fn submit(&mut self, request: &[u8]) -> Outcome<()> {
        let (session, request): (_, [u8; N]) = (self.session.clone(), request.try_into()?);
        let task = self.runtime.spawn(async move { session.call(&request).await });
        self.in_flight.push_back(task);
        Ok(())
    }

    #[inline]
    fn reply(&mut self, answer: &mut [u8]) -> Outcome<usize> {
        let oldest = self.in_flight.pop_front().ok_or("nothing is in flight")?;
        put(self.runtime.block_on(oldest)??.bytes(), answer)
    }

    fn counters(&mut self) -> Counters {
        let stats = self.session.stats();
        counted(stats.rings, stats.parks)
    }
}
