use alloc::vec::Vec;

use super::{BATCH_HEAD, ENDS, STATUSES};
use crate::wire::Status;

/// An item that does not fit a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the batch would have {len} bytes with this item, and the limit is {limit}")]
pub struct ItemTooLarge {
    /// The whole batch's length with the item, in bytes.
    pub len: usize,
    /// The longest batch allowed, in bytes.
    pub limit: usize,
}

/// Assembles a batch item by item, in a buffer that is reused for the next one.
///
/// ```
/// use bellwire_core::batch::{BatchBuilder, BatchView};
///
/// let mut batch = BatchBuilder::new(4096);
/// for number in [1_u64, 2, 3] {
///     batch.push(|into| into.extend_from_slice(&number.to_le_bytes()))?;
/// }
/// let view = BatchView::parse(batch.finish())?;
/// assert_eq!(view.len(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BatchBuilder {
    bytes: Vec<u8>,
    /// The end of each item; empty while all have the same length.
    ends: Vec<u32>,
    /// The status of each item; empty while all are Ok.
    statuses: Vec<u8>,
    count: u32,
    /// The number of items for which room is reserved, whatever they are.
    promised: usize,
    stride: usize,
    limit: usize,
    /// Up to this length, one more item of the same length needs no checks: 0 unless all are Ok and have the same
    /// length.
    even_up_to: usize,
    finished: bool,
}

/// The most bytes of an item in the tables: its end and its status.
const ENTRY: usize = size_of::<u32>() + 1;

impl BatchBuilder {
    /// Creates a builder of batches of at most `limit` bytes, including head and tables.
    pub fn new(limit: usize) -> Self {
        let mut builder = Self {
            bytes: Vec::new(),
            ends: Vec::new(),
            statuses: Vec::new(),
            count: 0,
            promised: 0,
            stride: 0,
            // Ends are 32 bits wide.
            limit: limit.min(u32::MAX as usize),
            even_up_to: 0,
            finished: false,
        };
        builder.clear();
        builder
    }

    /// Starts a batch of `count` items and at most `limit` bytes, in which an item that does not fit can always be
    /// replaced by an empty one. Returns false when even that is impossible.
    pub fn begin(&mut self, count: usize, limit: usize) -> bool {
        self.clear();
        self.promised = count;
        self.limit = limit.min(u32::MAX as usize);
        self.worst_len() <= self.limit
    }

    /// Starts another batch; keeps the buffers.
    #[inline]
    pub fn clear(&mut self) {
        self.promised = 0;
        self.bytes.clear();
        self.bytes.resize(BATCH_HEAD, 0);
        self.ends.clear();
        self.statuses.clear();
        self.count = 0;
        self.stride = 0;
        self.even_up_to = 0;
        self.finished = false;
    }

    /// Adds the item that `encode` appends to the buffer.
    ///
    /// # Errors
    /// [`ItemTooLarge`]: the item was left out; the batch is unchanged.
    #[inline]
    pub fn push(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), ItemTooLarge> {
        debug_assert!(!self.finished, "clear the batch first");
        let start = self.bytes.len();
        encode(&mut self.bytes);
        let end = self.bytes.len();
        if end <= self.even_up_to && end.wrapping_sub(start) == self.stride {
            // Each item takes at least a byte, so the count cannot overflow.
            self.count += 1;
            return Ok(());
        }
        self.note(start, Status::Ok)
    }

    /// Adds up to `count` items of `len` bytes each, above 0, together: `fill` receives room for as many as fit,
    /// writes the first ones and returns how many. Returns how many were added: none unless all previous items are Ok
    /// and have that length.
    pub fn extend(
        &mut self,
        len: usize,
        count: usize,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> usize {
        debug_assert!(!self.finished, "clear the batch first");
        if len == 0 || (self.count > 0 && (self.even_up_to == 0 || self.stride != len)) {
            return 0;
        }
        let start = self.bytes.len();
        let most = self.most_even();
        let fitting = count.min(most.saturating_sub(start) / len);
        self.bytes.resize(start + fitting * len, 0);
        let added = fill(self.bytes.get_mut(start..).unwrap_or_default()).min(fitting);
        self.bytes.truncate(start + added * len);
        if added > 0 {
            self.stride = len;
            self.even_up_to = most;
            // Each item takes at least a byte, so the count cannot overflow.
            self.count += u32::try_from(added).unwrap_or(u32::MAX);
        }
        added
    }

    /// Adds an item with a status and the bytes that `encode` appends, such as a reason.
    ///
    /// # Errors
    /// Like [`BatchBuilder::push`].
    pub fn push_with(
        &mut self,
        status: Status,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), ItemTooLarge> {
        debug_assert!(!self.finished, "clear the batch first");
        let start = self.bytes.len();
        encode(&mut self.bytes);
        self.note(start, status)
    }

    /// Counts the item whose bytes start at `start`.
    fn note(&mut self, start: usize, status: Status) -> Result<(), ItemTooLarge> {
        // The item must not remove earlier bytes.
        let len = self.bytes.len().saturating_sub(start);
        if self.count == 0 {
            self.stride = len;
        }
        if len != self.stride || len == 0 || !self.ends.is_empty() {
            self.note_end();
        }
        if status != Status::Ok || !self.statuses.is_empty() {
            self.note_status(status);
        }
        self.count += 1;
        let len = self.worst_len();
        let fits = len <= self.limit && self.count < u32::MAX;
        if !fits {
            self.take_back(start);
        }
        let is_even = self.count > 0 && self.ends.is_empty() && self.statuses.is_empty();
        self.even_up_to = if is_even { self.most_even() } else { 0 };
        if fits { Ok(()) } else { Err(ItemTooLarge { len, limit: self.limit }) }
    }

    /// Returns the most item bytes that leave room for the tables of the reserved items.
    fn most_even(&self) -> usize {
        self.limit.saturating_sub(ENTRY.saturating_mul(self.promised))
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Returns whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the current length of the batch in bytes.
    #[inline]
    pub fn encoded_len(&self) -> usize {
        if self.finished {
            return self.bytes.len();
        }
        self.bytes.len() + size_of::<u32>() * self.ends.len() + self.statuses.len()
    }

    /// Returns the largest length of the batch without further item bytes.
    #[inline]
    fn worst_len(&self) -> usize {
        let tables = ENTRY.saturating_mul(self.promised);
        self.encoded_len().max(self.bytes.len().saturating_add(tables))
    }

    /// Swaps the finished batch into `bytes`, whose buffer is reused for the next one.
    pub fn finish_into(&mut self, bytes: &mut Vec<u8>) {
        self.finish();
        core::mem::swap(&mut self.bytes, bytes);
        self.clear();
    }

    /// Finishes the batch and returns its bytes. Start the next one with [`BatchBuilder::clear`].
    pub fn finish(&mut self) -> &[u8] {
        if !self.finished {
            self.finished = true;
            let varies = !self.ends.is_empty();
            let flags =
                if varies { ENDS } else { 0 } | if self.statuses.is_empty() { 0 } else { STATUSES };
            let stride = if varies { 0 } else { u32::try_from(self.stride).unwrap_or(0) };
            let head = [self.count, stride, flags, 0];
            for (to, word) in self.bytes.chunks_exact_mut(size_of::<u32>()).zip(head) {
                to.copy_from_slice(&word.to_le_bytes());
            }
            for end in &self.ends {
                self.bytes.extend_from_slice(&end.to_le_bytes());
            }
            self.bytes.extend_from_slice(&self.statuses);
        }
        &self.bytes
    }

    /// Records the end of the appended item, and those of all items before it if none was recorded yet.
    fn note_end(&mut self) {
        if self.ends.is_empty() {
            let (stride, count) = (self.stride, self.count as usize);
            self.ends.extend((1..=count).map(|nth| offset(nth * stride)));
        }
        self.ends.push(offset(self.bytes.len().saturating_sub(BATCH_HEAD)));
    }

    #[cold]
    fn note_status(&mut self, status: Status) {
        self.statuses.resize(self.count as usize, code(Status::Ok));
        self.statuses.push(code(status));
    }

    #[cold]
    fn take_back(&mut self, start: usize) {
        self.bytes.truncate(start);
        self.count -= 1;
        let count = self.count as usize;
        self.statuses.truncate(count);
        self.ends.truncate(count);
        let ends_at = |nth: usize, end: &u32| *end == offset((nth + 1) * self.stride);
        let is_even = self.ends.iter().enumerate().all(|(nth, end)| ends_at(nth, end));
        if count == 0 || (self.stride > 0 && is_even) {
            self.ends.clear();
        }
        if self.statuses.iter().all(|status| *status == code(Status::Ok)) {
            self.statuses.clear();
        }
    }
}

/// Within the limit, which is below 2³².
fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Every status is below 256.
fn code(status: Status) -> u8 {
    let [code, _] = (status as u16).to_le_bytes();
    code
}
