use core::mem;

use hashbrown::hash_table::Entry;

use super::delta::{Added, Delta};
use super::index::{hash_number, hash_path};
use super::layout::{Item, PAIR_LEN, Pair};
use super::row::Row;
use super::validate::path_span;
use super::{HEADER_LEN, ITEM_LEN, Index, MAX_ITEMS, MAX_LEN, Malformed, writer};

/// The slots of changed rows.
struct Slots {
    removed: Vec<u32>,
    /// Of the added rows, in their order. None is that of a removed one, which is read until the end.
    added: Vec<u32>,
}

impl Index {
    /// Validates a snapshot completely and updates this index to it. Same result as [`Index::validate`], but parts that are
    /// identical to this index's snapshot are only compared.
    ///
    /// Takes about a third of the time if few cgroups were added or removed. A snapshot with many changes is validated from
    /// scratch. Linear in the number of bytes either way.
    ///
    /// # Errors
    /// As [`Index::validate`]; this index is unchanged.
    pub fn update(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let delta = Delta::between(self, bytes);
        if !delta.is_some_and(|delta| self.apply(&delta)) {
            // Too much of it is new, or it is invalid: a full validation reports the reason.
            *self = Self::validate(bytes)?;
        }
        Ok(())
    }

    /// Returns the delta from this index's snapshot to the one in `bytes`; `None` if much differs, or if it is malformed.
    pub fn delta(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        Delta::between(self, bytes)?.encode(self)
    }

    /// Updates this index by its provider's delta to the next snapshot. Checks all of it as [`Index::validate`] does: what
    /// the index is afterwards is that of a valid snapshot. Takes time for what changed, and about 1 ns for each other cgroup.
    ///
    /// Returns false, and leaves this index unchanged, if `delta` is malformed or that of another snapshot.
    #[must_use]
    pub fn apply_delta(&mut self, delta: &[u8]) -> bool {
        Delta::parse(self, delta).is_some_and(|delta| self.apply(&delta))
    }

    /// Returns the snapshot of which this is the index: the same bytes as those that were validated.
    pub fn to_bytes(&self) -> Vec<u8> {
        let len = encoded_len(self.order.len(), self.pair_count, self.texts_len);
        let mut bytes = vec![0; len];
        // The length is exact, so all of it is written.
        let items = self.view().iter();
        let _ = writer::write(self.meta, self.mounted(), items, self.pair_count, &mut bytes);
        bytes
    }

    /// Returns whether a row, which is equal otherwise, has the texts and the labels of an item.
    pub(super) fn has_texts(&self, row: &Row, item: &Item, pairs: &[Pair], strings: &[u8]) -> bool {
        let (own, theirs) = (row.start as usize, path_span(item).start);
        let len = self.texts_len(row);
        let theirs = strings.get(theirs..theirs + len);
        self.labels(row).0 == pairs
            && theirs.is_some()
            && self.strings.as_bytes().get(own..own + len) == theirs
    }

    /// Returns false, and changes nothing, if the result would not be valid.
    fn apply(&mut self, delta: &Delta<'_>) -> bool {
        if !delta.is_empty() {
            let Some(slots) = self.plan(delta) else { return false };
            self.commit(delta, &slots);
        }
        self.meta = delta.meta;
        true
    }

    /// Computes the new order and checks that it is one: paths ascend, ids are unique, and nothing is above its limit.
    fn plan(&mut self, delta: &Delta<'_>) -> Option<Slots> {
        let removed = delta.removed.iter().map(|place| self.order.get(*place as usize).copied());
        let removed: Vec<u32> = removed.collect::<Option<_>>()?;
        let fresh = u32::try_from(self.rows.len()).ok()?..;
        let added = self.free.iter().rev().copied().chain(fresh).take(delta.added.len());
        let slots = Slots { removed, added: added.collect() };

        let count = (self.order.len() + slots.added.len()).checked_sub(slots.removed.len())?;
        let (mut texts, mut pairs) = delta.added_len();
        (texts, pairs) = (texts + self.texts_len, pairs + self.pair_count);
        for row in slots.removed.iter().filter_map(|slot| self.row(*slot)) {
            texts -= self.texts_len(row);
            pairs -= usize::from(row.labels);
        }
        let len = encoded_len(count, pairs, texts);
        if count > MAX_ITEMS || len > MAX_LEN {
            return None;
        }
        self.arrange(delta, &slots)?;
        self.rank(&slots);
        (self.scratch.order.len() == count && self.ascends(delta) && self.has_new_ids(delta))
            .then_some(slots)
    }

    /// Computes the new order: the old one without the removed rows, and each added row at its place.
    fn arrange(&mut self, delta: &Delta<'_>, slots: &Slots) -> Option<()> {
        let (old, new) = (&self.order, &mut self.scratch.order);
        new.clear();
        let mut removed = delta.removed.iter().map(|place| *place as usize).peekable();
        let mut at = 0;
        // Copies kept rows until there are so many, or no more.
        let mut keep = |new: &mut Vec<u32>, most: usize| {
            while new.len() < most {
                let end = removed.peek().copied().unwrap_or(old.len());
                let run = end.checked_sub(at)?.min(most - new.len());
                new.extend_from_slice(old.get(at..at + run)?);
                at += run;
                if new.len() < most {
                    removed.next()?;
                    at += 1;
                }
            }
            Some(())
        };
        for (added, slot) in delta.added.iter().zip(&slots.added) {
            keep(new, added.place as usize)?;
            if new.len() != added.place as usize {
                return None;
            }
            new.push(*slot);
        }
        // Ends when there is nothing left.
        let _ = keep(new, usize::MAX);
        Some(())
    }

    fn rank(&mut self, slots: &Slots) {
        let ranks = &mut self.scratch.ranks;
        ranks.resize(self.rows.len() + slots.added.len(), Row::END);
        let mut set = |slot: u32, rank| {
            if let Some(place) = ranks.get_mut(slot as usize) {
                *place = rank;
            }
        };
        slots.removed.iter().for_each(|slot| set(*slot, Row::END));
        (0..).zip(&self.scratch.order).for_each(|(rank, slot)| set(*slot, rank));
    }

    /// Returns whether each added path is above the one before it and below the one after it. Those that stay ascend.
    fn ascends(&self, delta: &Delta<'_>) -> bool {
        let added = |at: Option<usize>, place: Option<u32>| {
            let found = delta.added.get(at?);
            found.filter(|found| Some(found.place) == place).map(|found| found.path.as_bytes())
        };
        let kept = |place: u32| self.path(self.row(*self.scratch.order.get(place as usize)?)?);
        delta.added.iter().enumerate().all(|(at, one)| {
            let before = one.place.checked_sub(1);
            let before = added(at.checked_sub(1), before).or_else(|| kept(before?));
            let after = one.place.checked_add(1);
            let after = added(Some(at + 1), after).or_else(|| kept(after?));
            let path = one.path.as_bytes();
            before.is_none_or(|before| before < path) && after.is_none_or(|after| path < after)
        })
    }

    /// Returns whether no added row has the id of another row.
    fn has_new_ids(&self, delta: &Delta<'_>) -> bool {
        let mut ids: Vec<u64> = delta.added.iter().map(|added| added.row.id).collect();
        ids.sort_unstable();
        let stays =
            |id: &u64| self.slot_of_id(*id).is_some_and(|slot| self.rank_of(slot).is_some());
        ids.is_sorted_by(|one, other| one < other) && !ids.iter().any(stays)
    }

    /// Returns a row's place in the new order; `None` for a removed row.
    fn rank_of(&self, slot: u32) -> Option<u32> {
        self.scratch.ranks.get(slot as usize).copied().filter(|rank| *rank != Row::END)
    }

    fn commit(&mut self, delta: &Delta<'_>, slots: &Slots) {
        for slot in &slots.removed {
            self.forget(*slot);
        }
        for (added, slot) in delta.added.iter().zip(&slots.added) {
            self.insert(added, *slot);
        }
        self.relink(delta, slots);
        self.free.truncate(self.free.len().saturating_sub(slots.added.len()));
        self.free.extend_from_slice(&slots.removed);
        mem::swap(&mut self.order, &mut self.scratch.order);
        if self.strings.len() > self.texts_len + self.texts_len / 2 + HEADER_LEN * ITEM_LEN {
            self.compact();
        }
    }

    /// Removes a row from the tables of paths and ids.
    fn forget(&mut self, slot: u32) {
        let Some(row) = self.row(slot) else { return };
        let (len, labels) = (self.texts_len(row), usize::from(row.labels));
        let id = hash_number(&self.hasher, row.id);
        let path = hash_path(&self.hasher, self.path(row).unwrap_or_default());
        for (table, hash) in [(&mut self.by_path, path), (&mut self.by_id, id)] {
            if let Ok(entry) = table.find_entry(hash, |other| *other == slot) {
                entry.remove();
            }
        }
        self.texts_len -= len;
        self.pair_count -= labels;
    }

    /// Adds a row, and adds it to the tables of paths and ids.
    fn insert(&mut self, added: &Added<'_>, slot: u32) {
        let [start, first_label] = [self.strings.len(), self.pairs.len()].map(writer::narrow);
        self.strings.push_str(added.texts);
        self.texts_len += added.texts.len();
        self.pairs.extend_from_slice(added.pairs);
        self.pair_count += added.pairs.len();
        let row = Row { start, first_label, ..added.row };
        match self.rows.get_mut(slot as usize) {
            Some(place) => *place = row,
            None => self.rows.push(row),
        }
        let (mut by_path, mut by_id) = (mem::take(&mut self.by_path), mem::take(&mut self.by_id));
        let of_path = |row: &Row| hash_path(&self.hasher, self.path(row).unwrap_or_default());
        let of_id = |row: &Row| hash_number(&self.hasher, row.id);
        by_path.insert_unique(of_path(&row), slot, |other| self.row(*other).map_or(0, of_path));
        by_id.insert_unique(of_id(&row), slot, |other| self.row(*other).map_or(0, of_id));
        (self.by_path, self.by_id) = (by_path, by_id);
    }

    /// Removes rows from the chains of equal hashes, and adds rows to them. Walks a chain once, however many rows of it changed.
    fn relink(&mut self, delta: &Delta<'_>, slots: &Slots) {
        let removed =
            slots.removed.iter().filter_map(|slot| Some((self.row(*slot)?.name_hash, None)));
        let added = delta.added.iter().zip(&slots.added);
        let added = added.map(|(added, slot)| (added.row.name_hash, Some(*slot)));
        let mut changed: Vec<(u64, Option<u32>)> = removed.chain(added).collect();
        // Stable: the added ones of one hash ascend.
        changed.sort_by_key(|(name_hash, _)| *name_hash);
        for equal in changed.chunk_by(|one, other| one.0 == other.0) {
            let Some((name_hash, _)) = equal.first() else { continue };
            self.rechain(*name_hash, equal.iter().filter_map(|(_, slot)| *slot));
        }
    }

    /// Makes the chain of one hash anew, of what stays in it and of `added`.
    fn rechain(&mut self, name_hash: u64, added: impl Iterator<Item = u32>) {
        let Self { rows, by_name, hasher, scratch, .. } = self;
        let hash_of =
            |rows: &[Row], slot: u32| rows.get(slot as usize).map_or(0, |row| row.name_hash);
        let rank_of = |slot: u32| scratch.ranks.get(slot as usize).copied().unwrap_or(Row::END);
        let entry = by_name.entry(
            hash_number(hasher, name_hash),
            |other| hash_of(rows, *other) == name_hash,
            |other| hash_number(hasher, hash_of(rows, *other)),
        );
        let mut old = match &entry {
            Entry::Occupied(head) => *head.get(),
            Entry::Vacant(_) => Row::END,
        };
        let mut added = added.peekable();
        let mut chain = Chain { first: Row::END, last: Row::END };
        while let Some(row) = rows.get(old as usize) {
            let (slot, rank) = (old, rank_of(old));
            old = row.next;
            if rank != Row::END {
                while let Some(before) = added.next_if(|slot| rank_of(*slot) < rank) {
                    chain.push(rows, before);
                }
                chain.push(rows, slot);
            }
        }
        added.for_each(|slot| chain.push(rows, slot));
        match entry {
            Entry::Occupied(head) if chain.first == Row::END => drop(head.remove()),
            Entry::Occupied(mut head) => *head.get_mut() = chain.first,
            Entry::Vacant(_) if chain.first == Row::END => {}
            Entry::Vacant(vacant) => drop(vacant.insert(chain.first)),
        }
    }

    /// Leaves out the texts and labels of removed rows.
    fn compact(&mut self) {
        let mounted = self.pairs.get(..usize::from(self.hierarchies)).unwrap_or_default();
        let roots = mounted.iter().map(Pair::len).sum();
        let mut pairs = Vec::with_capacity(self.pair_count);
        let mut strings = String::with_capacity(self.texts_len);
        pairs.extend_from_slice(mounted);
        strings.push_str(self.strings.get(..roots).unwrap_or_default());
        for slot in &self.order {
            let Some(row) = self.rows.get(*slot as usize) else { continue };
            let (start, first) = (row.start as usize, row.first_label as usize);
            let texts = self.strings.get(start..start + self.texts_len(row));
            let labels = self.pairs.get(first..first + usize::from(row.labels));
            let moved = [strings.len(), pairs.len()].map(writer::narrow);
            strings.push_str(texts.unwrap_or_default());
            pairs.extend_from_slice(labels.unwrap_or_default());
            if let Some(row) = self.rows.get_mut(*slot as usize) {
                [row.start, row.first_label] = moved;
            }
        }
        (self.strings, self.pairs) = (strings, pairs);
    }
}

/// A chain of rows that grows at its end.
struct Chain {
    first: u32,
    last: u32,
}

impl Chain {
    fn push(&mut self, rows: &mut [Row], slot: u32) {
        if let Some(row) = rows.get_mut(slot as usize) {
            row.next = Row::END;
        }
        match rows.get_mut(self.last as usize) {
            Some(last) => last.next = slot,
            None => self.first = slot,
        }
        self.last = slot;
    }
}

/// Returns the length of a snapshot in bytes.
fn encoded_len(items: usize, pairs: usize, texts: usize) -> usize {
    HEADER_LEN + items * ITEM_LEN + pairs * PAIR_LEN + texts
}
