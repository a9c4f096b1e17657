use core::cmp::Ordering;
use core::{mem, str};

use hashbrown::hash_table::Entry;

use super::index::{hash_number, hash_path};
use super::layout::Item;
use super::row::Row;
use super::validate::{self, Frame, path_span};
use super::{Index, Malformed, Meta, check_name, check_path};

/// If more than one in this many cgroups is new, the snapshot is validated as a whole, which is then no slower.
const MOST_NEW: usize = 4;

/// How many rows are compared in one step; after a mismatch, one by one.
const RUN: usize = 32;

/// A checked comparison of a snapshot with its predecessor: rows kept, removed and added.
struct Changes {
    meta: Meta,
    /// Their next links are not set yet.
    rows: Vec<Row>,
    strings: String,
    /// For each row of the old snapshot its place in the new one, or [`Row::END`] if it was removed.
    places: Vec<u32>,
    /// Whether a kept row has another place.
    is_shifted: bool,
    /// Places of removed rows in the old snapshot, ascending.
    gone: Vec<u32>,
    /// Places of added rows in the new snapshot, ascending.
    come: Vec<u32>,
}

impl Index {
    /// Validates a snapshot completely and updates this index to it. Same result as [`Index::validate`], but parts that are
    /// identical to this index's snapshot are only compared.
    ///
    /// Takes about a quarter of the time if few cgroups were added or removed. A snapshot with many changes is validated from
    /// scratch. Linear in the number of bytes either way.
    ///
    /// # Errors
    /// As [`Index::validate`]; this index is unchanged.
    pub fn update(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        match Changes::between(self, bytes) {
            Some(changes) => self.apply(changes),
            // Too much of it is new, or it is invalid: a full validation reports the reason.
            None => *self = Self::validate(bytes)?,
        }
        Ok(())
    }

    fn apply(&mut self, changes: Changes) {
        let Changes { meta, rows, strings, places, is_shifted, gone, come } = changes;
        self.meta = meta;
        if gone.is_empty() && come.is_empty() {
            return;
        }
        gone.iter().for_each(|place| self.forget(*place));
        if is_shifted {
            for place in self.by_path.iter_mut().chain(self.by_id.iter_mut()) {
                *place = new_place(&places, *place);
            }
        }
        let old = mem::replace(&mut self.rows, rows.into_boxed_slice());
        self.strings = strings.into_boxed_str();
        self.keep_chains(&old, places);
        for place in &come {
            self.insert(*place);
        }
        self.chain(&come);
    }

    /// Removes a row from the tables of paths and ids.
    fn forget(&mut self, place: u32) {
        let Some(row) = self.row(place) else { return };
        let (path, id) = (self.path(row).unwrap_or_default(), row.id);
        let (path, id) = (hash_path(&self.hasher, path), hash_number(&self.hasher, id));
        for (table, hash) in [(&mut self.by_path, path), (&mut self.by_id, id)] {
            if let Ok(entry) = table.find_entry(hash, |other| *other == place) {
                entry.remove();
            }
        }
    }

    /// Relinks the chains of equal hashes from each kept row to the next.
    fn keep_chains(&mut self, old: &[Row], mut places: Vec<u32>) {
        // From the last row to the first, since a chain ascends. `places` becomes, for each row, the place of the first kept
        // row from it on.
        for at in (0..old.len()).rev() {
            let next = old.get(at).map_or(Row::END, |row| new_place(&places, row.next));
            let Some(place) = places.get_mut(at) else { continue };
            match self.rows.get_mut(*place as usize) {
                Some(row) => row.next = next,
                None => *place = next,
            }
        }
        self.by_name.retain(|first| {
            *first = new_place(&places, *first);
            *first != Row::END
        });
    }

    /// Adds a row to the tables of paths and ids, which have neither yet.
    fn insert(&mut self, place: u32) {
        let (mut by_path, mut by_id) = (mem::take(&mut self.by_path), mem::take(&mut self.by_id));
        let of_path = |row: &Row| hash_path(&self.hasher, self.path(row).unwrap_or_default());
        let of_id = |row: &Row| hash_number(&self.hasher, row.id);
        if let Some(row) = self.row(place) {
            by_path.insert_unique(of_path(row), place, |other| self.row(*other).map_or(0, of_path));
            by_id.insert_unique(of_id(row), place, |other| self.row(*other).map_or(0, of_id));
        }
        (self.by_path, self.by_id) = (by_path, by_id);
    }

    /// Inserts rows into the chains of equal hashes, each at its place. Walks a chain once, however many rows are added.
    fn chain(&mut self, come: &[u32]) {
        let Self { rows, by_name, hasher, .. } = self;
        let hash_of =
            |rows: &[Row], place: u32| rows.get(place as usize).map_or(0, |row| row.name_hash);
        let mut come: Vec<_> = come.iter().map(|place| (hash_of(rows, *place), *place)).collect();
        come.sort_unstable();
        for equal in come.chunk_by(|one, other| one.0 == other.0) {
            let [(name_hash, first), ..] = *equal else { continue };
            let entry = by_name.entry(
                hash_number(hasher, name_hash),
                |other| hash_of(rows, *other) == name_hash,
                |other| hash_number(hasher, hash_of(rows, *other)),
            );
            match entry {
                Entry::Vacant(vacant) => {
                    vacant.insert(first);
                    link(rows, Row::END, equal);
                }
                Entry::Occupied(mut head) => {
                    let next = *head.get();
                    *head.get_mut() = first.min(next);
                    link(rows, next, equal);
                }
            }
        }
    }
}

/// Inserts `equal`, in ascending order, into the chain that begins with `next`.
fn link(rows: &mut [Row], mut next: u32, equal: &[(u64, u32)]) {
    let mut last = None;
    for (_, place) in equal {
        while next < *place {
            last = Some(next);
            next = rows.get(next as usize).map_or(Row::END, |row| row.next);
        }
        if let Some(last) = last.and_then(|last: u32| rows.get_mut(last as usize)) {
            last.next = *place;
        }
        if let Some(row) = rows.get_mut(*place as usize) {
            row.next = next;
        }
        last = Some(*place);
    }
}

impl Changes {
    /// Compares two snapshots. Returns `None` if a full validation is better: the new one is malformed, or too much of it is
    /// new.
    fn between(old: &Index, bytes: &[u8]) -> Option<Self> {
        let Frame { meta, items, strings } = validate::frame(bytes).ok()?;
        let mut changes = Self {
            meta,
            rows: Vec::with_capacity(items.len()),
            strings: String::with_capacity(strings.len()),
            places: Vec::with_capacity(old.rows().len()),
            is_shifted: false,
            gone: Vec::new(),
            come: Vec::new(),
        };
        changes.walk(old, items, strings)?;
        (changes.strings.len() == strings.len() && changes.has_new_ids(old)).then_some(changes)
    }

    /// Walks both in path order.
    fn walk(&mut self, old: &Index, mut items: &[Item], strings: &[u8]) -> Option<()> {
        let most_new = items.len() / MOST_NEW;
        let mut left = old.rows();
        let mut previous: &[u8] = &[];
        while let [item, rest @ ..] = items {
            let stay = self.stay(old, left, items, strings)?;
            if stay > 0 {
                left = left.get(stay..)?;
                let last = items.get(stay - 1)?;
                previous = strings.get(path_span(last))?;
                items = items.get(stay..)?;
                continue;
            }
            let path = strings.get(path_span(item))?;
            let order =
                left.first().map_or(Some(Ordering::Less), |row| Some(path.cmp(old.path(row)?)))?;
            if order != Ordering::Less {
                self.go()?;
                left = left.get(1..)?;
            }
            if order != Ordering::Greater {
                // A kept row is in order relative to the kept rows before it, since the old snapshot was in order.
                if path <= previous || self.come.len() > most_new {
                    return None;
                }
                self.come(item, path, strings)?;
                (previous, items) = (path, rest);
            }
        }
        left.iter().try_for_each(|_| self.go())
    }

    /// Returns how many of the next items equal the next old rows, which are kept.
    fn stay(&mut self, old: &Index, left: &[Row], items: &[Item], strings: &[u8]) -> Option<usize> {
        let pairs = left.iter().zip(items).take(RUN);
        let mut count = pairs.take_while(|(row, item)| row.is(item)).count();
        // In both snapshots the texts of consecutive rows are contiguous.
        let texts = |count: usize| {
            let (first, last) = (items.first()?, items.get(count.checked_sub(1)?)?);
            let new = path_span(first).start..texts_end(last);
            let start = left.first()?.start as usize;
            let old = old.strings.get(start..start + new.len())?;
            (strings.get(new)? == old.as_bytes()).then_some(old)
        };
        let Some(same) = texts(count).or_else(|| {
            count = count.min(1);
            texts(count)
        }) else {
            return Some(0);
        };
        self.strings.push_str(same);
        let place = u32::try_from(self.rows.len()).ok()?;
        self.is_shifted |= self.places.len() != self.rows.len();
        self.places.extend((place..).take(count));
        let rows = left.iter().zip(items).take(count);
        let moved = |(row, item): (&Row, &Item)| Row {
            start: item.path_offset.get(),
            next: Row::END,
            ..*row
        };
        self.rows.extend(rows.map(moved));
        Some(count)
    }

    /// Adds an item after the usual checks.
    fn come(&mut self, item: &Item, path: &[u8], strings: &[u8]) -> Option<()> {
        let place = u32::try_from(self.rows.len()).ok()?;
        let name = strings.get(path_span(item).end..texts_end(item))?;
        let (path, name) = (str::from_utf8(path).ok()?, str::from_utf8(name).ok()?);
        check_path(path).and_then(|()| check_name(name)).ok()?;
        self.strings.push_str(path);
        self.strings.push_str(name);
        self.rows.push(validate::check_item(place, item, name).ok()?);
        self.come.push(place);
        Some(())
    }

    /// Removes the next old row.
    fn go(&mut self) -> Option<()> {
        self.gone.push(u32::try_from(self.places.len()).ok()?);
        self.places.push(Row::END);
        Some(())
    }

    /// Returns whether no added row has the id of another row.
    fn has_new_ids(&self, old: &Index) -> bool {
        let come = self.come.iter().filter_map(|place| self.rows.get(*place as usize));
        let mut ids: Vec<u64> = come.map(|row| row.id).collect();
        ids.sort_unstable();
        let is_once = ids.is_sorted_by(|one, other| one < other);
        let stays = |id: &u64| {
            old.place_of_id(*id).is_some_and(|at| new_place(&self.places, at) != Row::END)
        };
        is_once && !ids.iter().any(stays)
    }
}

/// Returns where the texts of an item end.
fn texts_end(item: &Item) -> usize {
    path_span(item).end + usize::from(item.name_len.get())
}

/// Returns an old row's place in the new snapshot; [`Row::END`] for a removed row, or for none.
fn new_place(places: &[u32], place: u32) -> u32 {
    places.get(place as usize).copied().unwrap_or(Row::END)
}

#[cfg(test)]
mod tests {
    use super::super::{Mode, encode, synthetic};
    use super::*;

    #[test]
    fn what_stayed_is_not_validated_again() {
        let mut entries = synthetic::entries(1_010, 7);
        let others = entries.split_off(1_000);
        let meta = Meta::now(Mode::V2);
        let old = Index::validate(&encode(&entries, meta).unwrap()).unwrap();
        let gone = entries.iter_mut().step_by(100);
        gone.zip(others).for_each(|(gone, come)| *gone = come);
        let bytes = encode(&entries, meta).unwrap();
        let changes = Changes::between(&old, &bytes).unwrap();
        assert_eq!((changes.come.len(), changes.gone.len(), changes.rows.len()), (10, 10, 1_000));
    }
}
