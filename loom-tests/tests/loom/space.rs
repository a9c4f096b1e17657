//! Parking for space: the sender finds the lane full, and the receiver frees room, checking the sender's event index
//! only once per quarter of the lane.

use bellwire_core::lane::PushError;
use bellwire_loom_tests::{End, Session, Sleep, check};
use loom::thread;

/// A lane of `lane` bytes, filled with records of `len` bytes payload; the sender parks until one of `last`
/// bytes finds room, the receiver takes all, giving back after every `every` records.
fn parked_for_space(
    (sleep, preemptions): (Sleep, Option<usize>),
    (lane, len, last): (u32, usize, usize),
    every: usize,
) {
    check(preemptions, move || {
        let (mut sender, mut receiver) = Session::ends_with([lane, 128], sleep);
        let sent = fill(&mut sender, len);
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

/// Publishes records until the lane is full, and returns how many.
fn fill(sender: &mut End, len: usize) -> u64 {
    let mut sent = 0;
    loop {
        match sender.push(sent + 1, len) {
            Ok(()) => sent += 1,
            Err(PushError::Full { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    sender.commit();
    sent
}

/// Unbounded; lane 128, 3 records of 32, each given back alone: each is a quarter.
#[test]
fn room_given_back_by_quarters_wakes_a_futex() {
    parked_for_space((Sleep::Futex, None), (128, 16, 16), 1);
}

/// Unbounded; lane 128, 3 records of 32, each given back alone: each is a quarter.
#[test]
fn room_given_back_by_quarters_wakes_an_eventfd() {
    parked_for_space((Sleep::Eventfd, None), (128, 16, 16), 1);
}

/// Unbounded; lane 128, 6 records of 16 given back one by one: every other release skips the check, and the record
/// needs the room that an unchecked release frees.
#[test]
fn releases_that_do_not_look_lose_no_wake_on_a_futex() {
    parked_for_space((Sleep::Futex, None), (128, 0, 0), 1);
}

/// Unbounded; lane 128, 6 records of 16 given back one by one.
#[test]
fn releases_that_do_not_look_lose_no_wake_on_an_eventfd() {
    parked_for_space((Sleep::Eventfd, None), (128, 0, 0), 1);
}

/// Preemption bound 3; lane 256, 14 records of 16 given back three at a time (48 bytes of a quarter of 64),
/// for the largest record that the lane can carry.
#[test]
fn the_largest_record_gets_its_room() {
    for sleep in [Sleep::Futex, Sleep::Eventfd] {
        parked_for_space((sleep, Some(3)), (256, 0, 80), 3);
    }
}

/// Unbounded; lane 256, all 14 records given back at once.
#[test]
fn one_release_of_everything_wakes() {
    for sleep in [Sleep::Futex, Sleep::Eventfd] {
        parked_for_space((sleep, None), (256, 0, 80), 14);
    }
}

/// Preemption bound 3; lane 256. The worst case of the quarter rule: the receiver has just checked (at 192), 144
/// bytes are published after that, and the largest record needs only the first 16 of them: a check once per half lane
/// would still do, once per three quarters would not.
#[test]
fn a_look_comes_before_the_published_records_end() {
    for sleep in [Sleep::Futex, Sleep::Eventfd] {
        check(Some(3), move || {
            let (mut sender, mut receiver) = Session::ends_with([256, 128], sleep);
            for id in 1..=12 {
                sender.push(id, 0).unwrap();
            }
            sender.commit();
            while receiver.take().is_some() {}
            receiver.commit();
            for id in 1..=9 {
                sender.push(id, 0).unwrap();
            }
            sender.commit();
            let thread = thread::spawn(move || sender.send(10, 80));
            for id in 1..=9 {
                assert_eq!(receiver.take().expect("published before").id, id);
                receiver.commit();
            }
            thread.join().unwrap();
            assert_eq!(receiver.take().expect("sent by now").id, 10);
        });
    }
}

/// Preemption bound 3; the receiver parks for data itself after each record, as a server does: what it freed without
/// a check is checked when it arms. 3 records of 32 in a lane of 128, then 2 more.
#[test]
fn both_ends_park_on_one_lane() {
    for sleep in [Sleep::Futex, Sleep::Eventfd] {
        check(Some(3), move || {
            let (mut sender, mut receiver) = Session::ends(128, sleep);
            let sent = fill(&mut sender, 16);
            let thread = thread::spawn(move || {
                for id in [sent + 1, sent + 2] {
                    sender.send(id, 16);
                }
            });
            for id in 1..=sent + 2 {
                assert_eq!(receiver.receive().id, id);
            }
            thread.join().unwrap();
        });
    }
}
