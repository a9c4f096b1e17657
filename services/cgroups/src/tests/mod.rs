//! What is written is read, and the bytes are those of the document.

mod faults;
mod labels;
mod properties;
mod updates;

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
fn a_written_snapshot_is_read_back() {
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
fn names_that_share_a_hash_are_distinguished() {
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
    let document = include_str!("../../../../docs/cgroups-snapshot.md");
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
fn a_writer_refuses_items_that_a_reader_refuses() {
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
