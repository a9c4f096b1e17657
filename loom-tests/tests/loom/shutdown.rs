//! The Close record, against a peer that is about to sleep.

use bellwire_core::Executed;
use bellwire_core::drive::CallFailed;
use bellwire_core::wire::CloseReason;
use bellwire_loom_tests::{Session, Sleep, check, check_both};
use loom::thread;

const CLOSED: CallFailed = CallFailed::Closed(CloseReason::Normal, Executed::Maybe);

/// Unbounded; the client parks for data.
#[test]
fn a_close_wakes_a_peer_that_waits_for_data() {
    check_both(None, |sleep| {
        let (mut client, mut server) = Session::open(128, sleep);
        let thread = thread::spawn(move || server.close());
        assert_eq!(client.wait(), Err(CLOSED));
        thread.join().unwrap();
    });
}

/// Preemption bound 4; one answer, then the Close record, each committed.
#[test]
fn a_close_arrives_after_earlier_records() {
    check_both(Some(4), |sleep| {
        let (mut client, mut server) = Session::open(128, sleep);
        client.send(0);
        let thread = thread::spawn(move || {
            server.serve(1, 16);
            server.close();
        });
        client.waits(1..=1, 16);
        assert_eq!(client.wait(), Err(CLOSED));
        thread.join().unwrap();
    });
}

/// Unbounded; the client's own lane is full and will not be read: it parks for space, and the Close record wakes it all
/// the same.
#[test]
fn a_close_wakes_a_peer_that_waits_for_space() {
    check_both(None, |sleep| {
        let (mut client, mut server) = Session::open(128, sleep);
        client.fill(16);
        let thread = thread::spawn(move || server.close());
        let closed = CallFailed::Closed(CloseReason::Normal, Executed::No);
        assert_eq!(client.until_sent(|client| client.push(16)), Err(closed));
        thread.join().unwrap();
    });
}

/// Unbounded; a full lane still has room for its Close record, also while the peer takes from it.
#[test]
fn a_full_lane_has_room_for_its_close() {
    check(None, || {
        let (mut client, mut server) = Session::open(128, Sleep::Futex);
        client.publish(4, 0);
        server.takes(1..=4);
        (1..=4).for_each(|id| server.respond(id, 16));
        server.commit();
        let thread = thread::spawn(move || server.close());
        client.waits(1..=3, 16);
        assert_eq!(client.wait(), Err(CLOSED));
        thread.join().unwrap();
    });
}

/// Unbounded; one answer, then the Close record: an end that sees the page closed has both, without waiting.
#[test]
fn a_closed_page_is_seen_after_every_record() {
    check(None, || {
        let (mut client, mut server) = Session::open(128, Sleep::Futex);
        client.send(0);
        server.takes(1..=1);
        let thread = thread::spawn(move || {
            server.respond(1, 16);
            server.close();
        });
        if client.sees_closed() {
            assert_eq!(client.poll(), Some((1, 16)));
            assert_eq!(client.poll(), None);
            assert_eq!(client.driver().end().closed(), Some(CloseReason::Normal));
        }
        thread.join().unwrap();
        assert!(client.sees_closed());
    });
}
