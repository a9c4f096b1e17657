//! Lanes that switch to other memory while their peer reads, sends or goes away. One epoch may be outstanding here,
//! and one message in memory of its own.

use std::ops::RangeInclusive;

use bellwire_core::call::CallMachine;
use bellwire_core::lane::PushError;
use bellwire_core::resize::ResizeError;
use bellwire_core::serve::{Incoming, ServeMachine};
use bellwire_core::wire::Kind;
use bellwire_loom_tests::{End, Session, Sleep, check, check_both};
use loom::thread;

/// A payload that needs a lane of 256 bytes, and one of 512.
const LARGE: usize = 32;
const HUGE: usize = 96;

/// Takes records that are there, as an end that never parks does: it checks for a waiter when due.
fn poll(end: &mut End, ids: RangeInclusive<u64>) {
    for id in ids {
        assert_eq!(end.take().expect("published before").id, id);
        end.check_wakes_if_due();
    }
}

/// Unbounded; 1 record in 128 bytes, 1 in 256, one commit each; no end parks.
#[test]
fn a_record_around_a_switch_is_seen_whole_or_not_at_all() {
    check(None, || {
        let (mut sender, mut receiver) = Session::resizing(128, 128, 512, Sleep::Futex);
        let thread = thread::spawn(move || {
            sender.push(1, 16).unwrap();
            sender.commit();
            sender.send(2, LARGE);
            assert_eq!(sender.epoch(), 2);
        });
        let mut records = receiver.poll(2);
        thread.join().unwrap();
        records.extend(receiver.poll(3));
        let seen: Vec<_> = records.iter().map(|record| (record.id, record.len)).collect();
        assert_eq!(seen, [(1, 16), (2, 32)]);
    });
}

/// Preemption bound 3; 1 record, then 1 that grows the lane; the receiver parks for each.
#[test]
fn a_switch_ends_a_wait_for_data() {
    check_both(Some(3), |sleep| {
        let (mut sender, mut receiver) = Session::resizing(128, 128, 512, sleep);
        let thread = thread::spawn(move || {
            sender.send(1, 0);
            sender.send(2, LARGE);
        });
        receiver.receives(1..=2);
        thread.join().unwrap();
    });
}

/// Unbounded; a full lane of 128 bytes (3 records of 32) grows while it is read: nothing of it is written again.
#[test]
fn a_lane_that_was_left_is_read_to_its_end() {
    check(None, || {
        let (mut sender, mut receiver) = Session::resizing(128, 128, 512, Sleep::Futex);
        let sent = sender.fill(16);
        let thread = thread::spawn(move || {
            sender.send(sent + 1, LARGE);
            sender.push(sent + 2, 16).unwrap();
            sender.commit();
        });
        poll(&mut receiver, 1..=sent);
        thread.join().unwrap();
        poll(&mut receiver, sent + 1..=sent + 2);
    });
}

/// Preemption bound 3; both lanes are full (3 records of 32 in 128 bytes), both ends need a larger one, and neither
/// has read: no end waits to send, and all arrives.
#[test]
fn two_full_lanes_grow_at_once() {
    check_both(Some(3), |sleep| {
        let (mut one, mut other) = Session::resizing(128, 128, 512, sleep);
        let sent = [one.fill(16), other.fill(16)];
        let run = move |end: &mut End, sent: u64| {
            end.send(sent + 1, LARGE);
            end.receives(1..=sent + 1);
        };
        let thread = thread::spawn(move || run(&mut other, sent[1]));
        run(&mut one, sent[0]);
        thread.join().unwrap();
    });
}

/// Preemption bound 2; both ends need two epochs more, one of which meets the bound: each waits for the other to
/// follow, and takes what comes meanwhile, as a caller does.
#[test]
fn two_ends_that_wait_for_each_other_to_follow_go_on() {
    check_both(Some(2), |sleep| {
        let (mut one, mut other) = Session::resizing(128, 128, 512, sleep);
        let run = move |end: &mut End| {
            end.send(1, LARGE);
            let mut taken = 0;
            let mut take = |end: &mut End| {
                while let Some(record) = end.take() {
                    taken += 1;
                    assert_eq!(record.id, taken);
                    end.check_wakes_if_due();
                }
                taken
            };
            loop {
                match end.push(2, HUGE) {
                    Ok(()) => break end.commit(),
                    Err(PushError::Grow { .. }) => {
                        // The next push tells.
                        let _ = end.grow(512);
                    }
                    Err(PushError::Full { .. }) => {
                        take(end);
                        end.sleep(true);
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            while take(end) < 2 {
                end.sleep(false);
            }
        };
        let thread = thread::spawn(move || run(&mut other));
        run(&mut one);
        thread.join().unwrap();
    });
}

/// Unbounded; the one epoch that may be outstanding is, with a record in it or none: the end that needs the next one
/// parks for space, and is woken by a receiver that follows and never parks itself.
#[test]
fn a_wait_for_an_epoch_ends_when_the_other_is_followed() {
    for records in [0, 1] {
        check_both(None, move |sleep| {
            let (mut sender, mut receiver) = Session::resizing(128, 128, 512, sleep);
            sender.grow(256).unwrap();
            sender.publish(1..=records, LARGE);
            let full = ResizeError::Push(PushError::Full { missing: 16 });
            assert_eq!(sender.grow(512), Err(full));
            let thread = thread::spawn(move || sender.send(9, HUGE));
            poll(&mut receiver, 1..=records);
            let early = receiver.take();
            thread.join().unwrap();
            assert_eq!(early.or_else(|| receiver.take()).expect("sent by now").id, 9);
        });
    }
}

/// Unbounded; the same for a message in memory of its own, behind another record, in a lane of 512 bytes that has a
/// quarter to check.
#[test]
fn a_wait_for_an_attachment_to_be_taken_ends() {
    check_both(None, |sleep| {
        let (mut sender, mut receiver) = Session::ends(512, sleep);
        sender.push(1, 0).unwrap();
        sender.push_attached(2).unwrap();
        sender.push(3, 0).unwrap();
        sender.commit();
        assert_eq!(sender.push_attached(4), Err(PushError::Full { missing: 32 }));
        let thread = thread::spawn(move || {
            while let Err(error) = sender.push_attached(4) {
                assert!(matches!(error, PushError::Full { .. }), "{error}");
                sender.sleep(true);
            }
            sender.commit();
        });
        poll(&mut receiver, 1..=3);
        thread.join().unwrap();
        poll(&mut receiver, 4..=4);
    });
}

/// The lane switches with a record in it, and is full of `records` records of `len` bytes in its next size before the
/// receiver has followed.
fn full_after_a_switch(
    [lane, least, most]: [u32; 3],
    switch: fn(&mut End) -> Result<(), ResizeError>,
    records: u64,
    len: usize,
) {
    check_both(Some(3), move |sleep| {
        let (mut sender, mut receiver) = Session::resizing(lane, least, most, sleep);
        sender.push(1, 0).unwrap();
        switch(&mut sender).unwrap();
        sender.publish(2..=1 + records, len);
        let thread = thread::spawn(move || sender.send(2 + records, len));
        poll(&mut receiver, 1..=1 + records);
        thread.join().unwrap();
        poll(&mut receiver, 2 + records..=2 + records);
    });
}

/// Preemption bound 3; from 1024 bytes to 128: a look each quarter of the old lane would come too late.
#[test]
fn a_wait_for_room_in_a_smaller_lane_ends() {
    full_after_a_switch([1024, 128, 1024], End::shrink, 3, 16);
}

/// Preemption bound 3; from 128 bytes to 256.
#[test]
fn a_wait_for_room_in_a_larger_lane_ends() {
    full_after_a_switch([128, 128, 256], |end| end.grow(256), 2, 80);
}

/// Unbounded; a lane of 256 bytes shrinks to 128 while it is read.
#[test]
fn a_lane_shrinks_while_it_is_read() {
    check(None, || {
        let (mut sender, mut receiver) = Session::resizing(256, 128, 256, Sleep::Futex);
        sender.push(1, 80).unwrap();
        sender.commit();
        let thread = thread::spawn(move || {
            sender.push(2, 16).unwrap();
            sender.shrink().unwrap();
            sender.push(3, 16).unwrap();
            sender.commit();
            assert_eq!(sender.epoch(), 2);
        });
        poll(&mut receiver, 1..=1);
        let mut seen = 1;
        for _ in 0..2 {
            seen += u64::from(receiver.take().is_some());
        }
        thread.join().unwrap();
        poll(&mut receiver, seen + 1..=3);
    });
}

/// Unbounded; a record that grows the lane, then the Close record, against a peer that parks: both are read.
#[test]
fn a_close_right_after_a_switch_is_seen() {
    check_both(None, |sleep| {
        let (mut closing, mut waiting) = Session::resizing(128, 128, 256, sleep);
        let thread = thread::spawn(move || {
            while let Err(PushError::Grow { .. }) = closing.push(1, LARGE) {
                closing.grow(256).unwrap();
            }
            closing.close();
        });
        assert_eq!(waiting.receive().id, 1);
        assert_eq!(waiting.receive().kind, Kind::Close);
        thread.join().unwrap();
        assert!(waiting.is_closed());
    });
}

/// Unbounded; one end closes the lane while the other grows, and parks for an epoch that will not be followed: the
/// Close record wakes it.
#[test]
fn a_close_ends_a_wait_for_an_epoch() {
    check_both(None, |sleep| {
        let (mut closing, mut waiting) = Session::resizing(128, 128, 512, sleep);
        waiting.send(1, LARGE);
        let thread = thread::spawn(move || closing.close());
        let close = loop {
            if let Some(record) = waiting.take() {
                break record;
            }
            let full = matches!(waiting.push(2, HUGE), Err(PushError::Full { .. }));
            assert!(full, "the only epoch is outstanding");
            waiting.sleep(true);
        };
        assert_eq!(close.kind, Kind::Close);
        thread.join().unwrap();
    });
}

/// Preemption bound 3; a call whose request and whose answer each need a larger lane; both ends park.
#[test]
fn a_call_that_grows_both_lanes_comes_back() {
    check_both(Some(3), |sleep| {
        let (mut client, mut server) = Session::resizing(128, 128, 256, sleep);
        let thread = thread::spawn(move || {
            let mut machine = ServeMachine::new(8);
            let mut buffer = Vec::new();
            let incoming = loop {
                if let Some(incoming) = server.incoming(&mut machine, &mut buffer) {
                    break incoming;
                }
                server.sleep(false);
            };
            assert_eq!(incoming, Incoming::Request { id: 1, len: LARGE, batch: false });
            assert_eq!(buffer, [7; LARGE]);
            server.respond(&mut machine, 1, &[9; LARGE]);
        });
        let mut calls = CallMachine::new();
        client.submit(&mut calls, &[7; LARGE]).unwrap();
        let mut buffer = Vec::new();
        let reply = client.wait_for_reply(&mut calls, &mut buffer);
        assert_eq!((reply.len, &buffer[..]), (LARGE, &[9; LARGE][..]));
        thread.join().unwrap();
    });
}
