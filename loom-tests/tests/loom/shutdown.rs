//! The Close record, against a peer that is about to sleep.

use bellwire_core::lane::PushError;
use bellwire_core::wire::Kind;
use bellwire_loom_tests::{Session, Sleep, check, check_both};
use loom::thread;

/// Unbounded; the peer parks for data.
#[test]
fn a_close_wakes_a_peer_that_waits_for_data() {
    check_both(None, |sleep| {
        let (mut closing, mut waiting) = Session::ends(128, sleep);
        let thread = thread::spawn(move || closing.close());
        assert_eq!(waiting.receive().kind, Kind::Close);
        thread.join().unwrap();
    });
}

/// Preemption bound 4; one message, then the Close record, each committed.
#[test]
fn a_close_comes_after_what_was_sent_before_it() {
    check_both(Some(4), |sleep| {
        let (mut closing, mut waiting) = Session::ends(128, sleep);
        let thread = thread::spawn(move || {
            closing.send(1, 16);
            closing.close();
        });
        assert_eq!(waiting.receive().id, 1);
        assert_eq!(waiting.receive().kind, Kind::Close);
        thread.join().unwrap();
    });
}

/// Unbounded; the peer's own lane is full and will not be read: it parks for space, and the Close record wakes it all
/// the same.
#[test]
fn a_close_wakes_a_peer_that_waits_for_space() {
    check_both(None, |sleep| {
        let (mut closing, mut waiting) = Session::ends(128, sleep);
        waiting.publish(1..=3, 16);
        let thread = thread::spawn(move || closing.close());
        let close = loop {
            if let Some(record) = waiting.take() {
                break record;
            }
            assert!(matches!(waiting.push(4, 16), Err(PushError::Full { .. })));
            waiting.sleep(true);
        };
        assert_eq!(close.kind, Kind::Close);
        thread.join().unwrap();
    });
}

/// Unbounded; a full lane still has room for its Close record, also while the peer takes from it.
#[test]
fn a_full_lane_has_room_for_its_close() {
    check(None, || {
        let (mut closing, mut waiting) = Session::ends(128, Sleep::Futex);
        closing.publish(1..=3, 16);
        let thread = thread::spawn(move || closing.close());
        waiting.receives(1..=3);
        assert_eq!(waiting.receive().kind, Kind::Close);
        thread.join().unwrap();
    });
}

/// Unbounded; one message, then the Close record: an end that sees the page closed has both, without waiting.
#[test]
fn a_closed_page_is_seen_after_every_record() {
    check(None, || {
        let (mut closing, mut waiting) = Session::ends(128, Sleep::Futex);
        let thread = thread::spawn(move || {
            closing.push(1, 16).unwrap();
            closing.close();
        });
        if waiting.is_closed() {
            assert_eq!(waiting.take().map(|record| record.id), Some(1));
            assert_eq!(waiting.take().map(|record| record.kind), Some(Kind::Close));
        }
        thread.join().unwrap();
        assert!(waiting.is_closed());
    });
}
