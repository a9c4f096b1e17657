use core::iter::FusedIterator;

use zerocopy::FromBytes;

use super::{BATCH_HEAD, ENDS, STATUSES};
use crate::wire::Status;

/// Why bytes are not a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The bytes are too short for the head.
    #[error("{len} bytes are too short for a batch's header")]
    NoHead {
        /// The number of bytes.
        len: usize,
    },
    /// The head is invalid.
    #[error(
        "the batch's head has flags {flags:#x}, a stride of {stride} and {reserved:#x} behind them"
    )]
    Head {
        /// The flags.
        flags: u32,
        /// The stride.
        stride: u32,
        /// The reserved field, which must be 0.
        reserved: u32,
    },
    /// The items and tables do not match the length.
    #[error("a batch of {count} items does not have {len} bytes")]
    Length {
        /// The number of items in the head.
        count: u32,
        /// The number of bytes.
        len: usize,
    },
    /// An item ends before it starts, or after the last byte of items.
    #[error("item {item} ends at byte {end}")]
    End {
        /// The index of the item.
        item: usize,
        /// The end in the table.
        end: u32,
    },
    /// An unknown status.
    #[error("item {item} has status {status}, which does not exist")]
    Status {
        /// The index of the item.
        item: usize,
        /// The status.
        status: u8,
    },
}

/// One item of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The outcome; Ok in requests.
    pub status: Status,
    /// The item's bytes; a reason when the status is not Ok.
    pub bytes: &'a [u8],
}

/// A batch that was checked once as a whole, and is read in place.
///
/// The bytes must be private memory, or memory that nobody can change any more: they are read twice.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchView<'a> {
    items: &'a [u8],
    stride: usize,
    count: usize,
    ends: &'a [[u8; 4]],
    statuses: &'a [u8],
}

/// The items of a batch, in order.
#[derive(Clone, Debug, Default)]
pub struct Items<'a> {
    batch: BatchView<'a>,
    /// Whether all have the same length, not 0, and are Ok: `next` and `start` are unused then.
    is_even: bool,
    next: usize,
    rest: &'a [u8],
    start: usize,
}

impl<'a> BatchView<'a> {
    /// Checks that `bytes` are exactly one batch.
    ///
    /// # Errors
    /// [`BatchError`] with the reason.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BatchError> {
        let no_head = BatchError::NoHead { len: bytes.len() };
        let (head, body) = bytes.split_first_chunk::<BATCH_HEAD>().ok_or(no_head)?;
        let words: [[u8; 4]; 4] = zerocopy::transmute!(*head);
        let [count, stride, flags, reserved] = words.map(u32::from_le_bytes);
        let varies = flags & ENDS != 0;
        if flags & !(ENDS | STATUSES) != 0 || reserved != 0 || (varies && stride != 0) {
            return Err(BatchError::Head { flags, stride, reserved });
        }
        let length = BatchError::Length { count, len: bytes.len() };
        // Nothing of this overflows 64 bits; the count is not trusted before the tables were located.
        let of_tables =
            u64::from(count) * (u64::from(varies) * 4 + u64::from(flags & STATUSES != 0));
        let of_items = (body.len() as u64).checked_sub(of_tables).ok_or(length)?;
        let are_empty = !varies && stride == 0 && count > 0;
        if are_empty || (!varies && u64::from(count) * u64::from(stride) != of_items) {
            return Err(length);
        }
        let count = count as usize;
        let at = usize::try_from(of_items).map_err(|_| length)?;
        let (items, tables) = body.split_at_checked(at).ok_or(length)?;
        let of_ends = if varies { 4 * count } else { 0 };
        let (ends, statuses) = tables.split_at_checked(of_ends).ok_or(length)?;
        let ends = <[[u8; 4]]>::ref_from_bytes(ends).map_err(|_| length)?;
        let view = Self { items, stride: stride as usize, count, ends, statuses };
        view.check_ends()?;
        view.check_statuses()?;
        Ok(view)
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns whether every item is Ok.
    pub fn is_ok(&self) -> bool {
        self.statuses.is_empty()
    }

    /// Returns the consecutive bytes of the items and the length of each, above 0; `None` unless all have the same
    /// length and are Ok.
    pub fn even(&self) -> Option<(&'a [u8], usize)> {
        let is_even = self.stride > 0 && self.statuses.is_empty();
        is_even.then_some((self.items, self.stride))
    }

    /// Returns the items in order.
    pub fn iter(&self) -> Items<'a> {
        let is_even = self.even().is_some();
        Items { batch: *self, is_even, next: 0, rest: self.items, start: 0 }
    }

    fn check_ends(&self) -> Result<(), BatchError> {
        if self.ends.is_empty() {
            // Without items, there are no item bytes.
            let len = BATCH_HEAD + self.items.len();
            let fits = self.count > 0 || self.items.is_empty();
            return if fits { Ok(()) } else { Err(BatchError::Length { count: 0, len }) };
        }
        let (mut start, last) = (0, self.count - 1);
        for (item, end) in self.ends.iter().enumerate() {
            let end = u32::from_le_bytes(*end);
            let is_last = item == last && end as usize != self.items.len();
            if end < start || end as usize > self.items.len() || is_last {
                return Err(BatchError::End { item, end });
            }
            start = end;
        }
        Ok(())
    }

    fn check_statuses(&self) -> Result<(), BatchError> {
        let unknown = |status: &u8| Status::parse((*status).into()).is_none();
        match self.statuses.iter().position(unknown) {
            Some(item) => {
                let status = self.statuses.get(item).copied().unwrap_or_default();
                Err(BatchError::Status { item, status })
            }
            None => Ok(()),
        }
    }
}

impl<'a> IntoIterator for BatchView<'a> {
    type Item = Item<'a>;
    type IntoIter = Items<'a>;

    fn into_iter(self) -> Items<'a> {
        self.iter()
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    #[inline]
    fn next(&mut self) -> Option<Item<'a>> {
        if self.is_even {
            let (bytes, rest) = self.rest.split_at_checked(self.batch.stride)?;
            self.rest = rest;
            return Some(Item { status: Status::Ok, bytes });
        }
        self.next_of_tables()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let stride = self.batch.stride;
        let left =
            if self.is_even { self.rest.len() / stride } else { self.batch.count - self.next };
        (left, Some(left))
    }
}

impl<'a> Items<'a> {
    fn next_of_tables(&mut self) -> Option<Item<'a>> {
        let batch = &self.batch;
        if self.next == batch.count {
            return None;
        }
        let len = match batch.ends.get(self.next) {
            Some(end) => u32::from_le_bytes(*end) as usize - self.start,
            None => batch.stride,
        };
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        let status = batch.statuses.get(self.next);
        let status = status.map_or(Some(Status::Ok), |code| Status::parse((*code).into()))?;
        self.next += 1;
        self.start += len;
        self.rest = rest;
        Some(Item { status, bytes })
    }
}

impl ExactSizeIterator for Items<'_> {}
impl FusedIterator for Items<'_> {}
