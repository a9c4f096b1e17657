//! Batches of items from a fixed seed, every item checked.

use std::collections::VecDeque;

use fastrand::Rng;

use super::Operations;
use crate::Outcome;
use crate::contender::{Client, ITEMS};
use crate::handler::answer_of_item;

/// The source of the items of batches, and the expected results.
struct Source {
    items: Vec<u64>,
    answers: Vec<u64>,
    /// Chooses lengths and starts; each end of a batch has its own, in step.
    sent: Rng,
    taken: Rng,
}

impl Source {
    fn new() -> Self {
        let mut random = Rng::with_seed(7);
        let items = (0..2 * ITEMS).map(|_| random.u64(..)).collect();
        Self { items, answers: vec![0; ITEMS], sent: random.clone(), taken: random }
    }

    /// Whether `len` answers are those to the oldest batch that was not checked yet.
    #[inline]
    fn check(&mut self, len: usize) -> Outcome<()> {
        let items = batch(&self.items, &mut self.taken);
        let answers = self.answers.get(..len).unwrap_or_default();
        let mut differ = u64::from(items.len() != answers.len());
        for (item, answer) in items.iter().zip(answers) {
            differ |= answer_of_item(*item) ^ answer;
        }
        if differ == 0 {
            return Ok(());
        }
        let due = items.len();
        Err(format!("the answers to a batch are wrong: {len} where {due} were due, or another value: do not use these figures").into())
    }
}

/// 2 to 1 000 items.
#[inline]
fn batch<'a>(items: &'a [u64], choice: &mut Rng) -> &'a [u64] {
    let random = choice.u64(..);
    let len = 2 + (random >> 32) % (ITEMS as u64 - 1);
    let from = (random & 0xffff_ffff) % ITEMS as u64;
    let (from, len) = (usize::try_from(from).unwrap_or(0), usize::try_from(len).unwrap_or(2));
    items.get(from..from + len).unwrap_or_default()
}

/// One in flight.
pub(super) struct Alone(Source);

impl Alone {
    pub(super) fn new() -> Self {
        Self(Source::new())
    }
}

impl<C: Client> Operations<C> for Alone {
    #[inline]
    fn steps(&mut self, client: &mut C, steps: u64) -> Outcome<u64> {
        let mut done = 0;
        for _ in 0..steps {
            let Source { items, answers, sent, .. } = &mut self.0;
            let batch = batch(items, sent);
            done += batch.len() as u64;
            let len = client.batch(batch, answers)?;
            self.0.check(len)?;
        }
        Ok(done)
    }
}

/// So many in flight.
pub(super) struct Pipeline {
    source: Source,
    depth: usize,
    in_flight: VecDeque<usize>,
}

impl Pipeline {
    pub(super) fn new(depth: usize) -> Self {
        Self { source: Source::new(), depth, in_flight: VecDeque::new() }
    }

    #[inline]
    fn take(&mut self, client: &mut impl Client) -> Outcome<u64> {
        let len = client.batch_reply(&mut self.source.answers)?;
        self.source.check(len)?;
        Ok(self.in_flight.pop_front().unwrap_or(0) as u64)
    }
}

impl<C: Client> Operations<C> for Pipeline {
    /// Items of batches that were answered.
    #[inline]
    fn steps(&mut self, client: &mut C, steps: u64) -> Outcome<u64> {
        let mut done = 0;
        for _ in 0..steps {
            if self.in_flight.len() == self.depth {
                done += self.take(client)?;
            }
            let batch = batch(&self.source.items, &mut self.source.sent);
            self.in_flight.push_back(batch.len());
            client.submit_batch(batch)?;
        }
        Ok(done)
    }

    fn finish(&mut self, client: &mut C) -> Outcome<()> {
        while !self.in_flight.is_empty() {
            self.take(client)?;
        }
        Ok(())
    }
}
