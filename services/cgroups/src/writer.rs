use core::mem::offset_of;

use zerocopy::FromBytes;

use super::layout::{Header, Item};
use super::{
    CgroupEntry, HEADER_LEN, ITEM_LEN, LAYOUT, MAGIC, MAX_ITEMS, MAX_LEN, Meta, TextFault,
    check_name, check_path, name_hash,
};

/// Why items cannot be written as a snapshot. The fault is the caller's; nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// There are more than [`MAX_ITEMS`].
    #[error("{count} cgroups are more than a snapshot holds")]
    TooManyItems {
        /// How many there are.
        count: usize,
    },
    /// The snapshot would be longer than [`MAX_LEN`].
    #[error("a snapshot of {len} bytes is above the limit")]
    TooLong {
        /// Its length, in bytes.
        len: usize,
    },
    /// A path breaks a rule.
    #[error("the path {path:?} cannot be written: {fault}")]
    Path {
        /// The path.
        path: String,
        /// The rule.
        fault: TextFault,
    },
    /// A name breaks a rule.
    #[error("the name {name:?} of {path} cannot be written: {fault}")]
    Name {
        /// The name.
        name: String,
        /// The path of the item.
        path: String,
        /// The rule.
        fault: TextFault,
    },
    /// Two items have the same path.
    #[error("the path {path} occurs twice")]
    DuplicatePath {
        /// The path.
        path: String,
    },
    /// Two items have the same id.
    #[error("the id {id} occurs twice")]
    DuplicateId {
        /// The id.
        id: u64,
    },
    /// An item's id is 0.
    #[error("the id of {path} is 0")]
    ZeroId {
        /// The path of the item.
        path: String,
    },
    /// The memory to write into is too small.
    #[error("the snapshot needs {needed} bytes, and {room} are there")]
    NoRoom {
        /// The snapshot's length, in bytes.
        needed: usize,
        /// The memory's length, in bytes.
        room: usize,
    },
}

/// Checked and sorted items, ready to be written as often as needed.
///
/// The same items, in any order, and the same [`Meta`] always produce the same bytes.
#[derive(Clone, Debug)]
pub struct SnapshotWriter<'a> {
    /// In ascending order of the paths.
    items: Vec<&'a CgroupEntry>,
    len: usize,
}

impl<'a> SnapshotWriter<'a> {
    /// Checks the items and sorts them by path.
    ///
    /// # Errors
    /// Any [`EncodeError`] except [`EncodeError::NoRoom`].
    pub fn new(items: &'a [CgroupEntry]) -> Result<Self, EncodeError> {
        let len = encoded_len(items);
        if items.len() > MAX_ITEMS {
            return Err(EncodeError::TooManyItems { count: items.len() });
        }
        if len > MAX_LEN {
            return Err(EncodeError::TooLong { len });
        }
        items.iter().try_for_each(check_texts)?;
        check_ids(items)?;

        let mut sorted: Vec<_> = items.iter().collect();
        sorted.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        let mut pairs = sorted.iter().zip(sorted.iter().skip(1));
        if let Some((item, _)) = pairs.find(|(a, b)| a.path == b.path) {
            return Err(EncodeError::DuplicatePath { path: item.path.clone() });
        }
        Ok(Self { items: sorted, len })
    }

    /// Returns the snapshot's length in bytes.
    pub fn encoded_len(&self) -> usize {
        self.len
    }

    /// Writes the snapshot to the start of `out` and returns its length in bytes. Writes every byte once and in order, reads
    /// none back, and leaves the rest of `out` unchanged.
    ///
    /// # Errors
    /// [`EncodeError::NoRoom`]: nothing was written.
    pub fn write_to(&self, meta: Meta, out: &mut [u8]) -> Result<usize, EncodeError> {
        let no_room = EncodeError::NoRoom { needed: self.len, room: out.len() };
        let Some(out) = out.get_mut(..self.len) else { return Err(no_room) };
        let Ok((header, rest)) = Header::mut_from_prefix(out) else { return Err(no_room) };
        let Ok((rows, mut strings)) = <[Item]>::mut_from_prefix_with_elems(rest, self.items.len())
        else {
            return Err(no_room);
        };
        *header = self.header(meta, strings.len());
        let mut offset = 0;
        for (row, item) in rows.iter_mut().zip(&self.items) {
            *row = encode_item(item, offset);
            for text in [&item.path, &item.name] {
                let Some((place, after)) = strings.split_at_mut_checked(text.len()) else {
                    return Err(no_room);
                };
                place.copy_from_slice(text.as_bytes());
                strings = after;
                offset += text.len();
            }
        }
        Ok(self.len)
    }

    fn header(&self, meta: Meta, strings_len: usize) -> Header {
        let strings_offset = HEADER_LEN + self.items.len() * ITEM_LEN;
        Header {
            magic: MAGIC,
            layout: LAYOUT.into(),
            total_len: narrow(self.len).into(),
            scanned_at: meta.scanned_at_nanos().into(),
            item_count: narrow(self.items.len()).into(),
            item_len: narrow(ITEM_LEN).into(),
            items_offset: narrow(HEADER_LEN).into(),
            strings_offset: narrow(strings_offset).into(),
            strings_len: narrow(strings_len).into(),
            skipped: meta.skipped.into(),
            mode: meta.mode.code(),
            reserved: [0; 15],
        }
    }
}

/// Returns the length of a snapshot of these items in bytes. Does not check them.
pub fn encoded_len(items: &[CgroupEntry]) -> usize {
    items.iter().fold(HEADER_LEN, |len, item| {
        len.saturating_add(ITEM_LEN).saturating_add(item.path.len()).saturating_add(item.name.len())
    })
}

/// Writes a snapshot of these items to the start of `out` and returns its length in bytes.
///
/// # Errors
/// [`EncodeError`] says which item breaks which rule, or that `out` is shorter than [`encoded_len`].
pub fn encode_into(
    items: &[CgroupEntry],
    meta: Meta,
    out: &mut [u8],
) -> Result<usize, EncodeError> {
    SnapshotWriter::new(items)?.write_to(meta, out)
}

/// Returns a snapshot of these items.
///
/// # Errors
/// [`EncodeError`] says which item breaks which rule.
pub fn encode(items: &[CgroupEntry], meta: Meta) -> Result<Vec<u8>, EncodeError> {
    let writer = SnapshotWriter::new(items)?;
    let mut bytes = vec![0; writer.encoded_len()];
    writer.write_to(meta, &mut bytes)?;
    Ok(bytes)
}

/// Returns whether two snapshots differ at most in the time of the scan, so that the newer one need not be published. Both
/// must be well-formed.
pub fn same_content(a: &[u8], b: &[u8]) -> bool {
    const TIME: usize = offset_of!(Header, scanned_at);
    let around = |bytes| -> Option<(&[u8], &[u8])> {
        let (before, from_time) = <[u8]>::split_at_checked(bytes, TIME)?;
        Some((before, from_time.get(size_of::<u64>()..)?))
    };
    match (around(a), around(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

fn check_texts(item: &CgroupEntry) -> Result<(), EncodeError> {
    check_path(&item.path).map_err(|fault| EncodeError::Path { path: item.path.clone(), fault })?;
    check_name(&item.name).map_err(|fault| EncodeError::Name {
        name: item.name.clone(),
        path: item.path.clone(),
        fault,
    })
}

fn check_ids(items: &[CgroupEntry]) -> Result<(), EncodeError> {
    if let Some(item) = items.iter().find(|item| item.id == 0) {
        return Err(EncodeError::ZeroId { path: item.path.clone() });
    }
    let mut ids: Vec<u64> = items.iter().map(|item| item.id).collect();
    ids.sort_unstable();
    match ids.iter().zip(ids.iter().skip(1)).find(|(a, b)| a == b) {
        Some((id, _)) => Err(EncodeError::DuplicateId { id: *id }),
        None => Ok(()),
    }
}

fn encode_item(item: &CgroupEntry, offset: usize) -> Item {
    Item {
        id: item.id.into(),
        name_hash: name_hash(&item.name).into(),
        path_offset: narrow(offset).into(),
        name_offset: narrow(offset + item.path.len()).into(),
        path_len: u16::try_from(item.path.len()).unwrap_or(u16::MAX).into(),
        name_len: u16::try_from(item.name.len()).unwrap_or(u16::MAX).into(),
        options: item.options.bits().into(),
        enabled: item.enabled.into(),
        orchestrator: item.orchestrator.code(),
        reserved: [0; 14],
    }
}

/// Converts a number. Each was checked against [`MAX_LEN`] before, which fits.
fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
