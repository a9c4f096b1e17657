//! What a reader makes of the table of samples.

use std::collections::HashSet;

use bellwire_core::wire::{
    ALIGN, PAGE_SIZE, SAMPLE_SIZE, SAMPLE_SLOTS, SAMPLES_AT, Stamps, sample_offset, sample_slot,
};
use bellwire_core::{OwnMemory, PeerMemory};
use bellwire_sim::Sim;

#[test]
fn an_entry_is_of_its_own_message_only() {
    let stamps = Stamps { sent: 100, published: 130 };
    let entry = stamps.entry(4096);
    assert_eq!(Stamps::parse(entry, 4096), Some(stamps));
    assert_eq!(Stamps::parse(entry, 8192), None);
    assert_eq!(Stamps::parse([0; 4], 0), None);
}

#[test]
fn an_entry_that_is_being_overwritten_is_none() {
    let (old, new) = (Stamps { sent: 100, published: 130 }, Stamps { sent: 200, published: 260 });
    // The same end in a later round of positions does not exist: the words of two entries are mixed all the same.
    for mixed in 1..15_u32 {
        let pick = |word: usize| {
            let from = if mixed >> word & 1 == 0 { old } else { new };
            from.entry(4096)[word]
        };
        let entry = [0, 1, 2, 3].map(pick);
        if entry != old.entry(4096) && entry != new.entry(4096) {
            assert_eq!(Stamps::parse(entry, 4096), None, "{mixed:04b}");
        }
    }
}

#[test]
fn a_message_that_was_published_before_it_was_sent_is_none() {
    let entry = Stamps { sent: 131, published: 130 }.entry(4096);
    assert_eq!(Stamps::parse(entry, 4096), None);
}

#[test]
fn the_table_ends_with_the_page_and_records_of_one_length_use_all_of_it() {
    assert_eq!(sample_offset(SAMPLE_SLOTS - 1) + SAMPLE_SIZE, PAGE_SIZE);
    assert_eq!(sample_offset(0), SAMPLES_AT);
    for record in [32, 64, 80, 1040, 8208] {
        let ends = (1..=8 * SAMPLE_SLOTS as u64).map(|at| at * record);
        let slots: HashSet<_> = ends.map(sample_slot).collect();
        assert!(slots.iter().all(|slot| *slot < SAMPLE_SLOTS));
        assert!(slots.len() > SAMPLE_SLOTS * 3 / 4, "{record}: {} slots", slots.len());
    }
    const { assert!(SAMPLES_AT % ALIGN == 0) };
}

#[test]
fn each_end_finds_the_samples_of_the_other() {
    let [writer, reader] = Sim::default().ends();
    for slot in 0..SAMPLE_SLOTS {
        let entry = Stamps { sent: 1, published: slot as u64 + 1 }.entry(16);
        writer.own().stamp(slot, entry);
        assert_eq!(reader.peer().stamped(slot), entry);
        assert_eq!(reader.peer().stamped_end(slot), 16);
    }
}
