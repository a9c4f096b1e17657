//! Publication alone: no end parks.

use bellwire_core::lane::PushError;
use bellwire_loom_tests::{Session, Sleep, check};
use loom::thread;

/// Unbounded; 2 messages of 32 bytes in a lane of 128, first lap.
#[test]
fn a_record_is_seen_whole_or_not_at_all() {
    check(None, || {
        let (mut sender, mut receiver) = Session::ends(128, Sleep::Futex);
        let thread = thread::spawn(move || {
            for id in 1..=2 {
                sender.push(id, 16).unwrap();
                sender.commit();
            }
        });
        let mut records = receiver.poll(2);
        thread.join().unwrap();
        records.extend(receiver.poll(3));
        let seen: Vec<_> = records.iter().map(|record| (record.id, record.len)).collect();
        assert_eq!(seen, [(1, 16), (2, 16)]);
    });
}

/// Unbounded; a full lane of 128 bytes (3 records of 32), 2 taken and up to 2 more published across the
/// lane's end, over the bytes just read. One commit for both, so that no fence stands in for the Release
/// and the Acquire of `head`; then one commit each.
#[test]
fn bytes_are_written_again_only_after_they_were_read() {
    for one_by_one in [false, true] {
        check(None, move || {
            let (mut sender, mut receiver) = Session::ends(128, Sleep::Futex);
            sender.publish(1..=3, 16);
            assert!(matches!(sender.push(4, 16), Err(PushError::Full { missing: 32 })));
            let thread = thread::spawn(move || {
                let mut sent = 3;
                for _ in 0..2 {
                    if sender.push(sent + 1, 16).is_ok() {
                        sent += 1;
                    }
                    if one_by_one {
                        sender.commit();
                    }
                }
                sender.commit();
                sent
            });
            for id in 1..=2 {
                assert_eq!(receiver.take().expect("published before").id, id);
                if one_by_one {
                    receiver.commit();
                }
            }
            receiver.commit();
            let sent = thread.join().unwrap();
            for id in 3..=sent {
                assert_eq!(receiver.take().expect("published by now").id, id);
            }
            assert_eq!(receiver.take(), None);
        });
    }
}

/// Unbounded; a lane of 256 bytes, a record of 96 where 64 are left before the end: the pad is published with
/// it, or alone when the record has to wait.
#[test]
fn a_pad_is_skipped_whether_or_not_its_record_found_room() {
    check(None, || {
        let (mut sender, mut receiver) = Session::ends(256, Sleep::Futex);
        sender.publish(1..=3, 48);
        for id in 1..=2 {
            assert_eq!(receiver.take().expect("published before").id, id);
        }
        let thread = thread::spawn(move || {
            let sent = sender.push(4, 80).is_ok();
            sender.commit();
            sent
        });
        receiver.commit();
        assert_eq!(receiver.take().expect("published before").id, 3);
        let early = receiver.take().map(|record| record.id);
        receiver.commit();
        let sent = thread.join().unwrap();
        let late = receiver.take().map(|record| record.id);
        assert_eq!(early.or(late), sent.then_some(4));
        assert!(early.is_none() || late.is_none());
    });
}
