//! The memory of a session that an observer maps: a page of each end, with arbitrary contents.

use bellwire_core::ServiceName;
use bellwire_core::wire::{
    CloseReason, Counter, Counters, Doorbell, LATENCY_BUCKETS, PAGE_SIZE, Role, SeenPage,
};

use crate::script::Script;

/// Parses the pages of two ends, compares each with a second implementation of docs/wire.md, and computes from both.
///
/// The input consists of pieces of pages: two bytes select the page and the word, then come the length and the bytes. All
/// other bytes of the pages are zero.
pub fn run(input: &[u8]) {
    let script = Script::new(input);
    let mut pages = [[0; PAGE_SIZE]; 2];
    while !script.is_over() {
        let place = script.u16();
        let at = usize::from(place) % (PAGE_SIZE / 8) * 8;
        let page = &mut pages[usize::from(place >> 15)];
        for (to, from) in page[at..].iter_mut().zip(script.sized()) {
            *to = *from;
        }
    }
    if let [Some(one), Some(other)] = pages.each_ref().map(seen) {
        for (one, other) in [(&one, &other), (&other, &one)] {
            assert_eq!(one.in_use(other), one.tail.saturating_sub(other.head));
        }
        if let (Some(one), Some(other)) = (one.counters, other.counters) {
            let _ = (one.latency.since(&other.latency), one.latency.and(&other.latency));
        }
    }
}

fn seen(page: &[u8; PAGE_SIZE]) -> Option<SeenPage> {
    let word = |at: usize| u64::from_le_bytes(*page[at..].first_chunk().unwrap());
    let (layout, role) = (word(0x08) as u32, word(0x08) >> 32);
    let name = ServiceName::from_field(page[0x28..].first_chunk().unwrap());
    let is_page = page.starts_with(b"BWPAGE\r\n") && layout == 1 && matches!(role, 1 | 2);
    let seen = SeenPage::parse(page);
    assert_eq!(seen.is_some(), is_page && name.is_ok());
    let found = seen.as_ref()?;
    assert_eq!(found.role, if role == 1 { Role::Client } else { Role::Server });
    assert_eq!(Ok(found.service), name);
    assert_eq!((found.session, found.created), (word(0x10), word(0x20)));
    assert_eq!(found.pid, word(0x18) as u32);
    assert_eq!((found.tail, found.head), (word(0x80), word(0x100)));
    assert_eq!(found.sleeps, word(0x180) != u64::MAX);
    assert_eq!(found.closed, closed(word(0x280)));
    let doorbells = [Doorbell::Futex, Doorbell::Eventfd, Doorbell::Socket];
    let wanted = doorbells.into_iter().find(|doorbell| *doorbell as u64 == word(0x288));
    assert_eq!(found.doorbell, wanted);
    assert_eq!((found.rings, found.parks), (word(0x308), word(0x310)));
    assert_eq!(found.counters.is_some(), word(0x400) == 1);
    if let Some(counters) = &found.counters {
        check_counters(counters, word);
    }
    seen
}

/// `None` for an open session, and for a word that no well-behaved end writes.
fn closed(state: u64) -> Option<Option<CloseReason>> {
    let reason = match state >> 32 {
        0 => None,
        1 => Some(CloseReason::Normal),
        2 => Some(CloseReason::Poisoned),
        3 => Some(CloseReason::Stopping),
        4 => Some(CloseReason::Stalled),
        _ => return None,
    };
    (state as u32 == 3).then_some(reason)
}

fn check_counters(counters: &Counters, word: impl Fn(usize) -> u64) {
    for (nth, counter) in Counter::all().enumerate() {
        assert_eq!(counters.of(counter), word(0x408 + 8 * nth), "{counter:?}");
    }
    let [requests, ended @ ..] = [0, 1, 2, 3, 16].map(|nth| word(0x408 + 8 * nth));
    let ended = ended.map(u128::from).iter().sum();
    assert_eq!(u128::from(counters.in_flight()), u128::from(requests).saturating_sub(ended));
    assert_eq!(counters.lane_size(), word(0x480) >> 32);
    for bucket in 0..LATENCY_BUCKETS {
        assert_eq!(counters.latency.0[bucket], word(0x500 + 8 * bucket));
    }
    let quantiles = [0, 500, 990, 1000, u64::MAX].map(|of| counters.latency.quantile(of));
    assert!(quantiles.is_sorted(), "{quantiles:?}");
}
