//! Prefetches for writing the lines of the next record while an end waits.
//!
//! The peer read a lane's free lines a lap ago, so they are in its cache too. The first write to each has to
//! invalidate that copy: some ten nanoseconds a line, more from another cache complex. A waiting end has that time to
//! spare. It writes a word to each line that it will probably write before its next wait. These lines are free: the
//! peer reads nothing that was not published. `docs/adr/0030-write-prefetch.md` has the measurements.

use super::LINE;
use super::epoch::Ring;
use crate::OwnMemory;

/// Lines at the start of the next record that are not prefetched for writing: a spinning peer prefetches them with
/// each poll and would only take them back. See [`Lanes::moved`](super::Lanes::moved).
const POLLED_LINES: u64 = if cfg!(loom) { 1 } else { 2 };
/// Lines per poll of the peer: prefetching more would delay noticing its answer.
const LINES_PER_POLL: u32 = 4;
/// Bytes prefetched at most, to leave room in the L1 cache for this end's other data.
const MAX_PREFETCHED: u64 = 8 << 10;
/// The estimate decays by at most this fraction (1/8) per wait.
const DECAY: u64 = 8;

/// The prefetch state of a lane.
#[derive(Debug, Default)]
pub(super) struct LinePrefetcher {
    /// Bytes that this end will probably write before its next wait.
    likely: u64,
    /// The write position at the last wait.
    waited_at: u64,
    /// The position up to which lines are prefetched.
    up_to: u64,
    /// The start of the record for which prefetching is complete.
    done_for: u64,
}

impl LinePrefetcher {
    /// Prefetches some lines from `next` on, or from the lane's start if its end is too near. The peer has taken
    /// everything up to `free`.
    #[inline]
    pub(super) fn advance<O: OwnMemory>(&mut self, own: &O, ring: &Ring, next: u64, free: u64) {
        // An exchange of short messages is answered between two polls; do not delay it.
        if (next - self.waited_at).max(self.likely) <= POLLED_LINES * LINE {
            self.waited_at = next;
        } else if self.done_for != next {
            self.prefetch_some(own, ring, next, free);
        }
    }

    fn prefetch_some<O: OwnMemory>(&mut self, own: &O, ring: &Ring, next: u64, free: u64) {
        if self.waited_at != next {
            let written = next - self.waited_at;
            self.likely = written.min(MAX_PREFETCHED).max(self.likely - self.likely / DECAY);
            self.waited_at = next;
        }
        let to_end = ring.room_to_end(next);
        let padded = if to_end < self.likely { to_end } else { 0 };
        let until = free.min(next + padded + self.likely);
        let into_line = ring.offset(next) as u64 % LINE;
        // At least one byte past `next`: everything before it may be published.
        let mut at = self.up_to.max(next + POLLED_LINES * LINE - into_line);
        for _ in 0..LINES_PER_POLL {
            if at >= until {
                self.done_for = next;
                break;
            }
            own.write(ring.offset(at), &[0; size_of::<u64>()]);
            at += LINE;
        }
        self.up_to = at;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use core::cell::RefCell;
    use std::vec::Vec;

    use super::*;
    use crate::sync::Ordering;
    use crate::{Geometry, Word};

    /// Records where writes go.
    #[derive(Default)]
    struct Noted(RefCell<Vec<usize>>);

    impl OwnMemory for Noted {
        fn store(&self, _: Word, _: u64, _: Ordering) {}

        fn write(&self, offset: usize, bytes: &[u8]) {
            assert_eq!(bytes, [0; 8]);
            self.0.borrow_mut().push(offset);
        }
    }

    /// Runs one prefetch step and returns the lines written.
    fn poll(prefetcher: &mut LinePrefetcher, next: u64, free: u64) -> Vec<usize> {
        let (noted, ring) = (Noted::default(), Ring::first(Geometry::SMALLEST));
        prefetcher.advance(&noted, &ring, next, free);
        noted.0.into_inner()
    }

    fn all(prefetcher: &mut LinePrefetcher, next: u64, free: u64) -> Vec<usize> {
        let polls = core::iter::from_fn(|| {
            Some(poll(prefetcher, next, free)).filter(|had| !had.is_empty())
        });
        polls.flatten().collect()
    }

    /// Returns a prefetcher that waited at `next`, after writing that many bytes.
    fn after(written: u64, next: u64) -> LinePrefetcher {
        let mut prefetcher =
            LinePrefetcher { waited_at: next - written, ..LinePrefetcher::default() };
        assert_eq!(all(&mut prefetcher, next, next), []);
        prefetcher.done_for = 0;
        prefetcher
    }

    #[test]
    fn prefetches_as_many_bytes_as_were_written_last_time() {
        let mut prefetcher = LinePrefetcher::default();
        assert_eq!(poll(&mut prefetcher, 512, 4096), [640, 704, 768, 832]);
        assert_eq!(poll(&mut prefetcher, 512, 4096), [896, 960]);
        assert_eq!(poll(&mut prefetcher, 512, 4096), []);
        // Lines that are already prefetched are skipped; each line is addressed by its start.
        assert_eq!(all(&mut prefetcher, 720, 4096), [1024, 1088, 1152]);
    }

    #[test]
    fn few_writes_between_waits_prefetch_nothing() {
        let mut prefetcher = LinePrefetcher::default();
        for next in (128..4096).step_by(128) {
            assert_eq!(all(&mut prefetcher, next, 8192), []);
        }
    }

    #[test]
    fn bytes_that_the_peer_may_still_read_are_not_prefetched() {
        let mut prefetcher = after(1024, 4096);
        assert_eq!(all(&mut prefetcher, 4096, 4096), []);
        assert_eq!(all(&mut prefetcher, 5120, 5328), [1152, 1216]);
    }

    #[test]
    fn bytes_that_may_not_fit_before_the_end_are_prefetched_behind_it_too() {
        let mut prefetcher = after(512, 3600);
        let mut expected: Vec<usize> = (3712..4096).step_by(64).collect();
        expected.extend((0..512).step_by(64));
        assert_eq!(all(&mut prefetcher, 3600, 8192), expected);
    }

    #[test]
    fn the_estimate_decays_with_each_wait() {
        let mut prefetcher = after(1024, 2048);
        let waits = (2112..).step_by(64).take(100).take_while(|next| {
            poll(&mut prefetcher, *next, *next);
            prefetcher.likely > POLLED_LINES * LINE
        });
        let waits = waits.count();
        assert!((10..30).contains(&waits), "{waits}");
    }
}
