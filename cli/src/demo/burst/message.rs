use bellwire::{Payload, Shortage};

use crate::message::{self, SHORTEST};

/// The service of the burst's messages. Not idempotent: a request that may have been executed is never sent again.
#[derive(bellwire::Service)]
#[service(name = "demo-burst", request = Payload, response = Payload)]
pub(super) struct DemoBurst;

/// A message's header.
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

impl Message {
    /// Returns the message of `len` bytes in all, in a memfd of its own from `attach_from` bytes on.
    pub(super) fn build(&self, attach_from: usize, len: usize) -> Result<Payload, Shortage> {
        let numbers = [self.stream as u64, self.sequence, self.answer as u64, self.run];
        Payload::build_from(attach_from, len.max(SHORTEST), |bytes| message::write(numbers, bytes))
    }

    /// Returns the header if the bytes are intact.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let [stream, sequence, answer, run] = message::read(bytes)?;
        let stream = match stream {
            1 => Stream::Own,
            2 => Stream::Attached,
            _ => return None,
        };
        Some(Self { stream, sequence, answer: usize::try_from(answer).ok()?, run })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_built_message_parses_to_its_fields() {
        let message = Message { stream: Stream::Own, sequence: 7, answer: 99, run: 3 };
        for len in [0, 64, 101, 4096] {
            let built = message.build(usize::MAX, len).unwrap();
            assert_eq!(Message::parse(&built), Some(message));
            assert_eq!(built.len(), len.max(SHORTEST));
        }
        let attached = Message { stream: Stream::Attached, ..message }.build(0, 8192).unwrap();
        assert!(attached.is_mapped() && Message::parse(&attached).is_some());
    }
}
