use super::PAGE_SIZE;

/// A counter in an end's page: what stands there is for observers, and no peer acts on it. The value is its offset in
/// bytes; `docs/wire.md` says what each counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Counter {
    /// Requests sent (client) or taken (server).
    Requests = 0x408,
    /// Of those, answered by their handler: without an error (client), or with one too (server).
    Answered = 0x410,
    /// Answered without a handler having run.
    Refused = 0x418,
    /// Ended in any other way; 0 of a server.
    Failed = 0x420,
    /// Answers by which a handler failed its request: among `Failed` (client), or `Answered` (server).
    Errors = 0x428,
    /// Among `Failed`, those whose time was over; 0 of a server.
    Late = 0x430,
    /// Answers that came and were of no use: their request was given up, or they could not be read; 0 of a server.
    Dropped = 0x438,
    /// Calls that ended before their request was sent; 0 of a server.
    Unsent = 0x440,
    /// Among `Errors`, handlers that panicked; 0 of a client.
    Panics = 0x448,
    /// Records that met a full lane.
    LaneFull = 0x450,
    /// The most bytes of the own lane that were in use at once.
    HighWater = 0x458,
    /// The same of the peer's lane, as this end saw it.
    PeerHighWater = 0x460,
    /// How often the own lane became larger.
    Grows = 0x468,
    /// How often it became smaller.
    Shrinks = 0x470,
    /// Messages that this end sent in memory of their own.
    Attaches = 0x478,
    /// The epoch of the own lane, as in a switch record: its number low, its size in bytes high.
    Lane = 0x480,
}

/// Where the word stands that says which counters there are, in bytes.
pub const COUNTERS_AT: usize = 0x400;
/// What stands there: the counters of this version. 0 where an end writes none.
pub const COUNTERS_LAYOUT: u64 = 1;
/// Where the buckets of the latency of calls begin, in bytes: a client's page only.
pub const LATENCY_AT: usize = 0x500;
/// How many buckets there are.
pub const LATENCY_BUCKETS: usize = 96;

/// Buckets for each doubling.
const STEPS: usize = 4;
/// The first bucket ends at 1.25 times two to this power.
const FIRST: usize = 6;

const _: () = assert!(Counter::Lane as usize + 8 <= LATENCY_AT);
const _: () = assert!(LATENCY_AT + LATENCY_BUCKETS * 8 == super::SAMPLES_AT);
const _: () = assert!(super::SAMPLES_AT < PAGE_SIZE);

impl Counter {
    /// All of them, in their order.
    pub const ALL: [Self; 16] = [
        Self::Requests,
        Self::Answered,
        Self::Refused,
        Self::Failed,
        Self::Errors,
        Self::Late,
        Self::Dropped,
        Self::Unsent,
        Self::Panics,
        Self::LaneFull,
        Self::HighWater,
        Self::PeerHighWater,
        Self::Grows,
        Self::Shrinks,
        Self::Attaches,
        Self::Lane,
    ];

    /// Its offset in a page, in bytes.
    pub const fn offset(self) -> usize {
        self as usize
    }
}

/// How long calls took: so many in each of [`LATENCY_BUCKETS`] spans, four to each doubling from 64 ns to 1 s. What took
/// longer is in the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency(pub [u64; LATENCY_BUCKETS]);

impl Latency {
    /// The bucket of a call that took so many nanoseconds.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "two bits are left of it")]
    pub fn bucket(nanos: u64) -> usize {
        let floored = nanos.max(1 << FIRST);
        let power = floored.ilog2() as usize;
        let step = (floored >> (power - 2)) as usize & (STEPS - 1);
        ((power - FIRST) * STEPS + step).min(LATENCY_BUCKETS - 1)
    }

    /// Where a bucket stands in a page, in bytes; the last one's place for one that there is not.
    pub const fn offset(bucket: usize) -> usize {
        let last = LATENCY_BUCKETS - 1;
        LATENCY_AT + 8 * if bucket < last { bucket } else { last }
    }

    /// What a call in this bucket took at most, in nanoseconds, but for the last one.
    pub const fn upper(bucket: usize) -> u64 {
        let next = bucket + 1;
        ((STEPS + next % STEPS) as u64) << (next / STEPS + FIRST - 2)
    }

    /// How many calls there are.
    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// What so many of a thousand calls took at most, in nanoseconds, rounded up by no more than a quarter; `None` when
    /// there are none.
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

    /// Those that came since `before`; all of them where there are fewer now: it is another session's.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = *self;
        for (now, before) in since.0.iter_mut().zip(before.0) {
            *now = now.checked_sub(before).unwrap_or(*now);
        }
        since
    }

    /// Both together.
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
