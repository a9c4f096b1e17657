use core::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::label::texts_of;
use super::layout::Pair;
use super::row::Row;
use super::validate::{self, Validated};
use super::{Malformed, Meta, View};

/// A snapshot that was validated, copied into private memory and indexed.
///
/// No other process can change it afterwards, and the snapshot's own memory may be unmapped. It takes about 90 bytes for each
/// cgroup, plus its texts; those of removed cgroups stay until they are half as long as the others.
///
/// The texts are stored as one `str`, so look-ups return `&str` without checking UTF-8 again, which would double their time.
/// A cgroup keeps its row while it stays, so that an update touches what changed.
#[derive(Clone)]
pub struct Index {
    pub(super) meta: Meta,
    /// Name and root of each hierarchy; then path, name and labels of each row. Between them may stand those of removed rows.
    pub(super) strings: String,
    /// How many bytes of `strings` hierarchies and rows have.
    pub(super) texts_len: usize,
    /// The lengths of the hierarchies' texts, then of each row's labels; between them may stand those of removed rows.
    pub(super) pairs: Vec<Pair>,
    /// How many of `pairs` hierarchies and rows have.
    pub(super) pair_count: usize,
    pub(super) hierarchies: u8,
    /// A row's place here is its slot. Removed rows stay until their slots are used again.
    pub(super) rows: Vec<Row>,
    /// The slots, in ascending order of the paths.
    pub(super) order: Vec<u32>,
    /// The slots of removed rows.
    pub(super) free: Vec<u32>,
    pub(super) scratch: Scratch,
    pub(super) hasher: RandomState,
    pub(super) by_path: HashTable<u32>,
    pub(super) by_id: HashTable<u32>,
    /// The first row of each distinct hash. The others follow through [`Row::next`], so that colliding hashes from a hostile
    /// provider do not slow down building the index.
    pub(super) by_name: HashTable<u32>,
}

/// What an update computes; kept for its memory.
#[derive(Clone, Default)]
pub(super) struct Scratch {
    /// As [`Index::order`], after the update.
    pub(super) order: Vec<u32>,
    /// For each slot the place in `order`; [`Row::END`] for a row that is removed.
    pub(super) ranks: Vec<u32>,
}

impl Index {
    /// Validates a snapshot completely and indexes it.
    ///
    /// The bytes may be hostile: this never panics, allocates for a count or length only after it was found to fit the bytes,
    /// and takes time linear in their number, about 40 ns a cgroup.
    ///
    /// # Errors
    /// [`Malformed`] says which item and byte break which rule of `docs/cgroups-snapshot.md`.
    pub fn validate(bytes: &[u8]) -> Result<Self, Malformed> {
        let Validated { meta, rows, strings, pairs, hierarchies } = validate::check(bytes)?;
        let count = u32::try_from(rows.len()).unwrap_or(Row::END);
        let mut index = Self {
            meta,
            strings: strings.into(),
            texts_len: strings.len(),
            pairs: pairs.into(),
            pair_count: pairs.len(),
            hierarchies,
            order: (0..count).collect(),
            free: Vec::new(),
            scratch: Scratch::default(),
            by_path: HashTable::with_capacity(rows.len()),
            by_id: HashTable::with_capacity(rows.len()),
            by_name: HashTable::with_capacity(rows.len()),
            rows,
            hasher: RandomState::default(),
        };
        index.fill_ids()?;
        index.fill_paths();
        index.fill_names();
        Ok(index)
    }

    /// Returns a view for look-ups.
    pub fn view(&self) -> View<'_> {
        View::new(self)
    }

    pub(super) fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Returns the slots, in ascending order of the paths.
    pub(super) fn order(&self) -> &[u32] {
        &self.order
    }

    /// Returns the path and the name of a row. The spans were checked when the index was built, so this is always `Some`.
    pub(super) fn texts(&self, row: &Row) -> Option<(&str, &str)> {
        let start = row.start as usize;
        let path_len = usize::from(row.path_len);
        let both = self.strings.get(start..start + path_len + usize::from(row.name_len))?;
        both.split_at_checked(path_len)
    }

    /// Returns the labels of a row, and their texts.
    pub(super) fn labels(&self, row: &Row) -> (&[Pair], &str) {
        let first = row.first_label as usize;
        let texts = row.start as usize + usize::from(row.path_len) + usize::from(row.name_len);
        let pairs = self.pairs.get(first..first + usize::from(row.labels));
        (pairs.unwrap_or_default(), self.strings.get(texts..).unwrap_or_default())
    }

    /// Returns the length of a row's path, name and labels, in bytes.
    pub(super) fn texts_len(&self, row: &Row) -> usize {
        let labels: usize = self.labels(row).0.iter().map(Pair::len).sum();
        usize::from(row.path_len) + usize::from(row.name_len) + labels
    }

    /// Returns the name and the root of each hierarchy.
    pub(super) fn mounted(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.pairs.get(..usize::from(self.hierarchies)).unwrap_or_default();
        texts_of(pairs, &self.strings)
    }

    pub(super) fn row(&self, slot: u32) -> Option<&Row> {
        self.rows.get(slot as usize)
    }

    pub(super) fn row_of_path(&self, path: &str) -> Option<&Row> {
        let found = self.by_path.find(hash_path(&self.hasher, path.as_bytes()), |index| {
            self.row(*index).is_some_and(|row| self.path(row) == Some(path.as_bytes()))
        });
        self.row(*found?)
    }

    pub(super) fn row_of_id(&self, id: u64) -> Option<&Row> {
        self.row(self.slot_of_id(id)?)
    }

    pub(super) fn slot_of_id(&self, id: u64) -> Option<u32> {
        let hash = hash_number(&self.hasher, id);
        let is = |index: &u32| self.row(*index).is_some_and(|row| row.id == id);
        self.by_id.find(hash, is).copied()
    }

    /// Returns the first row of this hash; [`Row::next`] leads to the others.
    pub(super) fn row_of_hash(&self, name_hash: u64) -> Option<&Row> {
        let hash = hash_number(&self.hasher, name_hash);
        let found = self
            .by_name
            .find(hash, |index| self.row(*index).is_some_and(|row| row.name_hash == name_hash));
        self.row(*found?)
    }

    pub(super) fn path(&self, row: &Row) -> Option<&[u8]> {
        let start = row.start as usize;
        self.strings.as_bytes().get(start..start + usize::from(row.path_len))
    }

    fn fill_ids(&mut self) -> Result<(), Malformed> {
        let (rows, hasher) = (&self.rows, &self.hasher);
        let id_of = |index: u32| rows.get(index as usize).map_or(0, |row| row.id);
        for (index, row) in (0..).zip(rows) {
            let hash = hash_number(hasher, row.id);
            let entry = self.by_id.entry(
                hash,
                |other| id_of(*other) == row.id,
                |other| hash_number(hasher, id_of(*other)),
            );
            match entry {
                Entry::Vacant(vacant) => {
                    vacant.insert(index);
                }
                Entry::Occupied(other) => {
                    return Err(validate::duplicate_id(index, row.id, *other.get()));
                }
            }
        }
        Ok(())
    }

    /// Fills the table of paths. Paths ascend, so each is new.
    fn fill_paths(&mut self) {
        let mut by_path = core::mem::take(&mut self.by_path);
        let hash_of = |row: &Row| hash_path(&self.hasher, self.path(row).unwrap_or(&[]));
        for (index, row) in (0..).zip(&self.rows) {
            by_path.insert_unique(hash_of(row), index, |other| self.row(*other).map_or(0, hash_of));
        }
        self.by_path = by_path;
    }

    /// Fills the table of names from the last row to the first, so that each row is prepended to its chain in one step.
    fn fill_names(&mut self) {
        let hasher = &self.hasher;
        for index in (0..self.rows.len()).rev() {
            let Some((name_hash, number)) =
                self.rows.get(index).map(|row| row.name_hash).zip(u32::try_from(index).ok())
            else {
                continue;
            };
            let hash_of =
                |rows: &[Row], other: u32| rows.get(other as usize).map_or(0, |row| row.name_hash);
            let rows = &self.rows;
            let entry = self.by_name.entry(
                hash_number(hasher, name_hash),
                |other| hash_of(rows, *other) == name_hash,
                |other| hash_number(hasher, hash_of(rows, *other)),
            );
            match entry {
                Entry::Vacant(vacant) => {
                    vacant.insert(number);
                }
                Entry::Occupied(mut first) => {
                    let next = core::mem::replace(first.get_mut(), number);
                    if let Some(row) = self.rows.get_mut(index) {
                        row.next = next;
                    }
                }
            }
        }
    }
}

impl core::fmt::Debug for Index {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Index")
            .field("meta", &self.meta)
            .field("len", &self.order.len())
            .finish_non_exhaustive()
    }
}

pub(super) fn hash_path(hasher: &RandomState, path: &[u8]) -> u64 {
    let mut state = hasher.build_hasher();
    state.write(path);
    state.finish()
}

/// Hashes a number. The provider chooses name hashes; the seed prevents it from choosing the table slots too.
pub(super) fn hash_number(hasher: &RandomState, number: u64) -> u64 {
    let mut state = hasher.build_hasher();
    state.write_u64(number);
    state.finish()
}
