//! Each rule of the document that a snapshot breaks is found, and where.

use super::*;

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
fn a_fault_has_its_position_and_item() {
    let text = why(|bytes| bytes[field(2, offset_of!(Item, id))] = 0).to_string();
    assert_eq!(text, "malformed cgroups snapshot at byte 160, item 2: the id is 0");
}
