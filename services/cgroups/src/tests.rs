use core::mem::offset_of;
use core::time::Duration;
use std::time::UNIX_EPOCH;

use proptest::prelude::*;

use super::layout::{Header, Item};
use super::*;

const META: Meta = Meta { scanned_at: UNIX_EPOCH, mode: Mode::Hybrid, skipped: 3 };

fn item(id: u64, path: &str, name: &str) -> CgroupEntry {
    CgroupEntry {
        id,
        name: name.to_owned(),
        path: path.to_owned(),
        options: Options::UNIFIED,
        enabled: true,
        orchestrator: Orchestrator::Systemd,
        labels: Vec::new(),
    }
}

/// Returns three items; in the snapshot they are `/`, `/a.slice`, `/b.slice`.
fn three() -> Vec<CgroupEntry> {
    vec![item(7, "/b.slice", "same"), item(1, "/", "root"), item(9, "/a.slice", "same")]
}

/// Checks a changed snapshot of [`three`].
fn why(change: impl FnOnce(&mut Vec<u8>)) -> Malformed {
    let mut bytes = encode(&three(), META).unwrap();
    change(&mut bytes);
    Index::validate(&bytes).unwrap_err()
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

fn field(index: usize, offset: usize) -> usize {
    HEADER_LEN + index * ITEM_LEN + offset
}

const STRINGS: usize = HEADER_LEN + 3 * ITEM_LEN;

fn assert_fault(found: Malformed, item: Option<u32>, offset: usize, why: MalformedKind) {
    assert_eq!((found.item, found.offset, found.why), (item, offset, why));
}

#[test]
fn what_is_written_is_read() {
    let meta = Meta { scanned_at: UNIX_EPOCH + Duration::from_nanos(123_456_789_012), ..META };
    let index = Index::validate(&encode(&three(), meta).unwrap()).unwrap();
    let view = index.view();
    assert_eq!((view.meta(), view.len(), view.is_empty()), (meta, 3, false));
    assert_eq!((view.scanned_at(), view.mode()), (meta.scanned_at, Mode::Hybrid));
    let mut expected = three();
    expected.sort_by(|a, b| a.path.cmp(&b.path));
    let found: Vec<CgroupEntry> = view.iter().map(CgroupEntry::from).collect();
    assert_eq!(found, expected);
    assert_eq!(view.find_by_id(9).unwrap().path, "/a.slice");
    assert_eq!(view.find_by_path("/").unwrap().id, 1);
    assert_eq!(view.find_by_path("/a"), None);
    assert_eq!(view.find_by_id(0), None);
}

#[test]
fn of_several_cgroups_of_one_name_the_first_by_path_is_found() {
    let index = Index::validate(&encode(&three(), META).unwrap()).unwrap();
    let view = index.view();
    let hash = name_hash("same");
    assert_eq!(view.find_by_name(hash, "same").unwrap().path, "/a.slice");
    let all: Vec<&str> = view.all_named(hash, "same").map(|cgroup| cgroup.path).collect();
    assert_eq!(all, ["/a.slice", "/b.slice"]);
    assert_eq!(view.find_by_name(hash, "other"), None);
    assert_eq!(view.find_by_name(hash ^ 1, "same"), None);
}

#[test]
fn names_that_share_a_hash_are_told_apart() {
    // A published pair of texts with the same 64-bit FNV-1a hash.
    let (a, b) = ("8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ");
    assert_eq!(name_hash(a), name_hash(b));
    let items = [item(1, "/a", a), item(2, "/b", b), item(3, "/c", a)];
    let index = Index::validate(&encode(&items, META).unwrap()).unwrap();
    let view = index.view();
    assert_eq!(view.find_by_name(name_hash(b), b).unwrap().id, 2);
    let ids: Vec<u64> = view.all_named(name_hash(a), a).map(|cgroup| cgroup.id).collect();
    assert_eq!(ids, [1, 3]);
}

#[test]
fn a_snapshot_may_be_empty() {
    let bytes = encode(&[], META).unwrap();
    assert_eq!(bytes.len(), HEADER_LEN);
    let index = Index::validate(&bytes).unwrap();
    assert!(index.view().is_empty());
    assert_eq!(index.view().find_by_path("/"), None);
}

#[test]
fn the_bytes_are_those_of_the_document() {
    let meta =
        Meta { scanned_at: UNIX_EPOCH + Duration::from_nanos(100), mode: Mode::V2, skipped: 2 };
    let bytes = encode(&[item(5, "/x", "foobar")], meta).unwrap();
    let document = include_str!("../../../docs/cgroups-snapshot.md");
    let (_, example) = document.split_once("## Example").unwrap();
    let dump = example.lines().filter(|line| line.len() > 52 && line[..2].ends_with('0'));
    let expected: Vec<u8> = dump
        .flat_map(|line| line[4..52].split_whitespace())
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    assert_eq!(bytes, expected);
}

#[test]
fn the_order_of_the_items_does_not_change_the_bytes() {
    let mut reversed = three();
    reversed.reverse();
    assert_eq!(encode(&three(), META).unwrap(), encode(&reversed, META).unwrap());
}

#[test]
fn the_same_content_at_another_time_is_the_same() {
    let later = Meta { scanned_at: UNIX_EPOCH + Duration::from_secs(9), ..META };
    let a = encode(&three(), META).unwrap();
    let b = encode(&three(), later).unwrap();
    assert_ne!(a, b);
    assert!(same_content(&a, &b));
    let other = encode(&three()[1..], META).unwrap();
    assert!(!same_content(&a, &other));
    for at in (0..a.len()).filter(|at| !(0x10..0x18).contains(at)) {
        let mut changed = a.clone();
        changed[at] ^= 1;
        assert!(!same_content(&a, &changed), "byte {at}");
    }
    assert!(!same_content(&a, &[]));
    assert!(same_content(&[], &[]));
}

#[test]
fn a_writer_writes_in_place_and_no_further() {
    let writer_items = three();
    let writer = SnapshotWriter::new(&writer_items).unwrap();
    let len = encoded_len(&writer_items);
    let mut out = vec![0xaa; len + 5];
    assert_eq!(writer.write_to(META, &mut out), Ok(len));
    assert_eq!(writer.encoded_len(), len);
    assert_eq!(out[..len], encode(&writer_items, META).unwrap());
    assert_eq!(out[len..], [0xaa; 5]);
    let mut small = vec![0xaa; len - 1];
    let no_room = EncodeError::NoRoom { needed: len, room: len - 1 };
    assert_eq!(encode_into(&writer_items, META, &mut small), Err(no_room));
    assert!(small.iter().all(|byte| *byte == 0xaa));
}

#[test]
fn a_writer_refuses_what_a_reader_would() {
    let refused = |items: &[CgroupEntry]| encode(items, META).unwrap_err();
    let (a, b) = (item(1, "/a", "a"), item(2, "/b", "b"));
    let same_path = [a.clone(), CgroupEntry { path: "/a".to_owned(), ..b.clone() }];
    assert_eq!(refused(&same_path), EncodeError::DuplicatePath { path: "/a".to_owned() });
    let same_id = [a.clone(), CgroupEntry { id: 1, ..b.clone() }];
    assert_eq!(refused(&same_id), EncodeError::DuplicateId { id: 1 });
    assert_eq!(refused(&[item(0, "/a", "a")]), EncodeError::ZeroId { path: "/a".to_owned() });
    assert!(matches!(refused(&[item(1, "a", "a")]), EncodeError::Path { .. }));
    assert!(matches!(refused(&[item(1, "/a", "")]), EncodeError::Name { .. }));
    assert!(matches!(refused(&[item(1, "/a", "\x1b[31m")]), EncodeError::Name { .. }));
    let many: Vec<_> = (0..=MAX_ITEMS as u64).map(|_| item(1, "/", "n")).collect();
    assert_eq!(refused(&many), EncodeError::TooManyItems { count: MAX_ITEMS + 1 });
}

#[test]
fn a_short_snapshot_is_refused() {
    let found = Index::validate(&[0; HEADER_LEN - 1]).unwrap_err();
    assert_fault(found, None, 0, MalformedKind::Short { len: HEADER_LEN - 1 });
}

#[test]
fn another_magic_layout_or_mode_is_refused() {
    assert_fault(why(|bytes| bytes[0] = b'X'), None, 0, MalformedKind::Magic);
    assert_fault(why(|bytes| bytes[8] = 2), None, 8, MalformedKind::Layout { found: 2 });
    assert_fault(why(|bytes| bytes[0x34] = 4), None, 0x34, MalformedKind::Mode { found: 4 });
    assert_fault(why(|bytes| bytes[0x34] = 0), None, 0x34, MalformedKind::Mode { found: 0 });
}

#[test]
fn a_length_that_is_not_the_snapshots_is_refused() {
    let len = encoded_len(&three());
    let said = u32::try_from(len).unwrap();
    let longer = why(|bytes| bytes.push(0));
    assert_fault(longer, None, 0x0c, MalformedKind::Length { said, len: len + 1 });
    let shorter = why(|bytes| bytes.truncate(len - 1));
    assert_fault(shorter, None, 0x0c, MalformedKind::Length { said, len: len - 1 });
}

#[test]
fn an_item_count_that_does_not_fit_is_refused_before_anything_is_allocated() {
    for count in [u32::MAX, 1_000_001, 1_000_000, 5] {
        let found = why(|bytes| put(bytes, 0x18, count.to_le_bytes()));
        assert_fault(found, None, 0x18, MalformedKind::ItemCount { count });
    }
}

#[test]
fn header_fields_that_disagree_are_refused() {
    for (at, name) in [
        (0x1c, "item_len"),
        (0x20, "items_offset"),
        (0x24, "strings_offset"),
        (0x28, "strings_len"),
    ] {
        let found = why(|bytes| bytes[at] ^= 1);
        assert_eq!((found.item, found.offset), (None, at));
        assert!(matches!(found.why, MalformedKind::Geometry { field, .. } if field == name));
    }
}

#[test]
fn reserved_bytes_must_be_zero() {
    // No item has labels, and no hierarchy is there.
    for at in offset_of!(Header, reserved)..HEADER_LEN {
        assert_fault(why(|bytes| bytes[at] = 1), None, at, MalformedKind::Reserved);
    }
    for at in (offset_of!(Item, reserved)..ITEM_LEN).map(|at| field(1, at)) {
        assert_fault(why(|bytes| bytes[at] = 1), Some(1), at, MalformedKind::Reserved);
    }
}

#[test]
fn texts_that_overlap_leave_a_gap_or_run_over_are_refused() {
    let at = field(1, offset_of!(Item, path_offset));
    let overlap = why(|bytes| put(bytes, at, 0u32.to_le_bytes()));
    assert_fault(overlap, Some(1), at, MalformedKind::Offset { found: 0, expected: 5 });
    let far = why(|bytes| put(bytes, at, u32::MAX.to_le_bytes()));
    assert_fault(far, Some(1), at, MalformedKind::Offset { found: u32::MAX, expected: 5 });
    let at = field(0, offset_of!(Item, name_offset));
    let gap = why(|bytes| put(bytes, at, 2u32.to_le_bytes()));
    assert_fault(gap, Some(0), at, MalformedKind::Offset { found: 2, expected: 1 });
    let at = field(2, offset_of!(Item, name_len));
    let long = why(|bytes| put(bytes, at, u16::MAX.to_le_bytes()));
    assert_fault(long, Some(2), at, MalformedKind::PastEnd { len: u16::MAX });
    let by_one = why(|bytes| put(bytes, at, 5u16.to_le_bytes()));
    assert_fault(by_one, Some(2), at, MalformedKind::PastEnd { len: 5 });
    let short = why(|bytes| put(bytes, at, 3u16.to_le_bytes()));
    assert_fault(short, None, STRINGS + 28, MalformedKind::Leftover { extra: 1 });
}

#[test]
fn text_that_is_not_utf8_is_refused_with_its_item() {
    let found = why(|bytes| bytes[STRINGS + 7] = 0xff);
    assert_fault(found, Some(1), STRINGS + 7, MalformedKind::NotUtf8);
    // A character cut in two by the end of a path.
    let cut = encode(&[item(1, "/é", "n")], META).map(|mut bytes| {
        put(&mut bytes, field(0, offset_of!(Item, path_len)), 2u16.to_le_bytes());
        put(&mut bytes, field(0, offset_of!(Item, name_offset)), 2u32.to_le_bytes());
        put(&mut bytes, field(0, offset_of!(Item, name_len)), 2u16.to_le_bytes());
        Index::validate(&bytes).unwrap_err()
    });
    assert_eq!(cut.unwrap().why, MalformedKind::NotUtf8);
}

#[test]
fn texts_that_break_a_rule_are_refused() {
    let (path, name) = (STRINGS + 5, STRINGS + 13);
    let control = why(|bytes| bytes[path + 2] = 0x1b);
    let fault = MalformedKind::Path(TextFault::Control { at: 2 });
    assert_fault(control, Some(1), path + 2, fault);
    let up = why(|bytes| put(bytes, path, *b"/../etcs"));
    assert_fault(up, Some(1), path + 1, MalformedKind::Path(TextFault::Component { at: 1 }));
    let relative = why(|bytes| bytes[path] = b'a');
    assert_fault(relative, Some(1), path, MalformedKind::Path(TextFault::NotAbsolute));
    let control = why(|bytes| bytes[name + 3] = b'\n');
    let fault = MalformedKind::Name(TextFault::Control { at: 3 });
    assert_fault(control, Some(1), name + 3, fault);
    let empty = why(|bytes| {
        put(bytes, field(1, offset_of!(Item, path_len)), 12u16.to_le_bytes());
        put(bytes, field(1, offset_of!(Item, name_offset)), 17u32.to_le_bytes());
        put(bytes, field(1, offset_of!(Item, name_len)), 0u16.to_le_bytes());
    });
    assert_fault(empty, Some(1), STRINGS + 17, MalformedKind::Name(TextFault::Empty));
}

#[test]
fn paths_out_of_order_or_twice_are_refused() {
    let at = field(2, offset_of!(Item, path_offset));
    let twice = why(|bytes| bytes[STRINGS + 18] = b'a');
    assert_fault(twice, Some(2), at, MalformedKind::PathOrder);
    let descending = why(|bytes| bytes[STRINGS + 18] = b'A');
    assert_fault(descending, Some(2), at, MalformedKind::PathOrder);
}

#[test]
fn a_hash_that_is_not_the_names_is_refused() {
    let at = field(1, offset_of!(Item, name_hash));
    let expected = name_hash("same");
    let found = why(|bytes| bytes[at] ^= 1);
    assert_fault(found, Some(1), at, MalformedKind::NameHash { found: expected ^ 1, expected });
}

#[test]
fn an_id_that_is_zero_or_anothers_is_refused() {
    let at = field(2, offset_of!(Item, id));
    assert_fault(why(|bytes| bytes[at] = 0), Some(2), at, MalformedKind::ZeroId);
    let found = why(|bytes| bytes[at] = 9);
    assert_fault(found, Some(2), at, MalformedKind::DuplicateId { id: 9, other: 1 });
}

#[test]
fn unknown_options_enabled_and_orchestrators_are_refused() {
    let at = field(0, offset_of!(Item, options));
    let found = why(|bytes| put(bytes, at, 0x202u32.to_le_bytes()));
    assert_fault(found, Some(0), at, MalformedKind::Options { found: 0x202 });
    let at = field(0, offset_of!(Item, enabled));
    assert_fault(why(|bytes| bytes[at] = 2), Some(0), at, MalformedKind::Enabled { found: 2 });
    let at = field(0, offset_of!(Item, orchestrator));
    let found = why(|bytes| bytes[at] = 10);
    assert_fault(found, Some(0), at, MalformedKind::Orchestrator { found: 10 });
}

#[test]
fn a_fault_says_where_it_is() {
    let text = why(|bytes| bytes[field(2, offset_of!(Item, id))] = 0).to_string();
    assert_eq!(text, "malformed cgroups snapshot at byte 160, item 2: the id is 0");
}

fn labelled() -> Vec<CgroupEntry> {
    let mut items = three();
    items[0].labels = vec![("image".into(), "a/b:1".into()), ("empty".into(), String::new())];
    items[1].labels = vec![("é".into(), "x".repeat(MAX_VALUE))];
    items
}

fn mounted() -> [Hierarchy; 2] {
    let one = |name: &str, root: &str| Hierarchy { name: name.into(), root: root.into() };
    [one("unified", "/sys/fs/cgroup/unified"), one("cpu,cpuacct", "")]
}

fn encode_mounted(items: &[CgroupEntry]) -> Vec<u8> {
    let hierarchies = mounted();
    let writer = SnapshotWriter::with_hierarchies(items, &hierarchies).unwrap();
    let mut bytes = vec![0; writer.encoded_len()];
    assert_eq!(writer.write_to(META, &mut bytes), Ok(bytes.len()));
    bytes
}

#[test]
fn labels_and_hierarchies_come_back() {
    let mut items = labelled();
    items[1].options |= Options::SECONDARY;
    items[1].id |= 1 << 56;
    let index = Index::validate(&encode_mounted(&items)).unwrap();
    let view = index.view();
    let names: Vec<_> = view.hierarchies().collect();
    assert_eq!(names, [("unified", "/sys/fs/cgroup/unified"), ("cpu,cpuacct", "")]);
    let [root, a, b] = ["/", "/a.slice", "/b.slice"].map(|path| view.find_by_path(path).unwrap());
    assert_eq!(view.root_of(&a), Some("/sys/fs/cgroup/unified"));
    assert_eq!(view.root_of(&root), None, "its hierarchy's root is not known");
    assert_eq!(b.labels.iter().collect::<Vec<_>>(), [("image", "a/b:1"), ("empty", "")]);
    assert_eq!((b.labels.value("image"), b.labels.value("other")), (Some("a/b:1"), None));
    assert_eq!((a.labels.len(), a.labels.is_empty(), root.labels.len()), (0, true, 1));
    for item in &items {
        assert_eq!(view.find_by_id(item.id), Some(item.as_cgroup()));
    }
    let plain = Index::validate(&encode(&items, META).unwrap()).unwrap();
    assert_eq!((plain.view().hierarchies().count(), plain.view().root_of(&a)), (0, None));
}

#[test]
fn labels_that_change_are_seen_by_an_update() {
    let mut items = labelled();
    let mut index = Index::validate(&encode_mounted(&items)).unwrap();
    for change in 0..4 {
        match change {
            0 => items[0].labels[1].1 = "full".into(),
            1 => items[2].labels.push(("new".into(), "one".into())),
            2 => items[0].labels.clear(),
            // Moves a byte from a label's name to its value: the same texts.
            _ => items[1].labels = vec![("n".into(), "ew".into()), ("x".into(), "y".into())],
        }
        let bytes = encode_mounted(&items);
        index.update(&bytes).unwrap();
        assert_same(&index, &Index::validate(&bytes).unwrap());
    }
    items[1].labels[0] = ("ne".into(), "w".into());
    let bytes = encode_mounted(&items);
    index.update(&bytes).unwrap();
    assert_same(&index, &Index::validate(&bytes).unwrap());
    let bytes = encode(&items, META).unwrap();
    index.update(&bytes).unwrap();
    assert_same(&index, &Index::validate(&bytes).unwrap());
}

#[test]
fn a_hierarchy_that_is_mounted_elsewhere_is_seen_by_an_update() {
    let mut bytes = encode_mounted(&labelled());
    let mut index = Index::validate(&bytes).unwrap();
    let root = bytes.windows(8).position(|text| text == b"/unified").unwrap();
    bytes[root] = b'-';
    index.update(&bytes).unwrap();
    assert_same(&index, &Index::validate(&bytes).unwrap());
    assert_eq!(index.view().hierarchies().next().unwrap().1, "/sys/fs/cgroup-unified");
}

#[test]
fn a_label_that_ends_within_a_character_is_refused_by_an_update_too() {
    let mut items: Vec<_> = (1..100).map(|id| item(id, &format!("/x{id:03}"), "x")).collect();
    let old = encode(&items, META).unwrap();
    items.push(item(100, "/y", "y"));
    items[99].labels.push(("a".into(), "é".into()));
    let mut bytes = encode(&items, META).unwrap();
    let pair = HEADER_LEN + items.len() * ITEM_LEN;
    put(&mut bytes, pair, [2, 0, 1, 0]);
    let mut index = Index::validate(&old).unwrap();
    let fault = index.update(&bytes).unwrap_err();
    assert_eq!((fault, fault.why), (Index::validate(&bytes).unwrap_err(), MalformedKind::NotUtf8));
}

#[test]
fn labels_that_break_a_rule_are_neither_written_nor_read() {
    let labels = |labels: Vec<(String, String)>| {
        let mut items = three();
        items[0].labels = labels;
        encode(&items, META).unwrap_err()
    };
    let one = |name: &str, value: &str| labels(vec![(name.into(), value.into())]);
    assert!(matches!(one("", "x"), EncodeError::Label { fault: TextFault::Empty, .. }));
    assert!(matches!(
        one("x", "a\nb"),
        EncodeError::Label { fault: TextFault::Control { at: 1 }, .. }
    ));
    let long = one("x", &"x".repeat(MAX_VALUE + 1));
    assert!(matches!(long, EncodeError::Label { fault: TextFault::TooLong { .. }, .. }));
    let many = labels(vec![("x".into(), "y".into()); MAX_LABELS + 1]);
    assert!(matches!(many, EncodeError::TooManyLabels { count: 256, .. }));

    let good = encode_mounted(&labelled());
    let why = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Index::validate(&bytes).unwrap_err().why
    };
    // One label more or less than there are pairs.
    let count = offset_of!(Header, pair_count);
    assert!(matches!(why(count, 4), MalformedKind::Geometry { field: "strings_offset", .. }));
    assert!(matches!(why(count + 3, 9), MalformedKind::PairCount { .. }));
    let labels = field(2, offset_of!(Item, labels));
    assert!(matches!(why(labels, 1), MalformedKind::PairCount { found: 5, expected: 4 }));
    let roots = offset_of!(Header, hierarchies);
    assert!(matches!(why(roots, 1), MalformedKind::PairCount { found: 5, expected: 4 }));
    // The lengths of the first hierarchy, and of the last label, which is that of "/b.slice".
    let last = STRINGS + 4 * layout::PAIR_LEN;
    assert!(matches!(why(STRINGS + 1, 0xff), MalformedKind::PastEnd { .. }));
    assert!(matches!(why(last, 6), MalformedKind::PastEnd { .. }));
    assert!(matches!(why(last, 4), MalformedKind::Leftover { extra: 1 }));
    assert!(matches!(why(good.len() - 1, 1), MalformedKind::Label(TextFault::Control { at: 4 })));
    assert!(matches!(why(good.len() - 1, 0xff), MalformedKind::NotUtf8));
}

#[test]
fn synthetic_cgroups_make_a_snapshot() {
    let items = synthetic::entries(2_000, 42);
    let index = Index::validate(&encode(&items, META).unwrap()).unwrap();
    assert_consistent(index.view());
    for item in &items {
        assert_eq!(index.view().find_by_path(&item.path), Some(item.as_cgroup()));
    }
    assert!(items.iter().all(|item| (24..=200).contains(&item.path.len())));
}

#[test]
fn cgroups_that_come_and_go_among_many_are_all_found() {
    let mut items = synthetic::entries(1_000, 7);
    let others = synthetic::entries(1_400, 7).split_off(1_000);
    let mut index = Index::validate(&encode(&items, META).unwrap()).unwrap();
    for (round, come) in others.chunks(40).enumerate() {
        let every = items.len() / come.len();
        let gone = items.iter_mut().skip(round).step_by(every);
        gone.zip(come).for_each(|(gone, come)| *gone = come.clone());
        items.truncate(items.len() - round);
        let bytes = encode(&items, META).unwrap();
        index.update(&bytes).unwrap();
        assert_same(&index, &Index::validate(&bytes).unwrap());
    }
}

#[test]
fn an_id_that_another_cgroup_keeps_does_not_come_a_second_time() {
    let items = synthetic::entries(100, 7);
    let mut index = Index::validate(&encode(&items, META).unwrap()).unwrap();
    let mut bytes = encode(&items, META).unwrap();
    let (first, last) = (index.view().iter().next().unwrap().id, field(99, offset_of!(Item, id)));
    put(&mut bytes, last, first.to_le_bytes());
    let fault = index.update(&bytes).unwrap_err();
    assert_eq!(fault, Index::validate(&bytes).unwrap_err());
    assert!(matches!(fault.why, MalformedKind::DuplicateId { .. }), "{fault:?}");
    assert_same(&index, &Index::validate(&encode(&items, META).unwrap()).unwrap());
}

#[test]
fn changes_lead_to_what_validating_the_snapshot_leads_to() {
    let mut all = synthetic::entries(1_800, 7);
    for item in all.iter_mut().step_by(3) {
        item.labels = vec![("image".into(), item.path.clone()), ("empty".into(), String::new())];
    }
    let others = all.split_off(1_000);
    let mut items = all;
    let mounted = [Hierarchy { name: "unified".into(), root: "/sys/fs/cgroup".into() }];
    let encode = |items: &[CgroupEntry], meta| {
        let writer = SnapshotWriter::with_hierarchies(items, &mounted).unwrap();
        let mut bytes = vec![0; writer.encoded_len()];
        writer.write_to(meta, &mut bytes).unwrap();
        bytes
    };
    let mut index = Index::validate(&encode(&items, META)).unwrap();
    for (round, come) in others.chunks(20).enumerate() {
        let gone = items.iter_mut().skip(round % 50).step_by(50);
        gone.zip(come).for_each(|(gone, come)| *gone = come.clone());
        if round % 3 == 0 {
            items.truncate(items.len() - 1);
        }
        let later = Meta { scanned_at: UNIX_EPOCH + Duration::from_secs(round as u64), ..META };
        let bytes = encode(&items, later);
        let changes = index.changes(&bytes).unwrap();
        assert!(changes.len() < bytes.len() / 20);
        assert!(index.update_by(&changes));
        assert!(index.to_bytes() == bytes, "round {round}");
        assert!(!index.update_by(&changes), "they are those of the one before");
        assert!(index.strings.len() < index.texts_len * 2, "what is gone takes no memory for ever");
        assert!(index.pairs.len() < index.pair_count * 2, "nor do their labels");
        assert!(index.rows.len() <= 1_040, "{}", index.rows.len());
        assert_same(&index, &Index::validate(&bytes).unwrap());
    }
}

#[test]
fn changes_that_break_a_rule_are_refused_and_change_nothing() {
    let old = [item(1, "/a", "x"), item(2, "/c", "x"), item(3, "/e", "y"), item(4, "/g", "z")];
    let new = [item(1, "/a", "x"), item(5, "/b", "x"), item(3, "/e", "y"), item(4, "/g", "z")];
    let index = Index::validate(&encode(&old, META).unwrap()).unwrap();
    let good = index.changes(&encode(&new, META).unwrap()).unwrap();
    let (item, place, gone) = (HEADER_LEN, HEADER_LEN + ITEM_LEN, HEADER_LEN + ITEM_LEN + 4);
    let (path, hash) = (gone + 4, item + offset_of!(Item, name_hash));
    let with = |at: usize, bytes: &[u8]| {
        let mut changes = good.clone();
        changes[at..at + bytes.len()].copy_from_slice(bytes);
        let mut updated = index.clone();
        let is_applied = updated.update_by(&changes);
        assert_same(&updated, if is_applied { &updated } else { &index });
        is_applied
    };
    assert!(with(path, b"/b"));
    assert!(with(path, b"/d"), "the provider may say so: it is valid, too");
    for (at, bytes, what) in [
        (0, &b"X"[..], "magic"),
        (8, &[2], "layout"),
        (0x0c, &[1], "length"),
        (0x18, &[1], "the snapshot before, by its time"),
        (0x20, &[3], "the snapshot before, by its length"),
        (0x24, &[2], "added"),
        (0x28, &[2], "removed"),
        (0x30, &[1], "labels"),
        (0x34, &[9], "mode"),
        (0x35, &[1], "reserved"),
        (item, &[3], "an id that stays"),
        (item, &[0], "no id"),
        (hash, &[0], "the hash of the name"),
        (item + offset_of!(Item, reserved), &[1], "reserved in an item"),
        (item + offset_of!(Item, path_offset), &[1], "where the path is"),
        (place, &[0], "before one that is lower"),
        (place, &[2], "after one that is higher"),
        (place, &[4], "behind the end"),
        (place, &[0xff; 4], "far behind the end"),
        (gone, &[4], "removed, and was not there"),
        (path, b"/e", "a path that is there"),
        (path, b"/h", "a path that belongs elsewhere"),
        (path, b"bb", "not absolute"),
        (path, b"/\xff", "not UTF-8"),
        (path + 2, b"\n", "a control character"),
    ] {
        assert!(!with(at, bytes), "{what}");
    }
    // An id of a row that is removed may come again.
    assert!(with(item, &[2]));
    for len in 0..good.len() {
        assert!(!index.clone().update_by(&good[..len]), "{len} bytes");
    }
}

/// Asserts that every look-up of a cgroup finds the same one.
fn assert_consistent(view: View<'_>) {
    assert_eq!(view.iter().count(), view.len());
    assert!(view.iter().rev().zip(view.iter().rev().skip(1)).all(|(b, a)| a.path < b.path));
    for cgroup in view {
        assert_eq!(cgroup.name_hash, name_hash(cgroup.name));
        assert_eq!(check_path(cgroup.path), Ok(()));
        assert_eq!(check_name(cgroup.name), Ok(()));
        assert_eq!(view.find_by_path(cgroup.path), Some(cgroup));
        assert_eq!(view.find_by_id(cgroup.id), Some(cgroup));
        let named: Vec<_> = view.all_named(cgroup.name_hash, cgroup.name).collect();
        assert!(named.contains(&cgroup));
        assert!(named.iter().all(|other| other.name == cgroup.name));
        assert!(named.iter().zip(named.iter().skip(1)).all(|(a, b)| a.path < b.path));
        assert_eq!(view.find_by_name(cgroup.name_hash, cgroup.name), named.first().copied());
    }
}

fn any_labels() -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::vec(("[a-c€]{1,2}", "[x/é]{0,3}"), 0..4)
}

prop_compose! {
    fn any_items()(rows in prop::collection::btree_map(
        "(/[a-z.é][a-z0-9_\\\\é-]{2,12}){1,3}",
        (1..u64::MAX, "[a-e€ ]{1,3}", 0u32..=0x1ff, any::<bool>(), 0u8..10, any_labels()),
        0..20,
    )) -> Vec<CgroupEntry> {
        let mut items: Vec<_> = rows
            .into_iter()
            .map(|(path, (id, name, options, enabled, orchestrator, labels))| CgroupEntry {
                id,
                name,
                path,
                options: Options::from_bits(options).unwrap(),
                enabled,
                orchestrator: Orchestrator::from_code(orchestrator).unwrap(),
                labels,
            })
            .collect();
        items.sort_by_key(|item| item.id);
        items.dedup_by_key(|item| item.id);
        items
    }
}

#[test]
fn cgroups_that_come_out_of_order_are_refused() {
    let items: Vec<_> = (0..100).map(|id| item(id + 1, &format!("/x{id:03}"), "same")).collect();
    let old: Vec<_> = items.iter().filter(|item| item.id / 2 != 25).cloned().collect();
    let mut bytes = encode(&items, META).unwrap();
    let at = |bytes: &[u8], path: &[u8]| bytes.windows(5).position(|text| text == path).unwrap();
    let (one, other) = (at(&bytes, b"/x049"), at(&bytes, b"/x050"));
    put(&mut bytes, one, *b"/x050");
    put(&mut bytes, other, *b"/x049");
    let mut index = Index::validate(&encode(&old, META).unwrap()).unwrap();
    let fault = index.update(&bytes).unwrap_err();
    assert_eq!(
        (fault, fault.why),
        (Index::validate(&bytes).unwrap_err(), MalformedKind::PathOrder)
    );
}

/// Asserts that both hold the same and are consistent.
fn assert_same(index: &Index, other: &Index) {
    let tables = |index: &Index| (index.by_path.len(), index.by_id.len(), index.by_name.len());
    assert_eq!(tables(index), tables(other));
    assert_consistent(index.view());
    assert_eq!(index.view().meta(), other.view().meta());
    assert!(index.view().hierarchies().eq(other.view().hierarchies()));
    assert!(index.view().iter().eq(other.view().iter()));
    for cgroup in other.view() {
        let named = |index: &Index| -> Vec<String> {
            index
                .view()
                .all_named(cgroup.name_hash, cgroup.name)
                .map(|one| one.path.into())
                .collect()
        };
        assert_eq!(named(index), named(other));
    }
}

/// Returns some of `old`, changed or not, and some of `new`.
fn mixed(old: &[CgroupEntry], new: &[CgroupEntry], mix: &[u8]) -> Vec<CgroupEntry> {
    let mut items = Vec::new();
    let mut mix = mix.iter().cycle();
    for item in old {
        let mut item = item.clone();
        match mix.next().unwrap() {
            0 => continue,
            1 => item.id ^= 1 << 40,
            2 => item.name = "a".into(),
            3 => item.name.push('é'),
            4 => item.path.push('x'),
            5 => item.options = Options::NESTED,
            6 => item.enabled = !item.enabled,
            7 => item.orchestrator = Orchestrator::Lxc,
            8 => item.labels.push(("é".into(), "".into())),
            9 => item.labels.clear(),
            _ => {}
        }
        items.push(item);
    }
    items.extend(new.iter().filter(|_| *mix.next().unwrap() == 0).cloned());
    items.sort_by(|a, b| a.path.cmp(&b.path));
    items.dedup_by(|a, b| a.path == b.path);
    items.sort_by_key(|item| item.id);
    items.dedup_by_key(|item| item.id);
    items
}

proptest! {
    #[test]
    fn any_items_round_trip(mut items in any_items(), nanos: u64, skipped: u32) {
        let scanned_at = UNIX_EPOCH + Duration::from_nanos(nanos);
        let meta = Meta { scanned_at, mode: Mode::V1, skipped };
        let bytes = encode(&items, meta).unwrap();
        prop_assert_eq!(bytes.len(), encoded_len(&items));
        let index = Index::validate(&bytes).unwrap();
        assert_consistent(index.view());
        prop_assert_eq!(index.view().meta(), meta);
        items.sort_by(|a, b| a.path.cmp(&b.path));
        let found: Vec<CgroupEntry> = index.view().iter().map(CgroupEntry::from).collect();
        prop_assert_eq!(found, items);
    }

    #[test]
    fn a_changed_byte_is_refused_or_leaves_a_sound_snapshot(
        items in any_items(), at: prop::sample::Index, value: u8,
    ) {
        let mut bytes = encode(&items, META).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = value;
        if let Ok(index) = Index::validate(&bytes) {
            assert_consistent(index.view());
        }
    }

    #[test]
    fn a_truncated_snapshot_is_refused(items in any_items(), at: prop::sample::Index) {
        let bytes = encode(&items, META).unwrap();
        let at = at.index(bytes.len());
        prop_assert!(Index::validate(&bytes[..at]).is_err());
    }

    #[test]
    fn any_bytes_after_a_good_header_are_refused_or_sound(
        items in any_items(), noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = encode(&items, META).unwrap();
        let len = bytes.len();
        for (at, value) in noise {
            bytes[at.index(len)] = value;
        }
        match Index::validate(&bytes) {
            Ok(index) => assert_consistent(index.view()),
            Err(fault) => prop_assert!(fault.offset <= len),
        }
    }

    #[test]
    fn an_index_that_is_updated_is_that_of_the_new_snapshot(
        old in any_items(), new in any_items(), mix in prop::collection::vec(0_u8..14, 60),
    ) {
        let mut index = Index::validate(&encode(&old, META).unwrap()).unwrap();
        let mut items = old;
        // Twice, so that an updated index is updated again.
        for mix in mix.chunks(30) {
            items = mixed(&items, &new, mix);
            let bytes = encode(&items, META).unwrap();
            let told = index.changes(&bytes);
            let mut other = index.clone();
            index.update(&bytes).unwrap();
            let whole = Index::validate(&bytes).unwrap();
            assert_same(&index, &whole);
            if let Some(told) = told {
                prop_assert!(other.update_by(&told));
                prop_assert!(other.to_bytes() == bytes);
                assert_same(&other, &whole);
                index = other;
            }
        }
    }

    #[test]
    fn any_changes_are_refused_or_lead_to_a_sound_snapshot(
        old in any_items(), new in any_items(), mix in prop::collection::vec(0_u8..40, 30),
        noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut index = Index::validate(&encode(&old, META).unwrap()).unwrap();
        let before = index.clone();
        let Some(mut told) = index.changes(&encode(&mixed(&old, &new, &mix), META).unwrap()) else {
            return Ok(());
        };
        let len = told.len();
        for (at, value) in noise {
            told[at.index(len)] = value;
        }
        if index.update_by(&told) {
            assert_same(&index, &Index::validate(&index.to_bytes()).unwrap());
        } else {
            assert_same(&index, &before);
        }
    }

    #[test]
    fn an_update_finds_what_validating_as_a_whole_finds_and_keeps_the_old_index_then(
        items in any_items(), noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encode(&items, META).unwrap();
        let old = Index::validate(&bytes).unwrap();
        let mut index = old.clone();
        let len = bytes.len();
        for (at, value) in noise {
            bytes[at.index(len)] = value;
        }
        match (index.update(&bytes), Index::validate(&bytes)) {
            (Ok(()), Ok(whole)) => assert_same(&index, &whole),
            (Err(fault), Err(whole)) => {
                prop_assert_eq!(fault, whole);
                assert_same(&index, &old);
            }
            (updated, whole) => prop_assert!(false, "{updated:?}, and as a whole {whole:?}"),
        }
    }
}
