//! Updates of an index: by the next snapshot, and by what changed in it.

use super::*;

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
fn an_update_finds_all_added_and_removed_cgroups() {
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
fn an_update_refuses_an_id_that_an_unchanged_cgroup_has() {
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
fn applied_changes_give_the_index_of_a_full_validation() {
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
        let delta = index.delta(&bytes).unwrap();
        assert!(delta.len() < bytes.len() / 20);
        assert!(index.apply_delta(&delta));
        assert!(index.to_bytes() == bytes, "round {round}");
        assert!(!index.apply_delta(&delta), "it leads from the one before");
        assert!(index.strings.len() < index.texts_len * 2, "what is gone takes no memory for ever");
        assert!(index.pairs.len() < index.pair_count * 2, "nor do their labels");
        assert!(index.rows.len() <= 1_040, "{}", index.rows.len());
        assert_same(&index, &Index::validate(&bytes).unwrap());
    }
}

#[test]
fn deltas_that_break_a_rule_are_refused_and_change_nothing() {
    let old = [item(1, "/a", "x"), item(2, "/c", "x"), item(3, "/e", "y"), item(4, "/g", "z")];
    let new = [item(1, "/a", "x"), item(5, "/b", "x"), item(3, "/e", "y"), item(4, "/g", "z")];
    let index = Index::validate(&encode(&old, META).unwrap()).unwrap();
    let good = index.delta(&encode(&new, META).unwrap()).unwrap();
    let (item, place, gone) = (HEADER_LEN, HEADER_LEN + ITEM_LEN, HEADER_LEN + ITEM_LEN + 4);
    let (path, hash) = (gone + 4, item + offset_of!(Item, name_hash));
    let with = |at: usize, bytes: &[u8]| {
        let mut delta = good.clone();
        delta[at..at + bytes.len()].copy_from_slice(bytes);
        let mut updated = index.clone();
        let is_applied = updated.apply_delta(&delta);
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
        assert!(!index.clone().apply_delta(&good[..len]), "{len} bytes");
    }
}

#[test]
fn an_update_refuses_cgroups_out_of_order() {
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
