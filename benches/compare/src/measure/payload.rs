//! What is sent, and the check of the answer.

use fastrand::Rng;

use crate::Outcome;
use crate::load::SMALLEST;

/// Answers up to this length are compared as a whole. Of longer ones a part of this length is, another one each time.
const WINDOW: usize = 4 << 10;

/// A request, with a number of its own each time, and where its answer goes.
pub(crate) struct Payload {
    pub(crate) request: Vec<u8>,
    pub(crate) answer: Vec<u8>,
    sent: u64,
    taken: u64,
}

impl Payload {
    pub(crate) fn new(size: usize) -> Self {
        let mut request = vec![0; size.max(SMALLEST)];
        Rng::with_seed(7).fill(&mut request);
        Self { answer: vec![0; request.len()], request, sent: 0, taken: 0 }
    }

    /// Gives the request its next number.
    #[inline]
    pub(crate) fn next(&mut self) {
        self.sent += 1;
        if let Some(head) = self.request.first_chunk_mut() {
            *head = self.sent.to_le_bytes();
        }
    }

    /// Whether the answer, of `len` bytes, is that to the oldest request which was not checked yet.
    #[inline]
    pub(crate) fn check(&mut self, len: usize) -> Outcome<()> {
        self.taken += 1;
        let size = self.request.len();
        let parts = (size / WINDOW).max(1);
        let part = usize::try_from(self.taken).unwrap_or(0) % parts;
        let from = (part * WINDOW).max(SMALLEST);
        let to = if part + 1 == parts { size } else { from.max(part * WINDOW + WINDOW) };
        let number = self.answer.first_chunk().map(|head| u64::from_le_bytes(*head));
        let is_right = len == size
            && number == Some(self.taken + 1)
            && self.answer.get(from..to) == self.request.get(from..to);
        if is_right { Ok(()) } else { self.wrong(len, number) }
    }

    #[cold]
    fn wrong(&self, len: usize, number: Option<u64>) -> Outcome<()> {
        let (size, taken) = (self.request.len(), self.taken);
        let number = number.unwrap_or_default();
        Err(format!(
            "answer {taken} is wrong: {len} bytes of {size}, number {number} where {} was due: do not use these figures",
            taken + 1
        )
        .into())
    }
}
