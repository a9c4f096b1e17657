//! Operations that this process announces and its peer answers, one at a time, both spinning on a word.

use std::hint::spin_loop;

use super::hot::GONE;
use super::process::Child;
use super::shared::{LINE, Region, Word};
use super::sync::{AtomicU64, Ordering};
use super::{Error, Result};

/// A counter of each end, and the peer's answer beside its own.
pub struct Turns {
    announced: Word<AtomicU64>,
    answered: Word<AtomicU64>,
    answer: Word<AtomicU64>,
    turn: u64,
}

impl Turns {
    /// The bytes of shared memory that it needs, from the start of a region on.
    pub const LEN: usize = 2 * LINE;

    /// One end; both count from zero.
    pub fn new(region: &Region) -> Result<Turns> {
        Ok(Turns {
            announced: region.word(0)?,
            answered: region.word(LINE)?,
            // On the line that the waiting end fetches anyway.
            answer: region.word(LINE + size_of::<u64>())?,
            turn: 0,
        })
    }

    /// Lets [`wait`](Turns::wait) fail once `child` has died: the peer's counter then holds all ones.
    pub fn watch(&self, child: &mut Child) -> Result<()> {
        let answered = self.answered.clone();
        child.watch(move || answered.store(GONE, Ordering::Release))
    }

    /// The bench: lets the peer begin the next operation.
    #[inline]
    pub fn announce(&mut self) {
        self.turn += 1;
        // Pairs with the acquire in `next`.
        self.announced.store(self.turn, Ordering::Release);
    }

    /// The bench: spins until the peer has answered what was announced last; the answer.
    #[inline]
    pub fn wait(&self, role: &'static str) -> Result<u64> {
        loop {
            // Pairs with the release in `reply`: a reader that sees the counter sees the answer.
            match self.answered.load(Ordering::Acquire) {
                GONE => return Err(Error::PeerGone { role }),
                turn if turn >= self.turn => return Ok(self.answer.load(Ordering::Relaxed)),
                _ => spin_loop(),
            }
        }
    }

    /// The peer: spins until the next operation is announced.
    #[inline]
    pub fn next(&mut self) {
        self.turn += 1;
        // Pairs with the release in `announce`.
        while self.announced.load(Ordering::Acquire) < self.turn {
            spin_loop();
        }
    }

    /// The peer: answers it.
    #[inline]
    pub fn reply(&self, answer: u64) {
        self.answer.store(answer, Ordering::Relaxed);
        // Pairs with the acquire in `wait`.
        self.answered.store(self.turn, Ordering::Release);
    }
}
