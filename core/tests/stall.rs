//! A peer that does not read.

use std::time::Duration;

use bellwire_core::sync::Ordering;
use bellwire_core::{Instant, OwnMemory, PeerFault, StallDetector, StallStatus, Word};

use crate::pair::{Pair, growing};
use crate::ring::Ends;

const LIMIT: Duration = Duration::from_secs(10);

fn at(seconds: u64) -> Instant {
    Instant::from_nanos(seconds * 1_000_000_000)
}

/// Looks from the end that sends, which is number 0.
fn check(pair: &mut Pair, detector: &mut StallDetector, now: Instant) -> StallStatus {
    detector.check(&mut pair.lanes[0], pair.ends[0].peer(), now, LIMIT).unwrap()
}

fn send(pair: &mut Pair, id: u64) {
    pair.publish(0, id, 100);
}

fn take(pair: &mut Pair) {
    pair.take(1).unwrap();
    let _ = pair.commit(1);
}

#[test]
fn a_peer_that_has_nothing_to_take_is_waited_for_without_end() {
    let (mut pair, mut detector) = (Pair::new(growing()), StallDetector::default());
    for now in [0, 100, 100_000] {
        assert_eq!(check(&mut pair, &mut detector, at(now)), StallStatus::CaughtUp);
    }
    send(&mut pair, 1);
    take(&mut pair);
    for now in [100_001, 200_000] {
        assert_eq!(check(&mut pair, &mut detector, at(now)), StallStatus::CaughtUp);
    }
}

#[test]
fn a_peer_that_takes_nothing_has_the_limit_from_the_first_check_and_no_longer() {
    let (mut pair, mut detector) = (Pair::new(growing()), StallDetector::default());
    send(&mut pair, 1);
    assert_eq!(check(&mut pair, &mut detector, at(5)), StallStatus::CheckAt(at(15)));
    // Records sent meanwhile do not extend its time.
    send(&mut pair, 2);
    assert_eq!(check(&mut pair, &mut detector, at(14)), StallStatus::CheckAt(at(15)));
    assert_eq!(check(&mut pair, &mut detector, at(15)), StallStatus::Stalled);
    assert_eq!(check(&mut pair, &mut detector, at(99)), StallStatus::Stalled);
}

#[test]
fn a_peer_that_takes_one_record_has_the_limit_anew() {
    let (mut pair, mut detector) = (Pair::new(growing()), StallDetector::default());
    (1..=3).for_each(|id| send(&mut pair, id));
    assert_eq!(check(&mut pair, &mut detector, at(0)), StallStatus::CheckAt(at(10)));
    take(&mut pair);
    assert_eq!(check(&mut pair, &mut detector, at(9)), StallStatus::CheckAt(at(19)));
    take(&mut pair);
    assert_eq!(check(&mut pair, &mut detector, at(18)), StallStatus::CheckAt(at(28)));
    assert_eq!(check(&mut pair, &mut detector, at(28)), StallStatus::Stalled);
    take(&mut pair);
    assert_eq!(check(&mut pair, &mut detector, at(29)), StallStatus::CaughtUp);
}

#[test]
fn a_peer_that_sends_and_takes_nothing_has_no_more_time_than_one_that_is_stopped() {
    let (mut pair, mut detector) = (Pair::new(growing()), StallDetector::default());
    send(&mut pair, 1);
    assert_eq!(check(&mut pair, &mut detector, at(0)), StallStatus::CheckAt(at(10)));
    pair.publish(1, 1, 100);
    pair.take(0).unwrap();
    let _ = pair.commit(0);
    assert_eq!(check(&mut pair, &mut detector, at(10)), StallStatus::Stalled);
}

#[test]
fn a_switch_that_is_not_followed_counts_as_stalled_too() {
    let (mut pair, mut detector) = (Pair::new(growing()), StallDetector::default());
    let larger = pair.epoch(0).size.doubled();
    pair.grow(0, larger).unwrap();
    let _ = pair.commit(0);
    assert_eq!(check(&mut pair, &mut detector, at(0)), StallStatus::CheckAt(at(10)));
    assert_eq!(check(&mut pair, &mut detector, at(10)), StallStatus::Stalled);
}

#[test]
fn an_invalid_head_is_reported() {
    let mut ends = Ends::new(4096);
    ends.push(1, b"some").unwrap();
    ends.publish();
    let Ends { ends, sender, .. } = &mut ends;
    // The receiver's Head is above what was published.
    let [own, rogue] = &*ends;
    rogue.own().store(Word::Head, 4096, Ordering::Release);
    let checked = StallDetector::default().check(sender, own.peer(), at(0), LIMIT);
    assert!(matches!(checked, Err(PeerFault::HeadTooFar { head: 4096, .. })), "{checked:?}");
}
