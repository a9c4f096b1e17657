//! A broadcast ring: a record that a reader takes is whole, whatever the writer does meanwhile.

use bellwire_core::broadcast::{Received, Receiver, Transmitter};
use bellwire_loom_tests::{Broadcast, check};
use loom::thread;

fn payload(sequence: u64) -> Vec<u8> {
    sequence.to_le_bytes().repeat(2)
}

fn send(writer: &mut Transmitter, ring: &Broadcast, sequence: u64) {
    writer.send(ring, sequence, &payload(sequence)).unwrap();
}

/// A ring that has `before` records, and one thread that writes `more` while the other polls `polls` times.
fn race(before: u64, more: u64, polls: usize, newest: bool) {
    check(Some(2), move || {
        let ring = Broadcast::default();
        let mut writer = Transmitter::new(Broadcast::RING, &ring);
        (1..=before).for_each(|sequence| send(&mut writer, &ring, sequence));
        let mut reader = Receiver::new(Broadcast::RING, 1);
        let theirs = ring.clone();
        let thread = thread::spawn(move || {
            (before + 1..=before + more).for_each(|sequence| send(&mut writer, &theirs, sequence));
        });
        let mut copy = Vec::new();
        let mut last = 0;
        let mut look = |newest| {
            let found = if newest {
                reader.newest(&ring, &mut copy)
            } else {
                reader.try_next(&ring, &mut copy)
            };
            if let Received::Record { sequence, len, missed } = found.expect("an honest writer") {
                assert_eq!(copy[..len], payload(sequence));
                assert_eq!(sequence, last + missed + 1, "each is taken or counted");
                last = sequence;
                return true;
            }
            false
        };
        for _ in 0..polls {
            look(newest);
        }
        thread.join().unwrap();
        while look(false) {}
        assert_eq!(last, before + more, "nothing is left");
    });
}

/// Preemption bound 2; 2 records, none before.
#[test]
fn a_record_is_seen_whole() {
    race(0, 2, 2, false);
}

/// Preemption bound 2; a full ring of 4, and 1 record over the oldest while that is copied.
#[test]
fn a_record_that_is_overwritten_while_it_is_copied_is_not_taken() {
    race(4, 1, 1, false);
}

/// Preemption bound 2; a full ring of 4 and 2 more.
#[test]
fn a_reader_behind_a_running_writer_counts_the_missed_records() {
    race(4, 2, 1, false);
}

/// Preemption bound 2; 2 records, none before, of which the newest is wanted.
#[test]
fn the_newest_record_is_seen_whole() {
    race(0, 2, 2, true);
}

/// Preemption bound 2; a ring of 1 and 4 more, which overwrite it.
#[test]
fn a_newest_record_that_is_overwritten_while_it_is_copied_is_not_taken() {
    race(1, 4, 1, true);
}

/// Preemption bound 2; a full ring of 4 deltas, and 1 over the oldest while that is copied.
#[test]
fn a_delta_that_is_overwritten_while_it_is_copied_is_not_taken() {
    check(Some(2), || {
        let ring = Broadcast::default();
        let mut writer = Transmitter::new(Broadcast::RING, &ring);
        let send_delta = |writer: &mut Transmitter, ring: &Broadcast, sequence: u64| {
            writer.send_delta(ring, sequence, &payload(sequence)).unwrap();
        };
        (1..=4).for_each(|sequence| send_delta(&mut writer, &ring, sequence));
        let theirs = ring.clone();
        let thread = thread::spawn(move || send_delta(&mut writer, &theirs, 5));
        let (mut reader, mut copy) = (Receiver::new(Broadcast::RING, 1), Vec::new());
        let found = reader.delta(&ring, 1, &mut copy).expect("an honest writer");
        if let Received::Record { sequence, len, .. } = found {
            assert_eq!((sequence, &copy[..len]), (1, &payload(1)[..]));
        }
        thread.join().unwrap();
    });
}
