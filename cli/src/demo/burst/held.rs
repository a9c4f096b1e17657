use std::collections::BTreeMap;
use std::io;

use bellwire::doctor;
use serde::{Deserialize, Serialize};

/// The shared memory that a process has mapped or open: the size of each piece in bytes, by its number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Held(BTreeMap<u64, u64>);

/// Shared memory. If the system numbers it alike for all processes, each piece counts once, however many have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Memory {
    pub(in super::super) pieces: usize,
    pub(in super::super) bytes: u64,
}

impl Held {
    pub(super) fn by_this_process() -> io::Result<Self> {
        doctor::shared_memory().map(Self)
    }

    pub(super) fn join(mut self, other: &Self) -> Self {
        for (number, bytes) in &other.0 {
            let known = self.0.entry(*number).or_default();
            *known = (*known).max(*bytes);
        }
        self
    }

    pub(super) fn memory(&self) -> Memory {
        Memory { pieces: self.0.len(), bytes: self.0.values().sum() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellwire::Payload;

    #[test]
    fn what_two_processes_have_counts_once() {
        let one = Held(BTreeMap::from([(77, 0x4000), (78, 0x1000)]));
        let other = Held(BTreeMap::from([(78, 0x1000), (79, 0x2000)]));
        assert_eq!(one.join(&other).memory(), Memory { pieces: 3, bytes: 0x7000 });
    }

    #[test]
    fn what_this_process_has_counts_until_it_is_dropped() {
        let counts = || {
            let before = Held::by_this_process().unwrap().memory();
            let payload = Payload::build_from(0, 1 << 20, |_| {}).unwrap();
            let with = Held::by_this_process().unwrap().memory();
            drop(payload);
            let is_counted =
                (with.pieces, with.bytes) == (before.pieces + 1, before.bytes + (1 << 20));
            is_counted && Held::by_this_process().unwrap().memory() == before
        };
        // Other tests of this process have memory, too, for a moment.
        assert!((0..20).any(|_| counts()));
    }
}
