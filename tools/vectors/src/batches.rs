//! Batches.

use bellwire_core::batch::{BatchBuilder, BatchView};
use bellwire_core::wire::Status;

use crate::text::{Case, hex, unhex, variant};

/// Items with their statuses.
type Items<'a> = &'a [(Status, &'a [u8])];

pub fn valid() -> Vec<Case> {
    let batches: [(&str, Items<'_>); 6] = [
        ("none", &[]),
        ("of-one-length", &[(Status::Ok, &[1; 8]), (Status::Ok, &[2; 8])]),
        ("of-two-lengths", &[(Status::Ok, b"a"), (Status::Ok, b"bc")]),
        ("with-an-empty-item", &[(Status::Ok, b""), (Status::Ok, b"abc")]),
        (
            "with-a-failed-item",
            &[(Status::Ok, b"a"), (Status::Failed, b"why"), (Status::Busy, b"")],
        ),
        ("all-stopping", &[(Status::Stopping, b""), (Status::Stopping, b"")]),
    ];
    let case = |(name, items): (&str, Items<'_>)| {
        let mut batch = BatchBuilder::new(1000);
        for (status, item) in items {
            batch.push_with(*status, |into| into.extend_from_slice(item)).unwrap();
        }
        let mut case = Case::new(name);
        for (status, item) in items {
            case.push("item", format_args!("{} {}", *status as u8, hex(item)));
        }
        case.bytes("bytes", batch.finish())
    };
    batches.into_iter().map(case).collect()
}

pub fn run(case: &Case) {
    let bytes = case.all("bytes");
    let view = BatchView::parse(&bytes).unwrap();
    let items: Vec<_> = view.iter().map(|item| (item.status as u8, item.bytes.to_vec())).collect();
    let said = case.lines.iter().filter(|(key, _)| key == "item").map(|(_, value)| {
        let (status, bytes) = value.split_once(' ').unwrap();
        (status.parse().unwrap(), unhex(bytes))
    });
    assert_eq!(items, said.collect::<Vec<_>>(), "{}", case.name);
}

pub fn bad() -> Vec<Case> {
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let with_ends = |head: &[u32; 4], items: &[u8], ends: &[u32]| {
        [&words(head)[..], items, &words(ends)].concat()
    };
    let cases = [
        ("nothing", "NoHead", Vec::new()),
        ("fifteen-bytes", "NoHead", vec![0; 15]),
        ("unknown-flags", "Head", words(&[0, 0, 4, 0])),
        ("reserved", "Head", words(&[0, 0, 0, 1])),
        ("stride-and-ends", "Head", words(&[1, 4, 1, 0, 0, 4])),
        ("items-of-no-length", "Length", words(&[3, 0, 0, 0])),
        ("an-item-too-few", "Length", words(&[2, 4, 0, 0, 1])),
        ("an-item-too-many", "Length", words(&[1, 4, 0, 0, 1, 2])),
        ("more-items-than-bytes", "Length", words(&[u32::MAX, 0, 3, 0])),
        ("ends-that-decrease", "End", with_ends(&[2, 0, 1, 0], b"abcd", &[3, 2])),
        ("an-end-behind-the-items", "End", with_ends(&[1, 0, 1, 0], b"abcd", &[5])),
        ("bytes-between-items-and-ends", "End", with_ends(&[1, 0, 1, 0], b"abcd", &[3])),
        ("unknown-status", "Status", [&words(&[1, 4, 2, 0, 1])[..], &[10]].concat()),
    ];
    let case = |(name, fault, bytes): (&str, &str, Vec<u8>)| {
        Case::new(name).with("fault", fault).bytes("bytes", &bytes)
    };
    cases.into_iter().map(case).collect()
}

pub fn run_bad(case: &Case) {
    let fault = variant(BatchView::parse(&case.all("bytes")).unwrap_err());
    assert_eq!(case.get("fault"), Some(fault.as_str()), "{}", case.name);
}
