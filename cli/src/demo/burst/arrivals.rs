use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::message::{Message, Stream};

/// The arrivals of a known number of messages. One end counts requests with it, the other answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Arrivals {
    /// All arrivals.
    pub(in super::super) messages: u64,
    pub(in super::super) bytes: u64,
    /// Messages that arrived again.
    pub(in super::super) repeated: u64,
    /// Messages that arrived after one that was sent later.
    pub(in super::super) reordered: u64,
    /// Messages that differ from what was sent.
    pub(in super::super) damaged: u64,
}

/// The sequence numbers of one session.
#[derive(Debug, Default)]
pub(super) struct Sequences(BTreeMap<Stream, Sequence>);

#[derive(Debug, Default)]
struct Sequence {
    last: u64,
    /// Below `last` and not arrived yet.
    missing: BTreeSet<u64>,
}

impl Arrivals {
    /// Counts a message of a session; `None` is a damaged one.
    pub(super) fn count(&mut self, of: &mut Sequences, bytes: usize, message: Option<&Message>) {
        self.messages += 1;
        self.bytes += bytes as u64;
        let Some(message) = message else {
            self.damaged += 1;
            return;
        };
        let sequence = of.0.entry(message.stream).or_default();
        if message.sequence > sequence.last {
            sequence.missing.extend(sequence.last + 1..message.sequence);
            sequence.last = message.sequence;
        } else if sequence.missing.remove(&message.sequence) {
            self.reordered += 1;
        } else {
            self.repeated += 1;
        }
    }

    /// Returns how many of the sent messages did not arrive intact.
    pub(in super::super) fn lost(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.messages - self.repeated - self.damaged)
    }

    /// Counts a message that nothing waited for any more.
    pub(super) fn count_again(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
        self.repeated += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(sequences: impl IntoIterator<Item = u64>) -> Arrivals {
        let (mut arrivals, mut of) = (Arrivals::default(), Sequences::default());
        for sequence in sequences {
            let message = Message { stream: Stream::Own, sequence, answer: 0, run: 0 };
            arrivals.count(&mut of, 1, Some(&message));
        }
        arrivals
    }

    #[test]
    fn lost_repeated_and_reordered_messages_are_distinguished() {
        let counts =
            |arrivals: Arrivals, sent| (arrivals.lost(sent), arrivals.repeated, arrivals.reordered);
        assert_eq!(counts(arrivals(1..=4), 4), (0, 0, 0));
        assert_eq!(counts(arrivals([1, 3, 4]), 4), (1, 0, 0));
        assert_eq!(counts(arrivals([1, 2, 3]), 4), (1, 0, 0), "also the last one");
        assert_eq!(counts(arrivals([1, 2, 2, 3, 4]), 4), (0, 1, 0));
        assert_eq!(counts(arrivals([1, 3, 2, 4]), 4), (0, 0, 1));
        assert_eq!(counts(arrivals([1, 3, 3, 4]), 4), (1, 1, 0));
    }

    #[test]
    fn a_damaged_message_is_lost_too() {
        let (mut arrivals, mut of) = (Arrivals::default(), Sequences::default());
        arrivals.count(&mut of, 64, None);
        assert_eq!((arrivals.damaged, arrivals.lost(1)), (1, 1));
    }

    #[test]
    fn streams_are_numbered_apart() {
        let (mut arrivals, mut of) = (Arrivals::default(), Sequences::default());
        for stream in [Stream::Own, Stream::Attached] {
            let message = Message { stream, sequence: 1, answer: 0, run: 0 };
            arrivals.count(&mut of, 1, Some(&message));
        }
        assert_eq!((arrivals.repeated, arrivals.lost(2)), (0, 0));
    }
}
