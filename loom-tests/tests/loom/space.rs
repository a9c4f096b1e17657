//! Parking for space: the client finds its lane full, and the server frees room, checking the client's event index
//! only once per quarter of the lane.

use bellwire_loom_tests::{Session, check_both};
use loom::thread;

/// A lane of `lane` bytes, full of records with these payloads; the client parks until one of `last` bytes finds room,
/// the server takes all, and checks for it after every `every` records.
fn parked_for_space<const N: usize>(
    preemptions: Option<usize>,
    (lane, lens, last): (u32, [usize; N], usize),
    every: u64,
) {
    check_both(preemptions, move |sleep| {
        let (mut client, mut server) = Session::open(lane, sleep);
        for len in lens {
            client.publish(1, len);
        }
        client.push(last).unwrap_err();
        let thread = thread::spawn(move || client.send(last));
        for (id, len) in (1..).zip(lens) {
            assert_eq!(server.take(), Some((id, len)));
            if id.is_multiple_of(every) {
                server.commit();
            }
        }
        thread.join().unwrap();
        assert_eq!(server.take(), Some((N as u64 + 1, last)));
    });
}

/// Unbounded; lane 128, 3 records of 32, each given back alone: each is a quarter.
#[test]
fn room_given_back_by_quarters_wakes() {
    parked_for_space(None, (128, [16; 3], 16), 1);
}

/// Unbounded; lane 128, 2 records of 16 and 2 of 32 given back one by one: the first release skips the check, and the
/// record needs the room that it frees.
#[test]
fn releases_without_a_check_lose_no_wake() {
    parked_for_space(None, (128, [0, 0, 16, 16], 0), 1);
}

/// Preemption bound 3; lane 256, 4 records of 48 bytes (of a quarter of 64) and 1 of 32 given back one by one, for the
/// largest record that the lane can carry.
#[test]
fn the_largest_record_finds_room() {
    parked_for_space(Some(3), (256, [32, 32, 32, 32, 16], 80), 1);
}

/// Unbounded; lane 256, 2 records of 96 and 1 of 32, and one check after all.
#[test]
fn one_release_of_everything_wakes() {
    parked_for_space(None, (256, [80, 80, 16], 80), 3);
}

/// Preemption bound 3; lane 256. The worst case of the quarter rule: the server has just checked (at 192), 144
/// bytes are published after that, and the largest record needs only the first 16 of them: a check once per half lane
/// would still do, once per three quarters would not.
#[test]
fn the_receiver_checks_before_the_published_records_end() {
    check_both(Some(3), |sleep| {
        let (mut client, mut server) = Session::open(256, sleep);
        client.publish(12, 0);
        while server.take().is_some() {}
        server.commit();
        client.publish(9, 0);
        let thread = thread::spawn(move || client.send(80));
        server.takes(13..=21);
        thread.join().unwrap();
        assert_eq!(server.take(), Some((22, 80)));
    });
}

/// Preemption bound 3; the server parks for data itself after each record: what it freed without
/// a check is checked when it arms. 3 records of 32 in a lane of 128, then 2 more.
#[test]
fn both_ends_park_on_one_lane() {
    check_both(Some(3), |sleep| {
        let (mut client, mut server) = Session::open(128, sleep);
        let sent = client.fill(16);
        let thread = thread::spawn(move || (0..2).for_each(|_| client.send(16)));
        server.receives(1..=sent + 2);
        thread.join().unwrap();
    });
}
