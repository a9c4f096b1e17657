//! Publication alone: no end parks.

use bellwire_loom_tests::{Session, Sleep, check};
use loom::thread;

/// Unbounded; 2 messages of 32 bytes in a lane of 128, first lap.
#[test]
fn a_record_is_seen_whole_or_not_at_all() {
    check(None, || {
        let (mut client, mut server) = Session::open(128, Sleep::Futex);
        let thread = thread::spawn(move || (0..2).for_each(|_| client.send(16)));
        let mut requests = server.polls(2);
        thread.join().unwrap();
        requests.extend(server.polls(3));
        assert_eq!(requests, [(1, 16), (2, 16)]);
    });
}

/// Unbounded; a full lane of 128 bytes (3 records of 32), 2 taken and up to 2 more published across the
/// lane's end, over the bytes just read. One commit for both, so that no fence stands in for the Release
/// and the Acquire of `head`; then one commit each.
#[test]
fn bytes_are_written_again_only_after_they_were_read() {
    for one_by_one in [false, true] {
        check(None, move || {
            let (mut client, mut server) = Session::open(128, Sleep::Futex);
            assert_eq!(client.fill(16), 3);
            let thread = thread::spawn(move || {
                let mut sent = 3;
                for _ in 0..2 {
                    sent = client.push(16).unwrap_or(sent);
                    if one_by_one {
                        client.commit();
                    }
                }
                client.commit();
                sent
            });
            for id in 1..=2 {
                assert_eq!(server.take(), Some((id, 16)));
                if one_by_one {
                    server.commit();
                }
            }
            server.commit();
            let sent = thread.join().unwrap();
            server.takes(3..=sent);
            assert_eq!(server.take(), None);
        });
    }
}

/// Unbounded; a lane of 256 bytes, a record of 96 where 64 are left before the end: the pad is published with
/// it, or alone when the record has to wait.
#[test]
fn a_pad_is_skipped_whether_or_not_its_record_found_room() {
    check(None, || {
        let (mut client, mut server) = Session::open(256, Sleep::Futex);
        client.publish(3, 48);
        let thread = thread::spawn(move || {
            let sent = client.push(80).is_ok();
            client.commit();
            sent
        });
        server.takes(1..=3);
        let early = server.take();
        server.commit();
        let sent = thread.join().unwrap();
        let late = server.take();
        assert_eq!(early.or(late), sent.then_some((4, 80)));
        assert!(early.is_none() || late.is_none());
    });
}
