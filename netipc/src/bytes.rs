//! What several payloads have: a directory of items, and texts with a NUL behind them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Malformed;
use crate::wire::Entry;

/// The length of an entry of a directory, in bytes.
pub(crate) const ENTRY: usize = size_of::<Entry>();

/// Returns the next multiple of 8.
pub(crate) const fn aligned(len: usize) -> usize {
    len.next_multiple_of(8)
}

pub(crate) fn word(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Writes a directory and its items.
pub(crate) struct TableWriter<'a> {
    into: &'a mut Vec<u8>,
    /// Where the next entry and the first item lie.
    entry: usize,
    area: usize,
}

impl<'a> TableWriter<'a> {
    /// Begins a table of `count` items at the end of `into`.
    pub(crate) fn begin(into: &'a mut Vec<u8>, count: usize) -> Self {
        let entry = into.len();
        into.resize(entry + count * ENTRY, 0);
        let area = into.len();
        Self { into, entry, area }
    }

    /// Returns the length of everything so far.
    pub(crate) fn len(&self) -> usize {
        self.into.len()
    }

    /// Adds an item that `write` appends.
    pub(crate) fn item(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = aligned(self.into.len() - self.area);
        self.into.resize(self.area + start, 0);
        write(self.into);
        let len = self.into.len() - self.area - start;
        let entry = Entry { offset: word(start).into(), len: word(len).into() };
        if let Some(into) = self.into.get_mut(self.entry..self.entry + ENTRY) {
            into.copy_from_slice(entry.as_bytes());
        }
        self.entry += ENTRY;
    }
}

/// A payload that is read, so that an error can say where.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn malformed(self, at: usize, why: &'static str) -> Malformed {
        Malformed { at, len: self.0.len(), why }
    }

    /// Reads the fixed part in front.
    pub(crate) fn head<T>(self) -> Result<T, Malformed>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let head = T::read_from_prefix(self.0).map_err(|_| self.malformed(0, "ends too early"))?;
        Ok(head.0)
    }

    /// Returns the items of the table at `at`: in ascending order, each at a multiple of 8, without overlap.
    pub(crate) fn table(self, at: usize, count: u32) -> Result<Vec<&'a [u8]>, Malformed> {
        let rest = self.0.get(at..).unwrap_or_default();
        let count = count as usize;
        let too_short = self.malformed(at, "the directory ends too early");
        let len = count.checked_mul(ENTRY).ok_or(too_short)?;
        let (directory, area) = rest.split_at_checked(len).ok_or(too_short)?;
        let mut end = 0;
        let entries = directory.chunks_exact(ENTRY).enumerate();
        let items = entries.map(|(nth, entry)| {
            let wrong = self.malformed(at + nth * ENTRY, "an item out of place");
            let entry = Entry::read_from_bytes(entry).map_err(|_| wrong)?;
            let (offset, len) = (entry.offset.get() as usize, entry.len.get() as usize);
            let item = area.get(offset..).and_then(|rest| rest.get(..len)).ok_or(wrong)?;
            if offset % 8 != 0 || offset < end {
                return Err(wrong);
            }
            end = offset + len;
            Ok(item)
        });
        items.collect()
    }

    /// Returns the text at `offset`, which has a NUL behind it and none inside.
    pub(crate) fn text(self, offset: u32, len: u32) -> Result<&'a str, Malformed> {
        let wrong = self.malformed(offset as usize, "a text out of place, or without its NUL");
        let with_nul = self.0.get(offset as usize..).and_then(|rest| rest.get(..=len as usize));
        let (last, text) = with_nul.and_then(<[u8]>::split_last).ok_or(wrong)?;
        if *last != 0 || text.contains(&0) {
            return Err(wrong);
        }
        std::str::from_utf8(text).map_err(|_| self.malformed(offset as usize, "not UTF-8"))
    }
}

/// Appends a text and its NUL.
pub(crate) fn put_text(into: &mut Vec<u8>, text: &[u8]) {
    into.extend_from_slice(text);
    into.push(0);
}
