use core::mem::offset_of;
use core::ops::Range;

use zerocopy::FromBytes;

use super::label::check_label;
use super::layout::{Header, Item, PAIR_LEN, Pair};
use super::malformed::{Malformed, MalformedKind as Kind};
use super::row::Row;
use super::text::{TextFault, check_control, check_inside, check_len, check_path_ends, is_suspect};
use super::writer::narrow;
use super::{
    HEADER_LEN, ITEM_LEN, LAYOUT, MAGIC, MAX_ITEMS, MAX_LEN, MAX_NAME, MAX_PATH, Meta, Mode,
    Options, Orchestrator, name_hash,
};

/// A snapshot that is valid except that the uniqueness of ids, which needs a table, was not checked.
pub(super) struct Validated<'a> {
    pub(super) meta: Meta,
    pub(super) rows: Vec<Row>,
    pub(super) strings: &'a str,
    pub(super) pairs: &'a [Pair],
    pub(super) hierarchies: u8,
}

/// A snapshot with a valid header and valid text spans.
pub(super) struct Frame<'a> {
    pub(super) meta: Meta,
    pub(super) items: &'a [Item],
    /// Those of the hierarchies, then those of each item.
    pub(super) pairs: &'a [Pair],
    pub(super) hierarchies: u8,
    pub(super) strings: &'a [u8],
}

/// Checks the header and the text spans.
pub(super) fn frame(bytes: &[u8]) -> Result<Frame<'_>, Malformed> {
    let Parts { header, items, pairs, strings } = split(bytes)?;
    let meta = Meta {
        scanned_at: Meta::time_from_nanos(header.scanned_at.get()),
        mode: Mode::from_code(header.mode)
            .ok_or(in_header(offset_of!(Header, mode), Kind::Mode { found: header.mode }))?,
        skipped: header.skipped.get(),
    };
    let hierarchies = header.hierarchies;
    check_spans(items, pairs, hierarchies, strings.len())?;
    Ok(Frame { meta, items, pairs, hierarchies, strings })
}

/// Checks everything but the uniqueness of ids.
///
/// Takes time linear in the length, since no two texts overlap, and allocates only the rows, after the item table was found
/// to fit.
pub(super) fn check(bytes: &[u8]) -> Result<Validated<'_>, Malformed> {
    let Frame { meta, items, pairs, hierarchies, strings } = frame(bytes)?;
    let start = strings_start(items, pairs);
    let strings =
        core::str::from_utf8(strings).map_err(|e| not_utf8(items, start, e.valid_up_to()))?;

    let texts = Texts { start, strings, suspect: is_suspect(strings.as_bytes()) };
    let (mounted, mut labels) = pairs.split_at(pairs.len().min(hierarchies.into()));
    texts.labels(None, 0, mounted)?;
    let mut rows = Vec::with_capacity(items.len());
    let mut previous = "";
    for (index, item) in (0..).zip(items) {
        let path = texts.path(index, item)?;
        let name = texts.name(index, item)?;
        let first_label = narrow(pairs.len() - labels.len());
        let (own, rest) = labels.split_at(labels.len().min(item.labels.into()));
        texts.labels(Some(index), name_span(item).end, own)?;
        labels = rest;
        if path <= previous {
            return Err(in_item(index, offset_of!(Item, path_offset), Kind::PathOrder));
        }
        previous = path;
        rows.push(check_item(index, item, name, first_label)?);
    }
    Ok(Validated { meta, rows, strings, pairs, hierarchies })
}

/// Returns the fault of an item that has the id of another one.
pub(super) fn duplicate_id(index: u32, id: u64, other: u32) -> Malformed {
    in_item(index, offset_of!(Item, id), Kind::DuplicateId { id, other })
}

struct Parts<'a> {
    header: &'a Header,
    items: &'a [Item],
    pairs: &'a [Pair],
    strings: &'a [u8],
}

/// Checks every header field that states a position.
fn split(bytes: &[u8]) -> Result<Parts<'_>, Malformed> {
    let len = bytes.len();
    let short = in_header(0, Kind::Short { len });
    let (header, body) = Header::ref_from_prefix(bytes).map_err(|_| short)?;
    if header.magic != MAGIC {
        return Err(in_header(0, Kind::Magic));
    }
    if header.layout.get() != LAYOUT {
        let found = header.layout.get();
        return Err(in_header(offset_of!(Header, layout), Kind::Layout { found }));
    }
    if len > MAX_LEN {
        return Err(in_header(0, Kind::TooLong { len }));
    }
    let said = header.total_len.get();
    if u32::try_from(len) != Ok(said) {
        return Err(in_header(offset_of!(Header, total_len), Kind::Length { said, len }));
    }
    if let Some(at) = header.reserved.iter().position(|byte| *byte != 0) {
        return Err(in_header(offset_of!(Header, reserved) + at, Kind::Reserved));
    }

    let count = header.item_count.get();
    let too_many = in_header(offset_of!(Header, item_count), Kind::ItemCount { count });
    let wanted = usize::try_from(count).ok().filter(|n| *n <= MAX_ITEMS).ok_or(too_many)?;
    let (items, rest) = <[Item]>::ref_from_prefix_with_elems(body, wanted).map_err(|_| too_many)?;
    let found = header.pair_count.get();
    let expected = (rest.len() / PAIR_LEN) as u64;
    let too_many = in_header(offset_of!(Header, pair_count), Kind::PairCount { found, expected });
    let wanted = usize::try_from(found).map_err(|_| too_many)?;
    let (pairs, strings) =
        <[Pair]>::ref_from_prefix_with_elems(rest, wanted).map_err(|_| too_many)?;

    for (field, at, found, expected) in [
        ("item_len", offset_of!(Header, item_len), header.item_len, ITEM_LEN),
        ("items_offset", offset_of!(Header, items_offset), header.items_offset, HEADER_LEN),
        (
            "strings_offset",
            offset_of!(Header, strings_offset),
            header.strings_offset,
            strings_start(items, pairs),
        ),
        ("strings_len", offset_of!(Header, strings_len), header.strings_len, strings.len()),
    ] {
        let (found, expected) = (found.get(), expected as u64);
        if u64::from(found) != expected {
            return Err(in_header(at, Kind::Geometry { field, found, expected }));
        }
    }
    Ok(Parts { header, items, pairs, strings })
}

/// Checks that the texts fill the string area: those of the hierarchies, then path, name and labels of each item. And that the
/// pairs are as many as the hierarchies and labels.
pub(super) fn check_spans(
    items: &[Item],
    pairs: &[Pair],
    hierarchies: u8,
    strings_len: usize,
) -> Result<(), Malformed> {
    let in_count = |expected| {
        let found = narrow(pairs.len());
        in_header(offset_of!(Header, pair_count), Kind::PairCount { found, expected })
    };
    let all = items.iter().fold(u64::from(hierarchies), |all, item| all + u64::from(item.labels));
    if all != pairs.len() as u64 {
        return Err(in_count(all));
    }
    let (mounted, mut labels) = pairs.split_at(pairs.len().min(hierarchies.into()));
    let mut cursor = mounted.iter().map(Pair::len).sum();
    if cursor > strings_len {
        let len = mounted.first().map_or(0, |pair| pair.name_len.get());
        return Err(in_header(offset_of!(Header, hierarchies), Kind::PastEnd { len }));
    }
    for (index, item) in (0..).zip(items) {
        let path = (item.path_offset.get(), item.path_len.get());
        let name = (item.name_offset.get(), item.name_len.get());
        for ((offset, len), offset_at, len_at) in [
            (path, offset_of!(Item, path_offset), offset_of!(Item, path_len)),
            (name, offset_of!(Item, name_offset), offset_of!(Item, name_len)),
        ] {
            if usize::try_from(offset) != Ok(cursor) {
                let why = Kind::Offset { found: offset, expected: cursor };
                return Err(in_item(index, offset_at, why));
            }
            cursor += usize::from(len);
            if cursor > strings_len {
                return Err(in_item(index, len_at, Kind::PastEnd { len }));
            }
        }
        let (own, rest) = labels.split_at(labels.len().min(item.labels.into()));
        labels = rest;
        for pair in own {
            cursor += pair.len();
            if cursor > strings_len {
                let why = Kind::PastEnd { len: pair.value_len.get() };
                return Err(in_item(index, offset_of!(Item, labels), why));
            }
        }
    }
    match strings_len - cursor {
        0 => Ok(()),
        extra => Err(Malformed {
            item: None,
            offset: strings_start(items, pairs) + cursor,
            why: Kind::Leftover { extra },
        }),
    }
}

/// Checks the fields of one item that are not texts.
pub(super) fn check_item(
    index: u32,
    item: &Item,
    name: &str,
    first_label: u32,
) -> Result<Row, Malformed> {
    let (found, expected) = (item.name_hash.get(), name_hash(name));
    if found != expected {
        let why = Kind::NameHash { found, expected };
        return Err(in_item(index, offset_of!(Item, name_hash), why));
    }
    let id = item.id.get();
    if id == 0 {
        return Err(in_item(index, offset_of!(Item, id), Kind::ZeroId));
    }
    let found = item.options.get();
    let options = Options::from_bits(found).ok_or(in_item(
        index,
        offset_of!(Item, options),
        Kind::Options { found },
    ))?;
    let enabled = match item.enabled {
        0 => false,
        1 => true,
        found => return Err(in_item(index, offset_of!(Item, enabled), Kind::Enabled { found })),
    };
    let found = item.orchestrator;
    let orchestrator = Orchestrator::from_code(found).ok_or(in_item(
        index,
        offset_of!(Item, orchestrator),
        Kind::Orchestrator { found },
    ))?;
    if let Some(at) = item.reserved.iter().position(|byte| *byte != 0) {
        return Err(in_item(index, offset_of!(Item, reserved) + at, Kind::Reserved));
    }
    Ok(Row {
        id,
        name_hash: expected,
        start: item.path_offset.get(),
        next: Row::END,
        first_label,
        path_len: item.path_len.get(),
        name_len: item.name_len.get(),
        options,
        enabled,
        orchestrator,
        labels: item.labels,
    })
}

/// The string area, and what is known of it as a whole.
struct Texts<'a> {
    /// Where it starts in the snapshot.
    start: usize,
    strings: &'a str,
    /// Whether each text must be checked; see [`is_suspect`].
    suspect: bool,
}

impl<'a> Texts<'a> {
    fn path(&self, index: u32, item: &Item) -> Result<&'a str, Malformed> {
        let span = path_span(item);
        let path = self.text(Some(index), &span)?;
        check_len(path, MAX_PATH)
            .and_then(|()| check_path_ends(path))
            .and_then(|()| if self.suspect { check_inside(path) } else { Ok(()) })
            .map_err(|fault| self.malformed(index, &span, fault, Kind::Path))?;
        Ok(path)
    }

    fn name(&self, index: u32, item: &Item) -> Result<&'a str, Malformed> {
        let span = name_span(item);
        let name = self.text(Some(index), &span)?;
        check_len(name, MAX_NAME)
            .and_then(|()| if self.suspect { check_control(name) } else { Ok(()) })
            .map_err(|fault| self.malformed(index, &span, fault, Kind::Name))?;
        Ok(name)
    }

    /// Checks labels, or hierarchies, whose texts start at `at`.
    fn labels(&self, index: Option<u32>, mut at: usize, pairs: &[Pair]) -> Result<(), Malformed> {
        for pair in pairs {
            let name = at..at + usize::from(pair.name_len.get());
            let value = name.end..at + pair.len();
            at = value.end;
            let offset = self.start + name.start;
            check_label(self.text(index, &name)?, self.text(index, &value)?)
                .map_err(|fault| Malformed { item: index, offset, why: Kind::Label(fault) })?;
        }
        Ok(())
    }

    /// Returns the text of a span. The area as a whole is UTF-8, but a span may cut a character in two.
    fn text(&self, item: Option<u32>, span: &Range<usize>) -> Result<&'a str, Malformed> {
        self.strings.get(span.clone()).ok_or(Malformed {
            item,
            offset: self.start + span.start,
            why: Kind::NotUtf8,
        })
    }

    fn malformed(
        &self,
        index: u32,
        span: &Range<usize>,
        fault: TextFault,
        kind: fn(TextFault) -> Kind,
    ) -> Malformed {
        let inside = match fault {
            TextFault::Control { at } | TextFault::Component { at } => at,
            _ => 0,
        };
        let offset = self.start + span.start + inside;
        Malformed { item: Some(index), offset, why: kind(fault) }
    }
}

pub(super) fn path_span(item: &Item) -> Range<usize> {
    span(item.path_offset.get(), item.path_len.get())
}

pub(super) fn name_span(item: &Item) -> Range<usize> {
    span(item.name_offset.get(), item.name_len.get())
}

fn span(offset: u32, len: u16) -> Range<usize> {
    let start = offset as usize;
    start..start + usize::from(len)
}

/// Returns the fault of the item whose texts contain the first byte that is not UTF-8.
fn not_utf8(items: &[Item], strings_start: usize, at: usize) -> Malformed {
    let after = items.partition_point(|item| path_span(item).start <= at);
    let item = after.checked_sub(1).and_then(|index| u32::try_from(index).ok());
    Malformed { item, offset: strings_start + at, why: Kind::NotUtf8 }
}

fn strings_start(items: &[Item], pairs: &[Pair]) -> usize {
    HEADER_LEN + size_of_val(items) + size_of_val(pairs)
}

fn in_header(offset: usize, why: Kind) -> Malformed {
    Malformed { item: None, offset, why }
}

fn in_item(index: u32, field: usize, why: Kind) -> Malformed {
    Malformed { item: Some(index), offset: HEADER_LEN + index as usize * ITEM_LEN + field, why }
}
