//! The delta between two snapshots: found by comparing them, or sent by the provider.

use core::cmp::Ordering;
use core::str;

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

use super::label::{check_label, texts_of};
use super::layout::{DELTA_MAGIC, DeltaHeader, Item, PAIR_LEN, Pair};
use super::row::Row;
use super::validate::{self, Frame, name_span, path_span};
use super::writer::{Area, narrow};
use super::{HEADER_LEN, ITEM_LEN, Index, LAYOUT, Meta, Mode, check_name, check_path};

/// If more than one in this many cgroups is new or gone, the snapshot is validated as a whole, which is then no slower.
const MAX_NEW: usize = 4;

/// What differs. Each added cgroup is valid by itself; whether it fits the others is for [`Index::apply`] to check.
pub(super) struct Delta<'a> {
    pub(super) meta: Meta,
    /// Places in the old snapshot, ascending.
    pub(super) removed: Vec<u32>,
    /// In ascending order of their places in the new one.
    pub(super) added: Vec<Added<'a>>,
}

/// A cgroup of the new snapshot only. One that changed is removed and added.
pub(super) struct Added<'a> {
    pub(super) place: u32,
    /// Its texts and labels have no place in an index yet.
    pub(super) row: Row,
    pub(super) path: &'a str,
    /// Path, name and labels.
    pub(super) texts: &'a str,
    pub(super) pairs: &'a [Pair],
}

impl<'a> Delta<'a> {
    /// Compares a snapshot with that of an index, both in path order. Returns `None` if validating it as a whole is better: it
    /// is malformed, or too much of it is new.
    pub(super) fn between(old: &Index, bytes: &'a [u8]) -> Option<Self> {
        let Frame { meta, items, pairs, hierarchies, strings } = validate::frame(bytes).ok()?;
        let (mounted, mut labels) = pairs.split_at_checked(hierarchies.into())?;
        let roots = strings.get(..mounted.iter().map(Pair::len).sum())?;
        if old.hierarchies != hierarchies
            || old.pairs.get(..mounted.len())? != mounted
            || old.strings.as_bytes().get(..roots.len())? != roots
        {
            return None;
        }
        let mut delta = Self { meta, removed: Vec::new(), added: Vec::new() };
        let mut left = (0..).zip(old.order());
        let mut next = left.next();
        for (place, item) in (0..).zip(items) {
            let path = strings.get(path_span(item))?;
            let (pairs, rest) = labels.split_at_checked(item.labels.into())?;
            labels = rest;
            let mut order = Ordering::Less;
            while let Some((at, slot)) = next {
                let row = old.row(*slot)?;
                if row.is(item) && old.has_texts(row, item, pairs, strings) {
                    order = Ordering::Equal;
                    next = left.next();
                    break;
                }
                let after = path.cmp(old.path(row)?);
                if after == Ordering::Less {
                    break;
                }
                delta.removed.push(at);
                next = left.next();
                if after == Ordering::Equal {
                    break;
                }
            }
            if order == Ordering::Less {
                if delta.added.len() > items.len() / MAX_NEW {
                    return None;
                }
                delta.added.push(Added::check(place, item, pairs, strings)?);
            }
        }
        delta.removed.extend(next.into_iter().chain(left).map(|(at, _)| at));
        (delta.removed.len() <= old.order().len() / 2).then_some(delta)
    }

    /// Parses and checks a provider's delta from the snapshot of `old` to the next one.
    pub(super) fn parse(old: &Index, bytes: &'a [u8]) -> Option<Self> {
        let (header, body) = DeltaHeader::ref_from_prefix(bytes).ok()?;
        let is_sound = header.magic == DELTA_MAGIC
            && header.layout.get() == LAYOUT
            && usize::try_from(header.total_len.get()) == Ok(bytes.len())
            && header.reserved == [0; 11]
            && usize::try_from(header.old_count.get()) == Ok(old.order().len())
            && header.old_scanned_at.get() == old.meta().scanned_at_nanos();
        let meta = Meta {
            scanned_at: Meta::time_from_nanos(header.scanned_at.get()),
            mode: Mode::from_code(header.mode).filter(|_| is_sound)?,
            skipped: header.skipped.get(),
        };
        let [added, pairs, removed] =
            [header.added, header.pair_count, header.removed].map(|count| count.get() as usize);
        let (items, body) = <[Item]>::ref_from_prefix_with_elems(body, added).ok()?;
        let (mut labels, body) = <[Pair]>::ref_from_prefix_with_elems(body, pairs).ok()?;
        let (places, body) = <[U32]>::ref_from_prefix_with_elems(body, added).ok()?;
        let (removed, strings) = <[U32]>::ref_from_prefix_with_elems(body, removed).ok()?;
        validate::check_spans(items, labels, 0, strings.len()).ok()?;
        let ascend = |places: &[U32]| places.is_sorted_by(|one, other| one.get() < other.get());
        if !ascend(places) || !ascend(removed) {
            return None;
        }
        let added = items.iter().zip(places).map(|(item, place)| {
            let (pairs, rest) = labels.split_at_checked(item.labels.into())?;
            labels = rest;
            Added::check(place.get(), item, pairs, strings)
        });
        let added = added.collect::<Option<_>>()?;
        Some(Self { meta, removed: removed.iter().map(|place| place.get()).collect(), added })
    }

    /// Encodes it for readers of the snapshot of `old`.
    pub(super) fn encode(&self, old: &Index) -> Option<Vec<u8>> {
        let count = self.added.len();
        let (texts, pairs) = self.added_len();
        let places = (count + self.removed.len()) * size_of::<U32>();
        let len = HEADER_LEN + count * ITEM_LEN + pairs * PAIR_LEN + places + texts;
        let mut bytes = vec![0; len];
        let (header, body) = DeltaHeader::mut_from_prefix(&mut bytes).ok()?;
        *header = DeltaHeader {
            magic: DELTA_MAGIC,
            layout: LAYOUT.into(),
            total_len: narrow(len).into(),
            scanned_at: self.meta.scanned_at_nanos().into(),
            old_scanned_at: old.meta().scanned_at_nanos().into(),
            old_count: narrow(old.order().len()).into(),
            added: narrow(count).into(),
            removed: narrow(self.removed.len()).into(),
            skipped: self.meta.skipped.into(),
            pair_count: narrow(pairs).into(),
            mode: self.meta.mode.code(),
            reserved: [0; 11],
        };
        let (items, body) = <[Item]>::mut_from_prefix_with_elems(body, count).ok()?;
        let (pairs, body) = <[Pair]>::mut_from_prefix_with_elems(body, pairs).ok()?;
        let (places, strings) = body.split_at_mut_checked(places)?;
        let all = self.added.iter().map(|added| &added.place).chain(&self.removed);
        for (place, number) in places.chunks_exact_mut(size_of::<U32>()).zip(all) {
            place.copy_from_slice(U32::new(*number).as_bytes());
        }
        let mut area = Area::new(pairs, strings);
        for (item, added) in items.iter_mut().zip(&self.added) {
            *item = area.put_row(&added.row, added.texts, added.pairs);
        }
        Some(bytes)
    }

    /// Returns how many bytes of text the added cgroups have, and how many labels.
    pub(super) fn added_len(&self) -> (usize, usize) {
        let lens = self.added.iter().map(|added| (added.texts.len(), added.pairs.len()));
        lens.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.added.is_empty()
    }
}

impl<'a> Added<'a> {
    /// Checks an item by itself. Its spans were checked.
    fn check(place: u32, item: &Item, pairs: &'a [Pair], strings: &'a [u8]) -> Option<Self> {
        let (path, name) = (path_span(item), name_span(item));
        let end = name.end + pairs.iter().map(Pair::len).sum::<usize>();
        let texts = str::from_utf8(strings.get(path.start..end)?).ok()?;
        let (path, rest) = texts.split_at_checked(path.len())?;
        let (name, labels) = rest.split_at_checked(name.len())?;
        check_path(path).and_then(|()| check_name(name)).ok()?;
        let mut checked = 0;
        for (name, value) in texts_of(pairs, labels) {
            check_label(name, value).ok()?;
            checked += 1;
        }
        // One whose text ends within a character is not listed.
        let row =
            validate::check_item(place, item, name, 0).ok().filter(|_| checked == pairs.len())?;
        Some(Self { place, row, path, texts, pairs })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Mode, encode, synthetic};
    use super::*;

    #[test]
    fn unchanged_cgroups_are_not_validated_again() {
        let mut entries = synthetic::entries(1_010, 7);
        let others = entries.split_off(1_000);
        let meta = Meta::now(Mode::V2);
        let old = Index::validate(&encode(&entries, meta).unwrap()).unwrap();
        let removed = entries.iter_mut().step_by(100);
        removed.zip(others).for_each(|(removed, added)| *removed = added);
        let bytes = encode(&entries, meta).unwrap();
        let delta = Delta::between(&old, &bytes).unwrap();
        assert_eq!((delta.added.len(), delta.removed.len()), (10, 10));
    }
}
