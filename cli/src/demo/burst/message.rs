use bellwire::{Payload, Shortage};

/// The service of the burst's messages. Not idempotent: a request that may have been executed is never sent again.
#[derive(bellwire::Service)]
#[service(name = "demo-burst", request = Payload, response = Payload)]
pub(super) struct DemoBurst;

/// A message's header; the rest of it is a pattern that no other message has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) stream: Stream,
    /// Counted from 1 in each stream of a session.
    pub(super) sequence: u64,
    /// The requested length of the answer, or this answer's length, in bytes.
    pub(super) answer: usize,
    /// In an answer: how often the handler has run for the session, including this run.
    pub(super) run: u64,
}

/// Messages that are numbered together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stream {
    /// Created for one session.
    Own = 1,
    /// The same memfd goes to several sessions; so does the length of its answer.
    Attached = 2,
}

const WORD: usize = size_of::<u64>();
/// Stream, sequence, answer, run, checksum.
const HEADER: usize = 5 * WORD;
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Message {
    /// Returns the message of `len` bytes in all, in a memfd of its own from `attach_from` bytes on.
    pub(super) fn build(&self, attach_from: usize, len: usize) -> Result<Payload, Shortage> {
        Payload::build_from(attach_from, len.max(HEADER), |bytes| {
            let Some((header, body)) = bytes.split_at_mut_checked(HEADER) else { return };
            fill(body, self.sequence ^ (self.stream as u64) << 56 ^ self.run.rotate_left(32));
            let sum = self.checksum(body);
            let words = [self.stream as u64, self.sequence, self.answer as u64, self.run, sum];
            for (to, word) in header.chunks_exact_mut(WORD).zip(words) {
                to.copy_from_slice(&word.to_le_bytes());
            }
        })
    }

    /// Returns the header if the bytes are intact.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (header, body) = bytes.split_at_checked(HEADER)?;
        let mut words = header.chunks_exact(WORD).map(word);
        let stream = match words.next()? {
            1 => Stream::Own,
            2 => Stream::Attached,
            _ => return None,
        };
        let (sequence, answer) = (words.next()?, usize::try_from(words.next()?).ok()?);
        let message = Self { stream, sequence, answer, run: words.next()? };
        (words.next()? == message.checksum(body)).then_some(message)
    }

    /// Covers the header, the body and its length.
    fn checksum(&self, body: &[u8]) -> u64 {
        let add = |sum: u64, word: u64| (sum ^ word).wrapping_mul(GOLDEN).rotate_left(29);
        let header = [self.stream as u64, self.sequence, self.answer as u64, self.run];
        let sum = header.into_iter().fold(body.len() as u64, add);
        let words = body.chunks_exact(WORD);
        let rest = words.remainder();
        let sum = words.map(word).fold(sum, add);
        rest.iter().map(|byte| u64::from(*byte)).fold(sum, add)
    }
}

/// Fills the bytes with a pattern that differs in each word and with each seed.
fn fill(bytes: &mut [u8], seed: u64) {
    let mut word = seed.wrapping_mul(GOLDEN) | 1;
    let mut words = bytes.chunks_exact_mut(WORD);
    for to in &mut words {
        word = word.wrapping_add(GOLDEN);
        to.copy_from_slice(&(word ^ word >> 31).to_le_bytes());
    }
    words.into_remainder().fill(0xa5);
}

fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: Message = Message { stream: Stream::Own, sequence: 7, answer: 99, run: 3 };

    #[test]
    fn a_message_says_what_it_was_built_to_say() {
        for len in [0, 64, 101, 4096] {
            let built = MESSAGE.build(usize::MAX, len).unwrap();
            assert_eq!(Message::parse(&built), Some(MESSAGE));
            assert_eq!(built.len(), len.max(HEADER));
        }
        let attached = Message { stream: Stream::Attached, ..MESSAGE }.build(0, 8192).unwrap();
        assert!(attached.is_mapped() && Message::parse(&attached).is_some());
    }

    #[test]
    fn any_byte_that_changed_shows_and_so_does_a_length() {
        let built = MESSAGE.build(usize::MAX, 101).unwrap().to_vec();
        for at in 0..built.len() {
            let mut bytes = built.clone();
            bytes[at] ^= 0x40;
            assert_eq!(Message::parse(&bytes), None, "byte {at}");
        }
        assert_eq!(Message::parse(&built[..100]), None);
        assert_eq!(Message::parse(&built[..30]), None);
    }
}
