use super::PAGE_SIZE;

/// The feature bit of an end that supports the table of samples.
pub const SAMPLES: u64 = 1;
/// The offset of the table in a page, in bytes.
pub const SAMPLES_AT: usize = 0x800;
/// The number of entries.
pub const SAMPLE_SLOTS: usize = 64;
/// The size of an entry in bytes: four words.
pub const SAMPLE_SIZE: usize = 32;

const _: () = assert!(SAMPLES_AT + SAMPLE_SLOTS * SAMPLE_SIZE == PAGE_SIZE);

/// Makes the check word of an all-zero entry wrong.
const CHECK: u64 = 0x9e37_79b9_7f4a_7c15;

/// When a message was sent and published, as its sender stored it in its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// When the sender started, in nanoseconds of its monotonic clock.
    pub sent: u64,
    /// When the sender published, in nanoseconds of its monotonic clock.
    pub published: u64,
}

impl Stamps {
    /// Returns the entry of the message whose last record ends at position `end`.
    pub fn entry(self, end: u64) -> [u64; 4] {
        [end, self.sent, self.published, self.check(end)]
    }

    /// Parses a peer's entry for the message whose last record ends at `end`; `None` when it describes another
    /// message, is being overwritten, or is implausible.
    pub fn parse(entry: [u64; 4], end: u64) -> Option<Self> {
        let [at, sent, published, check] = entry;
        let stamps = Self { sent, published };
        (at == end && stamps.check(end) == check && sent <= published).then_some(stamps)
    }

    fn check(self, end: u64) -> u64 {
        CHECK ^ end.rotate_left(24) ^ self.sent.rotate_left(48) ^ self.published
    }
}

/// Returns the slot of the message whose last record ends at position `end`: evenly spread, whatever the records'
/// length.
#[inline]
pub fn sample_slot(end: u64) -> usize {
    const BITS: u32 = SAMPLE_SLOTS.trailing_zeros();
    (end.wrapping_mul(CHECK) >> (u64::BITS - BITS)) as usize
}

/// Returns the offset of entry `slot` in a page, in bytes; that of the first entry for a slot out of range.
#[inline]
pub const fn sample_offset(slot: usize) -> usize {
    SAMPLES_AT + slot % SAMPLE_SLOTS * SAMPLE_SIZE
}
