//! Batches: arbitrary bytes of a message.

use bellwire_core::batch::{BATCH_HEAD, BatchBuilder, BatchView};
use bellwire_core::wire::Status;

/// Parses a batch, compares the result with a second implementation of the rules, and rebuilds a valid batch.
pub fn run(input: &[u8]) {
    let expected = items(input);
    let Ok(view) = BatchView::parse(input) else {
        return assert_eq!(expected, None, "a valid batch is rejected");
    };
    let found: Vec<(Status, &[u8])> = view.iter().map(|item| (item.status, item.bytes)).collect();
    assert_eq!(Some(&found), expected.as_ref());
    assert_eq!(view.len(), found.len());
    let of_items: usize = found.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(BATCH_HEAD + of_items <= input.len());
    assert!(found.len() <= input.len(), "more items than bytes");

    let mut builder = BatchBuilder::new(usize::MAX);
    for (status, bytes) in &found {
        builder.push_with(*status, |into| into.extend_from_slice(bytes)).unwrap();
    }
    let again = builder.finish();
    assert!(again.len() <= input.len(), "the writer uses the shortest form");
    let view = BatchView::parse(again).unwrap();
    assert!(view.iter().map(|item| (item.status, item.bytes)).eq(found));
}

/// A second implementation of the rules of `docs/wire.md` about batches.
fn items(input: &[u8]) -> Option<Vec<(Status, &[u8])>> {
    let word = |at: usize| Some(u32::from_le_bytes(*input.get(at..)?.first_chunk()?));
    let (count, stride, flags, zero) = (word(0)?, word(4)?, word(8)?, word(12)?);
    let (has_ends, has_statuses) = (flags & 1 == 1, flags & 2 == 2);
    if flags > 3 || zero != 0 || (has_ends && stride != 0) {
        return None;
    }
    let count = u128::from(count);
    let tables = count * if has_ends { 4 } else { 0 } + count * u128::from(has_statuses);
    let items_end = (input.len() as u128).checked_sub(tables).filter(|end| *end >= 16)?;
    let of_items = items_end - 16;
    if !has_ends && (of_items != count * u128::from(stride) || (stride == 0 && count > 0)) {
        return None;
    }
    let (count, items) = (count as usize, of_items as usize);
    if has_ends && count == 0 && items != 0 {
        return None;
    }
    let mut found = Vec::new();
    let mut start = 0;
    for item in 0..count {
        let end = match has_ends {
            true => word(16 + items + 4 * item)? as usize,
            false => start + stride as usize,
        };
        let bytes = input.get(16..16 + items)?.get(start..end)?;
        let at_status = input.len() - count + item;
        let code = if has_statuses { *input.get(at_status)? } else { 0 };
        found.push((Status::parse(code.into())?, bytes));
        start = end;
    }
    (start == items).then_some(found)
}
