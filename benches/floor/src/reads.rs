//! The cost of reading private memory, for comparison with operations that need no other process.

use std::hint::black_box;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::sync::{AtomicU64, Ordering};

/// Two words in a cache line of their own.
#[derive(Debug)]
#[repr(align(128))]
pub struct Words([AtomicU64; 2]);

impl Words {
    /// Loads both with Acquire and compares them, `n` times.
    pub fn loads(&self, n: u64) -> Duration {
        let began = Instant::now();
        for _ in 0..n {
            let [one, two] = &black_box(self).0;
            // Acquire, like the operation that it is compared with: nothing is published here.
            black_box(one.load(Ordering::Acquire) < two.load(Ordering::Acquire));
        }
        began.elapsed()
    }
}

/// Two that differ.
impl Default for Words {
    fn default() -> Self {
        Self([AtomicU64::new(1), AtomicU64::new(2)])
    }
}

/// Consecutive items, and copies of them elsewhere to compare with, group by group in an order that no prefetcher
/// predicts: a look-up without the search.
#[derive(Debug)]
pub struct Found {
    bytes: Vec<u8>,
    /// Where a thing begins, and its copy.
    copies: Vec<(usize, Vec<u8>)>,
    next: usize,
}

impl Found {
    /// Of these groups.
    pub fn new<const N: usize>(groups: Vec<[Vec<u8>; N]>, seed: u64) -> Self {
        let (mut bytes, mut placed) = (Vec::new(), Vec::new());
        for group in groups {
            placed.push(group.map(|thing| {
                let at = bytes.len();
                bytes.extend_from_slice(&thing);
                (at, thing)
            }));
        }
        Rng::with_seed(seed).shuffle(&mut placed);
        let copies = placed.into_iter().flatten().collect();
        Self { bytes, copies, next: 0 }
    }

    /// Compares `n` things with their copies. `None` when one is another, which cannot be.
    pub fn compare(&mut self, n: u64) -> Option<Duration> {
        let began = Instant::now();
        for _ in 0..n {
            let (at, copy) = self.copies.get(self.next)?;
            let thing = black_box(&self.bytes).get(*at..at + copy.len())?;
            if thing != copy {
                return None;
            }
            self.next = if self.next + 1 < self.copies.len() { self.next + 1 } else { 0 };
        }
        Some(began.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn present_keys_are_found_and_altered_keys_are_not() {
        let groups = |n: u8| (0..n).map(|one| [vec![one; 7], vec![one, 1]]).collect();
        for n in [1, 2, 100] {
            let mut found = Found::new(groups(n), 7);
            assert!(found.compare(3 * u64::from(n)).is_some());
            let last = found.bytes.len() - 1;
            found.bytes[last] ^= 2;
            assert!(found.compare(2 * u64::from(n)).is_none(), "of {n}");
        }
    }
}
