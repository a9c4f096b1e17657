//! The messages between the soak's processes.

use bellwire_cli::message::{self, SHORTEST};

/// The head of every request and answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The consumer process, by its number in the soak.
    pub(super) who: u64,
    pub(super) thread: u64,
    /// Numbers the requests of a thread.
    pub(super) sequence: u64,
    /// The requested or actual length of the answer in bytes.
    pub(super) answer: u64,
}

impl Header {
    /// Makes this the header of the thread's next request, and returns it.
    pub(super) fn next(&mut self, answer: u64) -> Self {
        *self = Self { sequence: self.sequence + 1, answer, ..*self };
        *self
    }

    /// Returns the message, `len` bytes long.
    pub(super) fn write(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len.max(SHORTEST)];
        message::write([self.who, self.thread, self.sequence, self.answer], &mut bytes);
        bytes
    }

    /// Reads a message; returns `None` if it is damaged.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let [who, thread, sequence, answer] = message::read(bytes)?;
        Some(Self { who, thread, sequence, answer })
    }

    /// Returns the answer to this request.
    pub(super) fn answered(&self) -> Vec<u8> {
        self.write(usize::try_from(self.answer).unwrap_or(SHORTEST))
    }

    /// Returns whether these bytes are exactly the answer to this request.
    pub(super) fn is_answered_by(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == self.answer && Self::read(bytes) == Some(*self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LETTER: Header = Header { who: 3, thread: 1, sequence: 77, answer: 100 };

    #[test]
    fn another_requests_answer_is_none() {
        assert!(LETTER.is_answered_by(&LETTER.answered()));
        let next = Header { sequence: 78, ..LETTER };
        assert!(!LETTER.is_answered_by(&next.answered()));
        assert!(!LETTER.is_answered_by(&LETTER.write(101)));
    }
}
