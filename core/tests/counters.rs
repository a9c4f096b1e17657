//! What a calling end counts and times, and what an observer reads of it.

use std::cell::RefCell;
use std::collections::HashMap;

use bellwire_core::counters::{CallCounters, Outcome, TIMED_ONE_IN};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{
    COUNTERS_AT, COUNTERS_LAYOUT, Counter, LATENCY_BUCKETS, Latency, PAGE_SIZE, PageHeader, Role,
    SeenPage, Status,
};
use bellwire_core::{Instant, OwnMemory, ServiceName, Word};
use zerocopy::IntoBytes;

/// A page that records the stores to it.
#[derive(Default)]
struct Page(RefCell<HashMap<usize, u64>>);

impl OwnMemory for Page {
    fn store(&self, word: Word, value: u64, _: Ordering) {
        self.export_counter(word.offset(), value);
    }

    fn write(&self, _: usize, _: &[u8]) {}

    fn export_counter(&self, offset: usize, value: u64) {
        self.0.borrow_mut().insert(offset, value);
    }
}

impl Page {
    fn bytes(&self) -> [u8; PAGE_SIZE] {
        let header =
            PageHeader::new(Role::Client, 7, 12, 4096, 99, ServiceName::constant("a-service"));
        let mut bytes = [0; PAGE_SIZE];
        bytes[..header.as_bytes().len()].copy_from_slice(header.as_bytes());
        for (offset, value) in &*self.0.borrow() {
            bytes[*offset..offset + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

#[test]
fn each_outcome_is_counted_once_and_exported() {
    let (page, mut calls) = (Page::default(), CallCounters::default());
    let outcomes = [
        Outcome::Answered,
        Outcome::Refused,
        Outcome::Error,
        Outcome::Late,
        Outcome::Unused,
        Outcome::Failed,
        Outcome::Answered,
    ];
    for (id, outcome) in (1..).zip(outcomes) {
        calls.sent(&page, id, 0, || at(id));
        calls.ended(&page, id, outcome, || at(id));
    }
    calls.sent(&page, 8, 0, || at(8));
    calls.unsent(&page);
    calls.dropped(&page, 2);
    let counts = calls.counts();
    assert_eq!((counts.made, counts.answered, counts.refused, counts.failed), (8, 2, 1, 4));
    assert_eq!((counts.errors, counts.late, counts.dropped, counts.unsent), (1, 1, 3, 1));
    page.export_counter(COUNTERS_AT, COUNTERS_LAYOUT);
    let seen = SeenPage::parse(&page.bytes()).unwrap();
    let counted = seen.counters.unwrap();
    let of = [Counter::Requests, Counter::Answered, Counter::Refused, Counter::Failed];
    assert_eq!(of.map(|counter| counted.of(counter)), [8, 2, 1, 4]);
    let of = [Counter::Errors, Counter::Late, Counter::Dropped, Counter::Unsent];
    assert_eq!(of.map(|counter| counted.of(counter)), [1, 1, 3, 1]);
    assert_eq!(counted.in_flight(), 1);
    assert_eq!(counted.latency, calls.latency());
    assert_eq!((seen.role, seen.session, seen.pid, seen.created), (Role::Client, 7, 12, 99));
    assert_eq!(seen.service.as_str(), "a-service");
}

#[test]
fn every_status_is_an_outcome() {
    let statuses = (0..10).map(|code| Status::parse(code).unwrap());
    let outcomes: Vec<Outcome> = statuses.map(Outcome::from).collect();
    let (ok, error, refused) = (Outcome::Answered, Outcome::Error, Outcome::Refused);
    let expected = [ok, error, refused, refused, refused, refused, error, error, refused, error];
    assert_eq!(outcomes, expected);
}

#[test]
fn counters_are_read_only_from_a_valid_page_that_has_them() {
    let page = Page::default();
    assert_eq!(SeenPage::parse(&page.bytes()).unwrap().counters, None);
    page.export_counter(COUNTERS_AT, COUNTERS_LAYOUT + 1);
    assert_eq!(SeenPage::parse(&page.bytes()).unwrap().counters, None, "of another layout");
    for (offset, value) in [(0, 0), (8, 2), (12, 3), (0x28, 0)] {
        let mut bytes = page.bytes();
        bytes[offset] = value;
        assert_eq!(SeenPage::parse(&bytes), None, "byte {offset:#x}");
    }
}

/// An observer reads whatever an owner writes, without a panic.
#[test]
fn a_page_of_any_content_is_read_without_a_panic() {
    let page = Page::default();
    for counter in Counter::all() {
        page.export_counter(counter.offset(), u64::MAX);
    }
    for bucket in 0..LATENCY_BUCKETS {
        page.export_counter(Latency::offset(bucket), u64::MAX);
    }
    page.export_counter(COUNTERS_AT, COUNTERS_LAYOUT);
    let seen = SeenPage::parse(&page.bytes()).unwrap();
    let counters = seen.counters.unwrap();
    assert_eq!((counters.in_flight(), counters.lane_size()), (0, u64::from(u32::MAX)));
    let latency = counters.latency;
    let _ = (latency.count(), latency.and(&latency), latency.since(&latency));
    assert!(latency.quantile(0).is_some() && latency.quantile(5000).is_some());
    assert_eq!(seen.in_use(&seen), 0);
}

#[test]
fn buckets_are_contiguous_and_contain_their_bounds() {
    assert_eq!((Latency::bucket(0), Latency::bucket(79), Latency::bucket(80)), (0, 0, 1));
    assert_eq!(Latency::bucket(u64::MAX), LATENCY_BUCKETS - 1);
    assert_eq!(Latency::upper(LATENCY_BUCKETS - 1), 1 << 30);
    for bucket in 0..LATENCY_BUCKETS - 1 {
        let upper = Latency::upper(bucket);
        assert_eq!((Latency::bucket(upper - 1), Latency::bucket(upper)), (bucket, bucket + 1));
        let next = Latency::upper(bucket + 1);
        assert!(next > upper && next * 4 <= upper * 5, "{upper} to {next}");
    }
}

#[test]
fn quantiles_are_rounded_up_by_a_quarter_at_most() {
    let mut latency = Latency::default();
    assert_eq!(latency.quantile(500), None);
    for nanos in 1..=1000_u64 {
        latency.0[Latency::bucket(nanos * 1000)] += 1;
    }
    for per_mille in [10, 500, 990, 1000] {
        let (exact, counted) = (per_mille * 1000, latency.quantile(per_mille).unwrap());
        assert!(counted >= exact && counted * 4 <= exact * 5, "{per_mille}: {counted} for {exact}");
    }
    let later = latency.and(&latency);
    assert_eq!(later.since(&latency), latency);
    assert_eq!(latency.since(&later), latency, "what went back is another session's");
}

/// A session that sleeps at every fourth call: those after a sleep take long. The timed calls contain their true
/// share.
#[test]
fn calls_after_a_sleep_are_not_timed_more_than_their_share() {
    const CALLS: u64 = 400_000;
    let (page, mut calls) = (Page::default(), CallCounters::default());
    let (mut now, mut parks, mut reads) = (0_u64, 0, 0_u64);
    for id in 1..=CALLS {
        let is_slow = id % 4 == 0;
        parks += u64::from(is_slow);
        let begun = now;
        calls.sent(&page, id, parks, || at(begun));
        now += if is_slow { 50_000 } else { 200 };
        calls.ended(&page, id, Outcome::Answered, || {
            reads += 1;
            at(now)
        });
    }
    let latency = calls.latency();
    let (counted, slow) = (latency.count(), latency.0[Latency::bucket(50_000)]);
    let near =
        |counted: u64, wanted: u64| counted * 20 >= wanted * 19 && counted * 20 <= wanted * 21;
    assert!(near(counted, CALLS), "{counted} of {CALLS}");
    assert!(near(slow, CALLS / 4), "{slow} of {}", CALLS / 4);
    // Each slow one, and one in 64 of the others.
    let few = CALLS / 4 + CALLS * 3 / 4 / TIMED_ONE_IN;
    assert!(near(reads, few), "{reads} of {few}");
}

#[test]
fn an_abandoned_call_is_not_timed() {
    let (page, mut calls) = (Page::default(), CallCounters::default());
    for outcome in [Outcome::Late, Outcome::Failed, Outcome::Unused] {
        calls.sent(&page, 1, 0, || at(0));
        calls.ended(&page, 1, outcome, || at(1_000_000));
    }
    assert_eq!(calls.latency(), Latency::default());
    // Another request's end does not stop the clock.
    calls.sent(&page, 2, 1, || at(0));
    calls.ended(&page, 1, Outcome::Answered, || at(5));
    assert_eq!(calls.latency().count(), 0);
    calls.ended(&page, 2, Outcome::Refused, || at(5));
    assert_eq!(calls.latency().count(), 1);
}
