//! Batches: many items in one message.

use bellwire::{BatchReplies, Client};

use super::{ANSWERS_WITHIN, Items, connected, counters_of, session_of};
use crate::Outcome;
use crate::contender::{self, Counters};
use crate::load::Case;

/// A connected client.
pub(super) struct Caller {
    client: Client<Items>,
    /// What the last answers were, as the library appends them.
    values: Vec<u64>,
}

impl Caller {
    pub(super) fn connect(case: &Case) -> Outcome<Self> {
        Ok(Self { client: connected(case)?, values: Vec::new() })
    }
}

impl contender::Client for Caller {
    #[inline]
    fn batch(&mut self, items: &[u64], answers: &mut [u64]) -> Outcome<usize> {
        put(session_of(&mut self.client)?.call_batch(items)?, &mut self.values, answers)
    }

    #[inline]
    fn submit_batch(&mut self, items: &[u64]) -> Outcome<()> {
        session_of(&mut self.client)?.submit_batch(items)?;
        Ok(())
    }

    #[inline]
    fn batch_reply(&mut self, answers: &mut [u64]) -> Outcome<usize> {
        let session = session_of(&mut self.client)?;
        put(session.wait_batch(ANSWERS_WITHIN)?.1?, &mut self.values, answers)
    }

    fn counters(&mut self) -> Counters {
        counters_of(&mut self.client)
    }
}

#[inline]
fn put(
    mut replies: BatchReplies<'_, Items>,
    values: &mut Vec<u64>,
    answers: &mut [u64],
) -> Outcome<usize> {
    values.clear();
    replies.append_to(values)?;
    for (value, answer) in values.iter().zip(answers) {
        *answer = *value;
    }
    Ok(values.len())
}
