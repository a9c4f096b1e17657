//! Parking for space: the sender finds the lane full, and the receiver frees room, checking the sender's event index
//! only once per quarter of the lane.

use bellwire_loom_tests::{Session, check_both};
use loom::thread;

/// A lane of `lane` bytes, filled with records of `len` bytes payload; the sender parks until one of `last`
/// bytes finds room, the receiver takes all, giving back after every `every` records.
fn parked_for_space(
    preemptions: Option<usize>,
    (lane, len, last): (u32, usize, usize),
    every: usize,
) {
    check_both(preemptions, move |sleep| {
        let (mut sender, mut receiver) = Session::ends_with([lane, 128], sleep);
        let sent = sender.fill(len);
        let thread = thread::spawn(move || sender.send(sent + 1, last));
        for id in 1..=sent {
            assert_eq!(receiver.take().expect("published before").id, id);
            if usize::try_from(id).unwrap().is_multiple_of(every) || id == sent {
                receiver.commit();
            }
        }
        thread.join().unwrap();
        assert_eq!(receiver.take().expect("sent by now").id, sent + 1);
    });
}

/// Unbounded; lane 128, 3 records of 32, each given back alone: each is a quarter.
#[test]
fn room_given_back_by_quarters_wakes() {
    parked_for_space(None, (128, 16, 16), 1);
}

/// Unbounded; lane 128, 6 records of 16 given back one by one: every other release skips the check, and the record
/// needs the room that an unchecked release frees.
#[test]
fn releases_without_a_check_lose_no_wake() {
    parked_for_space(None, (128, 0, 0), 1);
}

/// Preemption bound 3; lane 256, 14 records of 16 given back three at a time (48 bytes of a quarter of 64),
/// for the largest record that the lane can carry.
#[test]
fn the_largest_record_gets_its_room() {
    parked_for_space(Some(3), (256, 0, 80), 3);
}

/// Unbounded; lane 256, all 14 records given back at once.
#[test]
fn one_release_of_everything_wakes() {
    parked_for_space(None, (256, 0, 80), 14);
}

/// Preemption bound 3; lane 256. The worst case of the quarter rule: the receiver has just checked (at 192), 144
/// bytes are published after that, and the largest record needs only the first 16 of them: a check once per half lane
/// would still do, once per three quarters would not.
#[test]
fn a_check_comes_before_the_published_records_end() {
    check_both(Some(3), |sleep| {
        let (mut sender, mut receiver) = Session::ends_with([256, 128], sleep);
        sender.publish(1..=12, 0);
        while receiver.take().is_some() {}
        receiver.commit();
        sender.publish(1..=9, 0);
        let thread = thread::spawn(move || sender.send(10, 80));
        for id in 1..=9 {
            assert_eq!(receiver.take().expect("published before").id, id);
            receiver.commit();
        }
        thread.join().unwrap();
        assert_eq!(receiver.take().expect("sent by now").id, 10);
    });
}

/// Preemption bound 3; the receiver parks for data itself after each record, as a server does: what it freed without
/// a check is checked when it arms. 3 records of 32 in a lane of 128, then 2 more.
#[test]
fn both_ends_park_on_one_lane() {
    check_both(Some(3), |sleep| {
        let (mut sender, mut receiver) = Session::ends(128, sleep);
        let sent = sender.fill(16);
        let thread = thread::spawn(move || {
            for id in [sent + 1, sent + 2] {
                sender.send(id, 16);
            }
        });
        receiver.receives(1..=sent + 2);
        thread.join().unwrap();
    });
}
