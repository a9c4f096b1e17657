use zerocopy::{TryFromBytes, try_transmute};

use super::PAGE_SIZE;

/// A counter in an end's page, for observers; no peer acts on it. The value is its offset in bytes; `docs/wire.md`
/// documents each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromBytes)]
#[repr(u16)]
pub enum Counter {
    /// Requests sent (client) or taken (server).
    Requests = 0x408,
    /// Of `Requests`, those that their handler answered: without an error (client), or including errors (server).
    Answered = 0x410,
    /// Requests answered without running a handler.
    Refused = 0x418,
    /// Requests that ended in any other way; 0 in a server's page.
    Failed = 0x420,
    /// Requests that the handler failed: part of `Failed` (client) or `Answered` (server).
    Errors = 0x428,
    /// Of `Failed`, those whose deadline passed; 0 in a server's page.
    Late = 0x430,
    /// Answers that were useless when they arrived: their request was abandoned, or they could not be read; 0 in a
    /// server's page.
    Dropped = 0x438,
    /// Calls that ended before their request was sent; 0 in a server's page.
    Unsent = 0x440,
    /// Of `Errors`, handlers that panicked; 0 in a client's page.
    Panics = 0x448,
    /// Records that found the lane full.
    LaneFull = 0x450,
    /// The most bytes of the own lane in use at once.
    HighWater = 0x458,
    /// The most bytes of the peer's lane in use at once, as this end saw it.
    PeerHighWater = 0x460,
    /// How often the own lane grew.
    Grows = 0x468,
    /// How often the own lane shrank.
    Shrinks = 0x470,
    /// Attachments that this end sent.
    Attaches = 0x478,
    /// The epoch of the own lane, as in a Switch record: its number in the low half, its size in bytes in the high
    /// half.
    Lane = 0x480,
    /// One-way requests: sent (client) or handled (server), part of `Requests`.
    Posted = 0x488,
}

/// The offset of the word that identifies the set of counters, in bytes.
pub const COUNTERS_AT: usize = 0x400;
/// Its value for the counters of this version. 0 where an end writes none.
pub const COUNTERS_LAYOUT: u64 = 1;
/// The offset of the buckets of call latencies, in bytes: only in a client's page.
pub const LATENCY_AT: usize = 0x500;
/// The number of buckets.
pub const LATENCY_BUCKETS: usize = 96;

/// Buckets per doubling.
const STEPS: usize = 4;
/// The first bucket ends at 1.25 times two to this power.
const FIRST: usize = 6;

const _: () = assert!(Counter::Posted as usize + 8 <= LATENCY_AT);
const _: () = assert!(LATENCY_AT + LATENCY_BUCKETS * 8 == super::SAMPLES_AT);
const _: () = assert!(super::SAMPLES_AT < PAGE_SIZE);

impl Counter {
    /// The number of counters.
    pub const COUNT: usize = (Self::Posted.offset() - Self::Requests.offset()) / 8 + 1;

    /// Returns all counters, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        let offsets = (Self::Requests as u16..=Self::Posted as u16).step_by(8);
        offsets.filter_map(|offset| try_transmute!(offset).ok())
    }

    /// Returns its offset in a page, in bytes.
    pub const fn offset(self) -> usize {
        self as usize
    }
}

/// A histogram of call latencies with [`LATENCY_BUCKETS`] buckets, four per doubling from 64 ns to 1 s. The last
/// bucket includes longer calls.
///
/// ```
/// use bellwire_core::wire::Latency;
///
/// let mut latency = Latency::default();
/// latency.0[Latency::bucket(1_000)] += 1;
/// assert!(latency.quantile(500).is_some_and(|nanos| (1_000..1_300).contains(&nanos)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency(pub [u64; LATENCY_BUCKETS]);

impl Latency {
    /// Returns the bucket of a call that took this many nanoseconds.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "two bits are left of it")]
    pub fn bucket(nanos: u64) -> usize {
        let floored = nanos.max(1 << FIRST);
        let power = floored.ilog2() as usize;
        let step = (floored >> (power - 2)) as usize & (STEPS - 1);
        ((power - FIRST) * STEPS + step).min(LATENCY_BUCKETS - 1)
    }

    /// Returns the offset of a bucket in a page, in bytes; that of the last one for a bucket out of range.
    pub const fn offset(bucket: usize) -> usize {
        let last = LATENCY_BUCKETS - 1;
        LATENCY_AT + 8 * if bucket < last { bucket } else { last }
    }

    /// Returns the upper bound of a bucket in nanoseconds; the last bucket has none.
    pub const fn upper(bucket: usize) -> u64 {
        let next = bucket + 1;
        ((STEPS + next % STEPS) as u64) << (next / STEPS + FIRST - 2)
    }

    /// Returns the number of calls.
    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// Returns the latency that `per_mille` of a thousand calls did not exceed, in nanoseconds, rounded up by at most
    /// a quarter; `None` without calls.
    pub fn quantile(&self, per_mille: u64) -> Option<u64> {
        let count = u128::from(self.count());
        let wanted = (count * u128::from(per_mille.min(1000))).div_ceil(1000).max(1);
        let mut seen = 0;
        let full = |(_, calls): &(usize, &u64)| {
            seen += u128::from(**calls);
            seen >= wanted
        };
        self.0.iter().enumerate().find(full).map(|(bucket, _)| Self::upper(bucket))
    }

    /// Returns the calls since `before`; all of them if there are fewer now, because it is then another session's.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = *self;
        for (now, before) in since.0.iter_mut().zip(before.0) {
            *now = now.checked_sub(before).unwrap_or(*now);
        }
        since
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut sum = *self;
        for (one, other) in sum.0.iter_mut().zip(other.0) {
            *one = one.wrapping_add(other);
        }
        sum
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self([0; LATENCY_BUCKETS])
    }
}
