//! Getting hold of the lines that will be written next, while there is nothing else to do.
//!
//! A lane's free lines were read by the peer a lap ago: its processor's cache has them too, and each first write to one
//! has to take it away there, some ten nanoseconds a line of a record and more from another cache complex. Whoever waits has
//! that time to spare, so it writes a word to each line of about as many bytes as may be written until the next wait. All of
//! that is free: nobody reads what was not published. `docs/adr/0030-claimed-lines.md` has the measurements.

use super::LINE;
use super::epoch::Ring;
use crate::OwnMemory;

/// Lines at the start of what is written next that are not claimed: a peer that spins fetches them with each look, and would only
/// take them back. See [`Lanes::moved`](super::Lanes::moved).
const LOOKED_AT: u64 = if cfg!(loom) { 1 } else { 2 };
/// Lines between two looks at the peer: its answer is not to wait for more.
const BETWEEN_LOOKS: u32 = 4;
/// Bytes that are claimed at most: what else this end works on is to stay in its nearest cache, too.
const MOST: u64 = 8 << 10;
/// By which part less than before the next wait's is taken to be, at least.
const FORGETS: u64 = 8;

/// What was claimed of a lane.
#[derive(Debug, Default)]
pub(super) struct Claim {
    /// Bytes that may well be written before the next wait.
    likely: u64,
    /// How much was written up to the last wait.
    waited_at: u64,
    /// Up to which position lines were claimed.
    up_to: u64,
    /// For which start of what is written next all is done.
    done_for: u64,
}

impl Claim {
    /// Claims some lines for what starts at `next`, or, if the lane's end is too near, at its start. All from there up to
    /// `free` was taken by the peer.
    #[inline]
    pub(super) fn go_on<O: OwnMemory>(&mut self, own: &O, ring: &Ring, next: u64, free: u64) {
        // Who exchanges short messages answers them between two looks: he is to lose nothing here.
        if (next - self.waited_at).max(self.likely) <= LOOKED_AT * LINE {
            self.waited_at = next;
        } else if self.done_for != next {
            self.some(own, ring, next, free);
        }
    }

    fn some<O: OwnMemory>(&mut self, own: &O, ring: &Ring, next: u64, free: u64) {
        if self.waited_at != next {
            let written = next - self.waited_at;
            self.likely = written.min(MOST).max(self.likely - self.likely / FORGETS);
            self.waited_at = next;
        }
        let to_end = ring.room_to_end(next);
        let padded = if to_end < self.likely { to_end } else { 0 };
        let until = free.min(next + padded + self.likely);
        let into_line = ring.offset(next) as u64 % LINE;
        // At least a byte past `next`, which is all that matters: before it lies what was published.
        let mut at = self.up_to.max(next + LOOKED_AT * LINE - into_line);
        for _ in 0..BETWEEN_LOOKS {
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

    /// Notes where something is written.
    #[derive(Default)]
    struct Noted(RefCell<Vec<usize>>);

    impl OwnMemory for Noted {
        fn store(&self, _: Word, _: u64, _: Ordering) {}

        fn write(&self, offset: usize, bytes: &[u8]) {
            assert_eq!(bytes, [0; 8]);
            self.0.borrow_mut().push(offset);
        }
    }

    /// What is claimed between two looks.
    fn look(claim: &mut Claim, next: u64, free: u64) -> Vec<usize> {
        let (noted, ring) = (Noted::default(), Ring::first(Geometry::SMALLEST));
        claim.go_on(&noted, &ring, next, free);
        noted.0.into_inner()
    }

    fn all(claim: &mut Claim, next: u64, free: u64) -> Vec<usize> {
        let looks =
            core::iter::from_fn(|| Some(look(claim, next, free)).filter(|had| !had.is_empty()));
        looks.flatten().collect()
    }

    /// One that waited at `next`, after so many bytes.
    fn after(written: u64, next: u64) -> Claim {
        let mut claim = Claim { waited_at: next - written, ..Claim::default() };
        assert_eq!(all(&mut claim, next, next), []);
        claim.done_for = 0;
        claim
    }

    #[test]
    fn as_much_as_last_time_is_claimed_by_and_by_but_for_its_first_lines() {
        let mut claim = Claim::default();
        assert_eq!(look(&mut claim, 512, 4096), [640, 704, 768, 832]);
        assert_eq!(look(&mut claim, 512, 4096), [896, 960]);
        assert_eq!(look(&mut claim, 512, 4096), []);
        // What was had already is not claimed again, and lines are claimed by their starts.
        assert_eq!(all(&mut claim, 720, 4096), [1024, 1088, 1152]);
    }

    #[test]
    fn who_writes_little_between_waits_claims_nothing() {
        let mut claim = Claim::default();
        for next in (128..4096).step_by(128) {
            assert_eq!(all(&mut claim, next, 8192), []);
        }
    }

    #[test]
    fn what_the_peer_may_still_read_is_not_claimed() {
        let mut claim = after(1024, 4096);
        assert_eq!(all(&mut claim, 4096, 4096), []);
        assert_eq!(all(&mut claim, 5120, 5328), [1152, 1216]);
    }

    #[test]
    fn what_may_not_fit_before_the_end_is_claimed_behind_it_too() {
        let mut claim = after(512, 3600);
        let mut expected: Vec<usize> = (3712..4096).step_by(64).collect();
        expected.extend((0..512).step_by(64));
        assert_eq!(all(&mut claim, 3600, 8192), expected);
    }

    #[test]
    fn much_is_forgotten_by_and_by() {
        let mut claim = after(1024, 2048);
        let waits = (2112..).step_by(64).take(100).take_while(|next| {
            look(&mut claim, *next, *next);
            claim.likely > LOOKED_AT * LINE
        });
        let waits = waits.count();
        assert!((10..30).contains(&waits), "{waits}");
    }
}
