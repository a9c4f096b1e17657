//! One way, in batches: messages wait at the sending end until they fill one, as in a buffer.

use bellwire::{CallError, Client, RunDir, Server, ServerConfig, Service};

use super::{ANSWERS_WITHIN, connected, counters_of, session_of};
use crate::Outcome;
use crate::contender::{self, Contender, ContenderInfo, Counters};
use crate::handler::Handler;
use crate::load::{Case, Load, Work};
use crate::measure::Measure;

/// A batch has as many messages as fit into this many bytes.
const BATCH: usize = 32 << 10;
/// Batches whose answers have not been taken yet.
const MAX_IN_FLIGHT: u32 = 3;

/// This project, where a stream is sent in batches.
pub(in crate::contender) struct Batched;

/// Takes messages of a fixed length, in batches, and answers each by a byte: items of equal length are adjacent,
/// empty ones are not.
struct SinkBatch<const N: usize>;

impl<const N: usize> Service for SinkBatch<N> {
    const NAME: &'static str =
        if N == 64 { "bench-sink-batch-64" } else { "bench-sink-batch-1024" };
    type Request = [u8; N];
    type Response = u8;
}

impl contender::Server for Server {}

impl Contender for Batched {
    const NAME: &'static str = "bellwire-batches";

    fn about() -> ContenderInfo {
        ContenderInfo::of_this_project(format!(
            "as bellwire; messages collected into batches of {} KiB, up to {MAX_IN_FLIGHT} on their way",
            BATCH >> 10
        ))
    }

    fn refuses(load: &Load) -> Option<&'static str> {
        match load.work {
            Work::Stream { size: 64 | 1024 } => None,
            Work::Stream { .. } => Some("a message is as long as a batch"),
            _ => Some("messages wait until they fill a batch"),
        }
    }

    fn serve(case: &Case, handler: Handler) -> Outcome<impl contender::Server> {
        let run_dir = RunDir::new(case.dir());
        let mut builder = Server::builder_with_config(&run_dir, ServerConfig::default());
        builder.serve_batches::<SinkBatch<64>>(move |_, items, answers| {
            answers.extend(items.iter().map(|item| taken(handler, item)));
        })?;
        builder.serve_batches::<SinkBatch<1024>>(move |_, items, answers| {
            answers.extend(items.iter().map(|item| taken(handler, item)));
        })?;
        Ok(builder.start()?)
    }

    fn measure(case: &Case, measure: Measure<'_>) -> Outcome<()> {
        match case.load.work {
            Work::Stream { size: 64 } => measure.run(|| Sender::<64>::new(case)),
            _ => measure.run(|| Sender::<1024>::new(case)),
        }
    }
}

fn taken(handler: Handler, message: &[u8]) -> u8 {
    handler.take(message);
    0
}

struct Sender<const N: usize> {
    client: Client<SinkBatch<N>>,
    waiting: Vec<[u8; N]>,
    in_flight: u32,
}

impl<const N: usize> Sender<N> {
    fn new(case: &Case) -> Outcome<Self> {
        let waiting = Vec::with_capacity(BATCH / N);
        Ok(Self { client: connected(case)?, waiting, in_flight: 0 })
    }

    fn send(&mut self) -> Outcome<()> {
        if self.in_flight == MAX_IN_FLIGHT {
            self.take()?;
        }
        // A preempted server has read none of them yet: with the loss at the lane's end they may fill it.
        loop {
            match session_of(&mut self.client)?.submit_batch(&self.waiting) {
                Ok(_) => break,
                Err(CallError::WouldBlock) if self.in_flight > 0 => self.take()?,
                Err(error) => return Err(error.into()),
            }
        }
        self.waiting.clear();
        self.in_flight += 1;
        Ok(())
    }

    /// Waits for the answers to one batch.
    fn take(&mut self) -> Outcome<()> {
        let session = session_of(&mut self.client)?;
        let (_, replies) = session.wait_batch(ANSWERS_WITHIN)?;
        for reply in replies? {
            reply?;
        }
        self.in_flight -= 1;
        Ok(())
    }
}

impl<const N: usize> contender::Client for Sender<N> {
    #[inline]
    fn post(&mut self, message: &[u8]) -> Outcome<()> {
        self.waiting.push(message.try_into()?);
        if self.waiting.len() == BATCH / N {
            self.send()?;
        }
        Ok(())
    }

    fn finish_posts(&mut self) -> Outcome<()> {
        if !self.waiting.is_empty() {
            self.send()?;
        }
        while self.in_flight > 0 {
            self.take()?;
        }
        Ok(())
    }

    fn counters(&mut self) -> Counters {
        counters_of(&mut self.client)
    }
}
