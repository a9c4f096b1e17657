//! Batches: many items in one message.

use bellwire::{Client, Replies};

use super::{Items, counters_of, session_of};
use crate::Outcome;
use crate::contender::{self, Counters};

/// A connected client.
pub(super) struct Caller {
    client: Client<Items>,
}

impl Caller {
    pub(super) fn new(client: Client<Items>) -> Outcome<Self> {
        Ok(Self { client })
    }
}

impl contender::Client for Caller {
    #[inline]
    fn batch(&mut self, items: &[u64], answers: &mut [u64]) -> Outcome<usize> {
        put(session_of(&mut self.client)?.call_batch(items)?, answers)
    }

    #[inline]
    fn submit_batch(&mut self, items: &[u64]) -> Outcome<()> {
        session_of(&mut self.client)?.submit_batch(items)?;
        Ok(())
    }

    #[inline]
    fn batch_reply(&mut self, answers: &mut [u64]) -> Outcome<usize> {
        let session = session_of(&mut self.client)?;
        session.wait()?;
        match session.try_batch()? {
            Some((_, replies)) => put(replies?, answers),
            None => Err("an answer to no batch".into()),
        }
    }

    fn counters(&mut self) -> Counters {
        counters_of(&mut self.client)
    }
}

#[inline]
fn put(replies: Replies<'_, Items>, answers: &mut [u64]) -> Outcome<usize> {
    let mut count = 0;
    for (reply, answer) in replies.zip(answers) {
        *answer = reply?;
        count += 1;
    }
    Ok(count)
}
