//! Calls of tasks, in a runtime of one thread.

use bellwire::{AsyncClient, AsyncSession, Backpressure, ClientConfig, RunDir, ServerConfig};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::{Echo, serve_with};
use crate::Outcome;
use crate::contender::{self, Contender, ContenderInfo, Counters, put};
use crate::handler::Handler;
use crate::load::{Case, Load, Work};
use crate::measure::{Measure, Payload};

/// This project, as a program that uses tokio does.
pub(in crate::contender) struct Tasks;

impl Contender for Tasks {
    const NAME: &'static str = "bellwire-async";

    fn about() -> ContenderInfo {
        ContenderInfo::of_this_project(
            "as bellwire; a client in a tokio runtime of one thread, which is entered once for some thousand calls; a \
             pipeline is a task for each call in flight",
        )
    }

    fn refuses(load: &Load) -> Option<&'static str> {
        match load.work {
            Work::Calls { size: 8 | 64 | 1024, .. } => None,
            Work::Calls { .. } => Some("has calls of 8, 64 and 1024 bytes here"),
            _ => Some("as bellwire: only calls differ"),
        }
    }

    fn serve(case: &Case, handler: Handler) -> Outcome<impl contender::Server> {
        serve_with(ServerConfig::default(), case, handler)
    }

    fn measure(case: &Case, measure: Measure<'_>) -> Outcome<()> {
        match case.load.work {
            Work::Calls { size: 8, .. } => measure.run(|| Caller::<8>::new(case)),
            Work::Calls { size: 1024, .. } => measure.run(|| Caller::<1024>::new(case)),
            _ => measure.run(|| Caller::<64>::new(case)),
        }
    }
}

struct Caller<const N: usize> {
    session: AsyncSession<Echo<N>>,
    /// What each task of a pipeline sends.
    payloads: Vec<Payload>,
    // Dropped last: the session's driver is one of its tasks.
    runtime: Runtime,
}

impl<const N: usize> Caller<N> {
    fn new(case: &Case) -> Outcome<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let config = ClientConfig::default().backpressure(Backpressure::Grow);
        let client = AsyncClient::with_config(&RunDir::new(case.dir()), config);
        let session = runtime.block_on(client.connect())?;
        Ok(Self { session, payloads: Vec::new(), runtime })
    }
}

/// Each of `payloads` is that of a task; all make `steps` calls together.
async fn concurrently<const N: usize>(
    session: &AsyncSession<Echo<N>>,
    payloads: &mut Vec<Payload>,
    steps: u64,
) -> Outcome<()> {
    let (depth, mut tasks) = (u64::try_from(payloads.len())?, JoinSet::new());
    for (task, mut payload) in (0_u64..).zip(payloads.drain(..)) {
        let session = session.clone();
        let share = steps / depth + u64::from(task < steps % depth);
        tasks.spawn(async move {
            calls(&session, &mut payload, share).await?;
            Outcome::Ok(payload)
        });
    }
    while let Some(done) = tasks.join_next().await {
        payloads.push(done??);
    }
    Ok(())
}

async fn calls<const N: usize>(
    session: &AsyncSession<Echo<N>>,
    payload: &mut Payload,
    steps: u64,
) -> Outcome<()> {
    for _ in 0..steps {
        payload.next();
        let answer = session.call(payload.request.as_slice().try_into()?).await?;
        let len = put(&answer, &mut payload.answer)?;
        payload.check(len)?;
    }
    Ok(())
}

impl<const N: usize> contender::Client for Caller<N> {
    fn calls(&mut self, payload: &mut Payload, steps: u64) -> Outcome<()> {
        self.runtime.block_on(calls(&self.session, payload, steps))
    }

    fn concurrent_calls(
        &mut self,
        payload: &Payload,
        depth: usize,
        steps: u64,
    ) -> Option<Outcome<()>> {
        self.payloads.resize_with(depth, || Payload::new(payload.request.len()));
        Some(self.runtime.block_on(concurrently(&self.session, &mut self.payloads, steps)))
    }

    fn counters(&mut self) -> Counters {
        let stats = self.session.stats();
        Counters::of_waits(stats.rings, stats.parks)
    }
}
