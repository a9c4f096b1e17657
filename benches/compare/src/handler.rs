//! What every server does with a message, for any contender.

use std::cell::Cell;
use std::hint::black_box;

use crate::load::{Load, Work};
use crate::sink::Sink;

/// The part of a server that is the same for all contenders.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handler {
    kind: Kind,
    falsify: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The first word grows by one, the rest goes back as it came.
    Echo,
    /// Every word is turned into its answer.
    Items,
    Sink {
        timed: bool,
    },
}

thread_local! {
    static ANSWERED: Cell<u64> = const { Cell::new(0) };
}

impl Handler {
    pub(crate) fn new(load: &Load) -> Self {
        let kind = match load.work {
            Work::Batches { .. } => Kind::Items,
            Work::Stream { .. } => Kind::Sink { timed: false },
            Work::OneWay { .. } => Kind::Sink { timed: true },
            _ => Kind::Echo,
        };
        Self { kind, falsify: load.falsify }
    }

    /// Turns a request into its answer, of the same length.
    #[inline]
    pub(crate) fn answer(self, message: &mut [u8]) {
        let words = message.as_chunks_mut().0;
        if self.kind == Kind::Items {
            for word in words.iter_mut() {
                *word = self.item(u64::from_le_bytes(*word)).to_le_bytes();
            }
        } else if let Some(word) = words.first_mut() {
            *word = self.number(u64::from_le_bytes(*word)).to_le_bytes();
        }
    }

    /// The answer to one item of a batch.
    #[inline]
    pub(crate) fn item(self, item: u64) -> u64 {
        answer_of_item(item) ^ self.falsified_bits()
    }

    /// Takes a message of a one-way load.
    #[inline]
    pub(crate) fn take(self, message: &[u8]) {
        Sink::take(
            black_box(message),
            self.kind == Kind::Sink { timed: true },
            self.falsified_bits(),
        );
    }

    #[inline]
    fn number(self, number: u64) -> u64 {
        number.wrapping_add(1) ^ self.falsified_bits()
    }

    /// Not 0 once in so many times, where the harness is to find that out.
    #[inline]
    pub(crate) fn falsified_bits(self) -> u64 {
        if self.falsify == 0 { 0 } else { self.falsified_in_turn() }
    }

    #[cold]
    fn falsified_in_turn(self) -> u64 {
        let answered = ANSWERED.get() + 1;
        ANSWERED.set(answered);
        u64::from(answered.is_multiple_of(self.falsify)) << 40
    }
}

/// What an honest server answers to an item.
#[inline]
pub(crate) fn answer_of_item(item: u64) -> u64 {
    item.rotate_left(17).wrapping_add(1)
}
