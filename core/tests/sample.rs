//! Which messages are sampled, and what a reader makes of the table.

use std::collections::HashSet;
use std::time::Duration;

use bellwire_core::probes::SamplingMask;
use bellwire_core::sample::Chooser;
use bellwire_core::sim::Sim;
use bellwire_core::wire::{
    ALIGN, PAGE_SIZE, SAMPLE_SIZE, SAMPLE_SLOTS, SAMPLES_AT, Stamps, sample_offset, sample_slot,
};
use bellwire_core::{Instant, OwnMemory, PeerMemory};

const MASK: SamplingMask = SamplingMask::SAMPLES;
const START: Instant = Instant::from_nanos(1 << 50);

/// Sends `count` messages this far apart, and returns which of them were chosen.
fn stream(chooser: &mut Chooser, from: Instant, apart: Duration, count: u32) -> Vec<u32> {
    let chosen = |at: &u32| {
        let now = from.after(apart * *at);
        !chooser.skips(MASK) && chooser.choose(MASK, now)
    };
    (0..count).filter(chosen).collect()
}

#[test]
fn a_fast_stream_is_sampled_at_its_cap() {
    let mut chooser = Chooser::new(7);
    // A second of ten million messages.
    let cap = MASK.cap();
    let chosen = stream(&mut chooser, START, Duration::from_nanos(100), 10_000_000).len() as u64;
    assert!(chosen <= cap.most + cap.most / 50, "{chosen} in a second");
    assert!(chosen >= cap.most / 2, "{chosen} in a second");
}

#[test]
fn calls_that_take_as_long_as_a_sample_are_sampled_seldom() {
    let mut chooser = Chooser::new(7);
    // A second of 50 000 messages: 5 000 would be each tenth of them.
    let chosen = stream(&mut chooser, START, Duration::from_micros(20), 50_000).len();
    assert!(chosen > 1_300 && chosen < 1_700, "{chosen} of 50 000");
    let mut chooser = Chooser::new(7);
    let few = MASK.cap().few;
    let chosen = stream(&mut chooser, START, Duration::from_micros(200), 5_000).len() as u64;
    assert!(chosen > few / 2 && chosen < few + few / 10, "{chosen} of 5 000");
}

#[test]
fn who_asks_for_more_gets_it_whatever_their_share() {
    let mut chooser = Chooser::new(7);
    let high = |at: &u32| {
        let now = START.after(Duration::from_micros(40) * *at);
        !chooser.skips(SamplingMask::SAMPLES_50000)
            && chooser.choose(SamplingMask::SAMPLES_50000, now)
    };
    assert_eq!((0..25_000).filter(high).count(), 25_000);
}

#[test]
fn a_slow_stream_is_sampled_whole() {
    let mut chooser = Chooser::new(7);
    let chosen = stream(&mut chooser, START, Duration::from_millis(1), 1_000);
    assert_eq!(chosen.len(), 1_000);
}

#[test]
fn a_cap_without_limit_samples_every_message() {
    let mut chooser = Chooser::new(7);
    let every = |at: u64| {
        let now = START.after(Duration::from_nanos(at * 100));
        !chooser.skips(SamplingMask::ALL) && chooser.choose(SamplingMask::ALL, now)
    };
    assert!((0..1_000_000).all(every));
}

#[test]
fn no_place_in_a_batch_is_preferred() {
    const BATCH: usize = 8;
    let mut chooser = Chooser::new(7);
    let mut places = [0_u32; BATCH];
    for at in stream(&mut chooser, START, Duration::from_nanos(500), 4_000_000) {
        places[at as usize % BATCH] += 1;
    }
    let total: u32 = places.iter().sum();
    for place in places {
        // Each has an eighth of some 10 000; a step that divides the batch would give one of them all.
        assert!(place > total / 12 && place < total / 6, "{places:?}");
    }
}

#[test]
fn after_a_pause_a_slow_stream_is_sampled_soon() {
    let mut chooser = Chooser::new(7);
    stream(&mut chooser, START, Duration::from_nanos(20), 50_000_000);
    let later = START.after(Duration::from_secs(2));
    // A sender this slow sleeps between two messages.
    let chosen = (0..100).filter(|at| {
        let now = later.after(Duration::from_millis(*at));
        chooser.paused(now);
        !chooser.skips(MASK) && chooser.choose(MASK, now)
    });
    assert!(chosen.count() > 80);
}

#[test]
fn a_tracer_that_wants_more_gets_the_next_message() {
    let mut chooser = Chooser::new(7);
    stream(&mut chooser, START, Duration::from_nanos(20), 50_000_000);
    let later = START.after(Duration::from_secs(2));
    assert!(!chooser.skips(SamplingMask::ALL) && chooser.choose(SamplingMask::ALL, later));
}

#[test]
fn an_entry_tells_of_its_own_message_only() {
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
    assert!(SAMPLES_AT.is_multiple_of(ALIGN));
}

#[test]
fn what_one_end_notes_the_other_finds() {
    let [writer, reader] = Sim::default().ends();
    for slot in 0..SAMPLE_SLOTS {
        let entry = Stamps { sent: 1, published: slot as u64 + 1 }.entry(16);
        writer.own().stamp(slot, entry);
        assert_eq!(reader.peer().stamped(slot), entry);
        assert_eq!(reader.peer().stamped_end(slot), 16);
    }
}
