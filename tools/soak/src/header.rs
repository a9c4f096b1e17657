//! The messages between the soak's processes: numbered, with a checksum that shows a damaged byte.

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

const HEAD: usize = 32;
const SUM: usize = 8;
/// The shortest message, in bytes.
pub(super) const SHORTEST: usize = HEAD + SUM;

impl Header {
    /// Makes this the header of the thread's next request, and returns it.
    pub(super) fn next(&mut self, answer: u64) -> Self {
        *self = Self { sequence: self.sequence + 1, answer, ..*self };
        *self
    }

    /// Returns the message, `len` bytes long: its head, bytes that no other message has, and its checksum.
    pub(super) fn write(&self, len: usize) -> Vec<u8> {
        let body = len.max(SHORTEST) - SUM;
        let mut bytes = Vec::with_capacity(body + SUM);
        for field in [self.who, self.thread, self.sequence, self.answer] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        let mut word = self.sequence ^ self.who.rotate_left(40) ^ self.thread.rotate_left(20);
        while bytes.len() < body {
            word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ 0x5bd1_e995;
            let left = (body - bytes.len()).min(8);
            bytes.extend(word.to_le_bytes().into_iter().take(left));
        }
        let sum = sum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a message; returns `None` if it is damaged.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (body, found) = bytes.split_last_chunk::<SUM>()?;
        let (fields, _) = body.as_chunks::<8>();
        let [who, thread, sequence, answer, ..] = fields else { return None };
        let [who, thread, sequence, answer] =
            [who, thread, sequence, answer].map(|field| u64::from_le_bytes(*field));
        (u64::from_le_bytes(*found) == sum(body)).then_some(Self { who, thread, sequence, answer })
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

fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mix =
        |sum: u64, word: u64| (sum ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(31);
    let sum =
        words.iter().fold(bytes.len() as u64, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| mix(sum, u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LETTER: Header = Header { who: 3, thread: 1, sequence: 77, answer: 100 };

    #[test]
    fn what_was_written_is_read_again_whatever_its_length() {
        for len in [SHORTEST, SHORTEST + 1, 100, 4096] {
            assert_eq!(LETTER.write(len).len(), len);
            assert_eq!(Header::read(&LETTER.write(len)), Some(LETTER));
        }
    }

    #[test]
    fn any_byte_that_changes_is_noticed() {
        let bytes = LETTER.write(100);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(Header::read(&changed), None, "byte {at}");
        }
        assert_eq!(Header::read(&bytes[..99]), None);
    }

    #[test]
    fn another_requests_answer_is_none() {
        assert!(LETTER.is_answered_by(&LETTER.answered()));
        let next = Header { sequence: 78, ..LETTER };
        assert!(!LETTER.is_answered_by(&next.answered()));
        assert!(!LETTER.is_answered_by(&LETTER.write(101)));
    }
}
