//! Labels and hierarchies.

use super::*;

#[test]
fn labels_and_hierarchies_round_trip() {
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
