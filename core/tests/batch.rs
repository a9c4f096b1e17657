use bellwire_core::batch::{BATCH_HEAD, BatchBuilder, BatchView, Item, ItemTooLarge};
use bellwire_core::wire::Status;
use proptest::prelude::*;

fn batch(items: &[(Status, &[u8])]) -> Vec<u8> {
    let mut batch = BatchBuilder::new(1 << 20);
    for (status, bytes) in items {
        batch.push_with(*status, |into| into.extend_from_slice(bytes)).unwrap();
    }
    batch.finish().to_vec()
}

fn items(bytes: &[u8]) -> Vec<Item<'_>> {
    BatchView::parse(bytes).unwrap().iter().collect()
}

#[test]
fn items_of_one_length_need_no_table() {
    let bytes = batch(&[(Status::Ok, b"one"), (Status::Ok, b"two")]);
    assert_eq!(bytes.len(), BATCH_HEAD + 6);
    let read: Vec<_> = items(&bytes).iter().map(|item| item.bytes).collect();
    assert_eq!(read, [b"one", b"two"]);
}

#[test]
fn a_batch_may_be_empty_and_so_may_its_items() {
    assert!(items(&batch(&[])).is_empty());
    assert_eq!(items(&batch(&[(Status::Ok, b""), (Status::Ok, b"")])).len(), 2);
}

#[test]
fn an_item_that_is_too_large_fails_alone() {
    let mut batch = BatchBuilder::new(BATCH_HEAD + 9);
    let mut push = |bytes: &[u8]| batch.push(|into| into.extend_from_slice(bytes));
    push(b"abc").unwrap();
    push(b"def").unwrap();
    let refused = push(b"ghij").unwrap_err();
    assert_eq!(refused, ItemTooLarge { len: BATCH_HEAD + 10 + 12, limit: BATCH_HEAD + 9 });
    push(b"ghi").unwrap();
    let bytes = batch.finish();
    assert_eq!(bytes.len(), BATCH_HEAD + 9);
    assert_eq!(
        items(bytes).iter().map(|item| item.bytes).collect::<Vec<_>>(),
        [b"abc", b"def", b"ghi"]
    );
}

#[test]
fn a_failed_item_that_does_not_fit_leaves_no_status_behind() {
    let mut batch = BatchBuilder::new(BATCH_HEAD + 3);
    batch.push(|into| into.extend_from_slice(b"abc")).unwrap();
    batch.push_with(Status::Failed, |into| into.extend_from_slice(b"no")).unwrap_err();
    assert!(BatchView::parse(batch.finish()).unwrap().is_ok());
}

#[test]
fn an_item_that_does_not_fit_can_be_replaced_by_an_empty_one() {
    let mut batch = BatchBuilder::new(0);
    assert!(!batch.begin(3, BATCH_HEAD + 14));
    assert!(batch.begin(3, BATCH_HEAD + 15 + 6));
    batch.push(|into| into.extend_from_slice(b"abc")).unwrap();
    batch.push(|into| into.extend_from_slice(b"defg")).unwrap_err();
    batch.push_with(Status::TooLarge, |_| {}).unwrap();
    batch.push(|into| into.extend_from_slice(b"hij")).unwrap();
    let mut bytes = Vec::new();
    batch.finish_into(&mut bytes);
    assert_eq!(bytes.len(), BATCH_HEAD + 15 + 6);
    let read: Vec<_> = items(&bytes).iter().map(|item| (item.status, item.bytes)).collect();
    assert_eq!(read, [(Status::Ok, &b"abc"[..]), (Status::TooLarge, b""), (Status::Ok, b"hij")]);
}

#[test]
fn a_cleared_builder_begins_anew() {
    let mut batch = BatchBuilder::new(1024);
    batch.push_with(Status::Failed, |into| into.extend_from_slice(b"a")).unwrap();
    batch.push(|into| into.extend_from_slice(b"bc")).unwrap();
    batch.finish();
    batch.clear();
    batch.push(|into| into.extend_from_slice(b"d")).unwrap();
    assert_eq!(items(batch.finish()), [Item { status: Status::Ok, bytes: b"d" }]);
}

fn any_status() -> impl Strategy<Value = Status> {
    (0_u16..10).prop_map(|code| Status::parse(code).unwrap())
}

proptest! {
    #[test]
    fn batch_items_round_trip(
        contents in prop::collection::vec((any_status(), prop::collection::vec(any::<u8>(), 0..40)), 0..60),
    ) {
        let contents: Vec<_> = contents.iter().map(|(status, bytes)| (*status, &bytes[..])).collect();
        let bytes = batch(&contents);
        let read: Vec<_> = items(&bytes).iter().map(|item| (item.status, item.bytes)).collect();
        prop_assert_eq!(read, contents);
    }

    #[test]
    fn no_limit_is_exceeded_and_accepted_items_round_trip(
        limit in BATCH_HEAD..300,
        contents in prop::collection::vec((any_status(), prop::collection::vec(any::<u8>(), 0..40)), 0..60),
    ) {
        let mut batch = BatchBuilder::new(limit);
        let mut taken = Vec::new();
        for (status, bytes) in &contents {
            if batch.push_with(*status, |into| into.extend_from_slice(bytes)).is_ok() {
                taken.push((*status, &bytes[..]));
            }
        }
        let len = batch.encoded_len();
        let bytes = batch.finish();
        prop_assert!(bytes.len() <= limit);
        prop_assert_eq!(bytes.len(), len);
        let read: Vec<_> = items(bytes).iter().map(|item| (item.status, item.bytes)).collect();
        prop_assert_eq!(read, taken);
    }
}

/// Adds items of these bytes in one go. How many were added.
fn extend(batch: &mut BatchBuilder, items: &[[u8; 3]]) -> usize {
    batch.extend(3, items.len(), |room| {
        room.chunks_exact_mut(3).zip(items).map(|(into, item)| into.copy_from_slice(item)).count()
    })
}

#[test]
fn items_that_are_added_together_are_those_that_were_added_alone() {
    let together = [*b"one", *b"two", *b"six"];
    let mut batch = BatchBuilder::new(1 << 20);
    assert_eq!(extend(&mut batch, &together), 3);
    assert_eq!(extend(&mut batch, &[]), 0);
    batch.push(|into| into.extend_from_slice(b"ten")).unwrap();
    assert_eq!(extend(&mut batch, &[*b"abc"]), 1);
    assert_eq!(batch.len(), 5);
    let read: Vec<_> = items(batch.finish()).iter().map(|item| item.bytes.to_vec()).collect();
    assert_eq!(read, [b"one", b"two", b"six", b"ten", b"abc"]);
}

#[test]
fn no_more_items_are_added_together_than_fit() {
    let mut batch = BatchBuilder::new(BATCH_HEAD + 7);
    assert_eq!(extend(&mut batch, &[*b"one", *b"two", *b"six"]), 2);
    assert_eq!(extend(&mut batch, &[*b"six"]), 0);
    batch.push(|into| into.extend_from_slice(b"six")).unwrap_err();
    assert_eq!(batch.finish().len(), BATCH_HEAD + 6);
    // Of a batch with a promise only what leaves room for empty items and their tables.
    assert!(batch.begin(4, BATCH_HEAD + 4 * 5 + 7));
    assert_eq!(extend(&mut batch, &[*b"one", *b"two", *b"six"]), 2);
    for _ in 0..2 {
        batch.push_with(Status::TooLarge, |_| {}).unwrap();
    }
    assert_eq!(items(batch.finish()).len(), 4);
}

#[test]
fn items_of_other_lengths_or_with_a_status_keep_others_from_being_added_together() {
    let firsts: [fn(&mut BatchBuilder); 3] = [
        |batch| batch.push(|into| into.extend_from_slice(b"four")).unwrap(),
        |batch| batch.push(|_| {}).unwrap(),
        |batch| batch.push_with(Status::Failed, |into| into.extend_from_slice(b"why")).unwrap(),
    ];
    for first in firsts {
        let mut batch = BatchBuilder::new(1 << 20);
        first(&mut batch);
        assert_eq!(extend(&mut batch, &[*b"one"]), 0);
        assert_eq!(items(batch.finish()).len(), 1);
    }
    let mut batch = BatchBuilder::new(1 << 20);
    assert_eq!(batch.extend(0, 5, |_| 5), 0);
    assert_eq!(batch.extend(3, 5, |_| 0), 0, "whoever has fewer says so");
    assert_eq!(extend(&mut batch, &[*b"one"]), 1);
    assert_eq!(items(batch.finish()).len(), 1);
}

#[test]
fn only_items_of_one_length_that_are_all_ok_are_read_together() {
    let even = |bytes: &[u8]| BatchView::parse(bytes).unwrap().even().map(|(_, len)| len);
    assert_eq!(even(&batch(&[(Status::Ok, b"one"), (Status::Ok, b"two")])), Some(3));
    assert_eq!(even(&batch(&[(Status::Ok, b"one"), (Status::Ok, b"four")])), None);
    assert_eq!(even(&batch(&[(Status::Ok, b"one"), (Status::Failed, b"why")])), None);
    assert_eq!(even(&batch(&[(Status::Ok, b"")])), None);
    assert_eq!(even(&batch(&[])), None);
}
