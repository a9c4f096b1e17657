use core::mem::offset_of;
use core::slice;

use zerocopy::FromBytes;

use super::label::check_label;
use super::layout::{Header, Item, PAIR_LEN, Pair};
use super::row::Row;
use super::{
    Cgroup, CgroupEntry, HEADER_LEN, Hierarchy, ITEM_LEN, LAYOUT, MAGIC, MAX_ITEMS, MAX_LABELS,
    MAX_LEN, Meta, TextFault, check_name, check_path,
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
    /// A label breaks a rule.
    #[error("the label {name:?} of {path} cannot be written: {fault}")]
    Label {
        /// The label's name.
        name: String,
        /// The path of the item.
        path: String,
        /// The rule.
        fault: TextFault,
    },
    /// An item has more labels than [`MAX_LABELS`], or a snapshot more hierarchies.
    #[error("{count} labels of {path} are more than a snapshot holds")]
    TooManyLabels {
        /// How many there are.
        count: usize,
        /// The path of the item; empty for the hierarchies.
        path: String,
    },
    /// The name or the root of a hierarchy breaks a rule.
    #[error("the hierarchy {name:?} cannot be written: {fault}")]
    Hierarchy {
        /// The hierarchy's name.
        name: String,
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
    #[error("the snapshot needs {needed} bytes, but the buffer has {room}")]
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
    hierarchies: &'a [Hierarchy],
    pairs: usize,
    len: usize,
}

impl<'a> SnapshotWriter<'a> {
    /// Checks the items and sorts them by path.
    ///
    /// # Errors
    /// Any [`EncodeError`] except [`EncodeError::NoRoom`].
    pub fn new(items: &'a [CgroupEntry]) -> Result<Self, EncodeError> {
        Self::with_hierarchies(items, &[])
    }

    /// Does the same, and says where the hierarchies are mounted, the primary one first.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_hierarchies(
        items: &'a [CgroupEntry],
        hierarchies: &'a [Hierarchy],
    ) -> Result<Self, EncodeError> {
        check_hierarchies(hierarchies)?;
        let roots = |len: usize, one: &Hierarchy| len + PAIR_LEN + one.name.len() + one.root.len();
        let len = hierarchies.iter().fold(encoded_len(items), roots);
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
        let labels = items.iter().map(|item| item.labels.len());
        let pairs = labels.fold(hierarchies.len(), usize::saturating_add);
        Ok(Self { items: sorted, hierarchies, pairs, len })
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
        let mounted = self.hierarchies.iter().map(|one| (one.name.as_str(), one.root.as_str()));
        let items = self.items.iter().map(|item| item.as_cgroup());
        write(meta, mounted, items, self.pairs, out).ok_or(no_room)?;
        Ok(self.len)
    }
}

/// Writes a snapshot of checked and sorted items, which fills `out` exactly. `pairs` is the number of hierarchies and labels.
pub(super) fn write<'a>(
    meta: Meta,
    mounted: impl Iterator<Item = (&'a str, &'a str)>,
    items: impl ExactSizeIterator<Item = Cgroup<'a>>,
    pairs: usize,
    out: &mut [u8],
) -> Option<()> {
    let (len, count) = (out.len(), items.len());
    let (header, rest) = Header::mut_from_prefix(out).ok()?;
    let (rows, rest) = <[Item]>::mut_from_prefix_with_elems(rest, count).ok()?;
    let (pairs, strings) = <[Pair]>::mut_from_prefix_with_elems(rest, pairs).ok()?;
    let strings_offset = HEADER_LEN + size_of_val(rows) + size_of_val(pairs);
    *header = Header {
        magic: MAGIC,
        layout: LAYOUT.into(),
        total_len: narrow(len).into(),
        scanned_at: meta.scanned_at_nanos().into(),
        item_count: narrow(count).into(),
        item_len: narrow(ITEM_LEN).into(),
        items_offset: narrow(HEADER_LEN).into(),
        strings_offset: narrow(strings_offset).into(),
        strings_len: narrow(strings.len()).into(),
        skipped: meta.skipped.into(),
        pair_count: narrow(pairs.len()).into(),
        mode: meta.mode.code(),
        hierarchies: 0,
        reserved: [0; 10],
    };
    let mut area = Area::new(pairs, strings);
    for (name, root) in mounted {
        header.hierarchies = header.hierarchies.saturating_add(1);
        area.put_pair(name, root);
    }
    area.put_items(rows, items);
    Some(())
}

/// The pairs and the string area while they are written. Their lengths are the sums of all.
pub(super) struct Area<'a> {
    pairs: slice::IterMut<'a, Pair>,
    strings: &'a mut [u8],
    used: usize,
}

impl<'a> Area<'a> {
    pub(super) fn new(pairs: &'a mut [Pair], strings: &'a mut [u8]) -> Self {
        Self { pairs: pairs.iter_mut(), strings, used: 0 }
    }

    /// Writes items, their texts and their labels.
    pub(super) fn put_items<'b>(
        &mut self,
        rows: &mut [Item],
        items: impl Iterator<Item = Cgroup<'b>>,
    ) {
        for (row, item) in rows.iter_mut().zip(items) {
            *row = encode_item(&item, self.used);
            self.put(item.path);
            self.put(item.name);
            for (name, value) in item.labels.iter() {
                self.put_pair(name, value);
            }
        }
    }

    /// Writes a row's texts and labels, and returns its item.
    pub(super) fn put_row(&mut self, row: &Row, texts: &str, pairs: &[Pair]) -> Item {
        let item = row.item(self.used);
        self.put(texts);
        for (pair, place) in pairs.iter().zip(self.pairs.by_ref()) {
            *place = *pair;
        }
        item
    }

    fn put(&mut self, text: &str) {
        if let Some(place) = self.strings.get_mut(self.used..self.used + text.len()) {
            place.copy_from_slice(text.as_bytes());
        }
        self.used += text.len();
    }

    fn put_pair(&mut self, name: &str, value: &str) {
        if let Some(pair) = self.pairs.next() {
            *pair = Pair { name_len: short(name).into(), value_len: short(value).into() };
        }
        self.put(name);
        self.put(value);
    }
}

/// Returns the length of a snapshot of these items in bytes. Does not check them.
pub fn encoded_len(items: &[CgroupEntry]) -> usize {
    items.iter().fold(HEADER_LEN, |len, item| {
        let labels = item.labels.iter().fold(0_usize, |len, (name, value)| {
            len.saturating_add(PAIR_LEN).saturating_add(name.len()).saturating_add(value.len())
        });
        let texts = item.path.len().saturating_add(item.name.len()).saturating_add(labels);
        len.saturating_add(ITEM_LEN).saturating_add(texts)
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
    let without_time = |bytes| -> Option<(&[u8], &[u8])> {
        let (before, from_time) = <[u8]>::split_at_checked(bytes, TIME)?;
        Some((before, from_time.get(size_of::<u64>()..)?))
    };
    match (without_time(a), without_time(b)) {
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
    })?;
    if item.labels.len() > MAX_LABELS {
        let path = item.path.clone();
        return Err(EncodeError::TooManyLabels { count: item.labels.len(), path });
    }
    item.labels.iter().try_for_each(|(name, value)| {
        check_label(name, value).map_err(|fault| EncodeError::Label {
            name: name.clone(),
            path: item.path.clone(),
            fault,
        })
    })
}

fn check_hierarchies(hierarchies: &[Hierarchy]) -> Result<(), EncodeError> {
    if hierarchies.len() > MAX_LABELS {
        let (count, path) = (hierarchies.len(), String::new());
        return Err(EncodeError::TooManyLabels { count, path });
    }
    hierarchies.iter().try_for_each(|Hierarchy { name, root }| {
        let name = name.as_str();
        check_label(name, root)
            .map_err(|fault| EncodeError::Hierarchy { name: name.to_owned(), fault })
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

fn encode_item(item: &Cgroup<'_>, offset: usize) -> Item {
    Item {
        id: item.id.into(),
        name_hash: item.name_hash.into(),
        path_offset: narrow(offset).into(),
        name_offset: narrow(offset + item.path.len()).into(),
        path_len: short(item.path).into(),
        name_len: short(item.name).into(),
        options: item.options.bits().into(),
        enabled: item.enabled.into(),
        orchestrator: item.orchestrator.code(),
        labels: u8::try_from(item.labels.len()).unwrap_or(u8::MAX),
        reserved: [0; 13],
    }
}

/// Returns the length of a text, which was checked to fit.
fn short(text: &str) -> u16 {
    u16::try_from(text.len()).unwrap_or(u16::MAX)
}

/// Converts a number. Each was checked against [`MAX_LEN`] before, which fits.
pub(super) fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
