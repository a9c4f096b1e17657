//! Lanes that switch to other memory while their peer reads, sends or goes away. One epoch may be outstanding here,
//! and one message in memory of its own.

use bellwire_core::call::CallMachine;
use bellwire_core::lane::PushError;
use bellwire_core::resize::ResizeError;
use bellwire_core::serve::{Incoming, ServeMachine};
use bellwire_core::wire::Kind;
use bellwire_loom_tests::{End, Session, Sleep, check};
use loom::thread;

const BOTH: [Sleep; 2] = [Sleep::Futex, Sleep::Eventfd];

/// A payload that needs a lane of 256 bytes, and one of 512.
const LARGE: usize = 32;
const HUGE: usize = 96;

/// Fills a lane with records of 16 bytes payload, publishes them, and returns how many.
fn fill(end: &mut End) -> u64 {
    let mut sent = 0;
    while end.push(sent + 1, 16).is_ok() {
        sent += 1;
    }
    end.commit();
    sent
}

/// Takes a record that is there, as an end that never parks does: it checks for a waiter when due.
fn poll(end: &mut End) -> u64 {
    let record = end.take().expect("published before");
    end.look_if_owed();
    record.id
}

/// Unbounded; 1 record in 128 bytes, 1 in 256, one commit each; no end parks.
#[test]
fn what_is_published_around_a_switch_is_seen_whole_or_not_at_all() {
    check(None, || {
        let (mut sender, mut receiver) = Session::resizing(128, 128, 512, Sleep::Futex);
        let thread = thread::spawn(move || {
            sender.push(1, 16).unwrap();
            sender.commit();
            sender.send(2, LARGE);
            assert_eq!(sender.epoch(), 2);
        });
        let mut seen = 0;
        for _ in 0..2 {
            if let Some(record) = receiver.take() {
                seen += 1;
                assert_eq!(record.id, seen);
            }
        }
        thread.join().unwrap();
        while let Some(record) = receiver.take() {
            seen += 1;
            assert_eq!(record.id, seen);
        }
        assert_eq!(seen, 2);
    });
}

/// Preemption bound 3; 1 record, then 1 that grows the lane; the receiver parks for each.
#[test]
fn a_switch_wakes_who_waits_for_data() {
    for sleep in BOTH {
        check(Some(3), move || {
            let (mut sender, mut receiver) = Session::resizing(128, 128, 512, sleep);
            let thread = thread::spawn(move || {
                sender.send(1, 0);
                sender.send(2, LARGE);
            });
            for id in 1..=2 {
                assert_eq!(receiver.receive().id, id);
            }
            thread.join().unwrap();
        });
    }
}

/// Unbounded; a full lane of 128 bytes (3 records of 32) grows while it is read: nothing of it is written again.
#[test]
fn a_lane_that_was_left_is_read_to_its_end() {
    check(None, || {
        let (mut sender, mut receiver) = Session::resizing(128, 128, 512, Sleep::Futex);
        let sent = fill(&mut sender);
        let thread = thread::spawn(move || {
            sender.send(sent + 1, LARGE);
            sender.push(sent + 2, 16).unwrap();
            sender.commit();
        });
        for id in 1..=sent {
            assert_eq!(poll(&mut receiver), id);
        }
        thread.join().unwrap();
        for id in sent + 1..=sent + 2 {
            assert_eq!(poll(&mut receiver), id);
        }
    });
}

/// Preemption bound 3; both lanes are full (3 records of 32 in 128 bytes), both ends need a larger one, and neither
/// has read: no end waits to send, and all arrives.
#[test]
fn two_full_lanes_grow_at_once() {
    for sleep in BOTH {
        check(Some(3), move || {
            let (mut one, mut other) = Session::resizing(128, 128, 512, sleep);
            let sent = [fill(&mut one), fill(&mut other)];
            let run = move |end: &mut End, sent: u64| {
                end.send(sent + 1, LARGE);
                for id in 1..=sent + 1 {
                    assert_eq!(end.receive().id, id);
                }
            };
            let thread = thread::spawn(move || run(&mut other, sent[1]));
            run(&mut one, sent[0]);
            thread.join().unwrap();
        });
    }
}

/// Preemption bound 2; both ends need two epochs more, one of which meets the bound: each waits for the other to
/// follow, and takes what comes meanwhile, as a caller does.
#[test]
fn two_ends_that_wait_for_each_other_to_follow_go_on() {
    for sleep in BOTH {
        check(Some(2), move || {
            let (mut one, mut other) = Session::resizing(128, 128, 512, sleep);
            let run = move |end: &mut End| {
                end.send(1, LARGE);
                let mut taken = 0;
                let mut take = |end: &mut End| {
                    while let Some(record) = end.take() {
                        taken += 1;
                        assert_eq!(record.id, taken);
                        end.look_if_owed();
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
}

/// Unbounded; the one epoch that may be outstanding is, with a record in it or none: the end that needs the next one
/// parks for space, and is woken by a receiver that follows and never parks itself.
#[test]
fn who_waits_for_an_epoch_is_woken_when_the_other_is_followed() {
    for (sleep, records) in [(BOTH[0], 0), (BOTH[1], 0), (BOTH[0], 1), (BOTH[1], 1)] {
        check(None, move || {
            let (mut sender, mut receiver) = Session::resizing(128, 128, 512, sleep);
            sender.grow(256).unwrap();
            for id in 1..=records {
                sender.push(id, LARGE).unwrap();
            }
            sender.commit();
            let full = ResizeError::Push(PushError::Full { missing: 16 });
            assert_eq!(sender.grow(512), Err(full));
            let thread = thread::spawn(move || sender.send(9, HUGE));
            for id in 1..=records {
                assert_eq!(poll(&mut receiver), id);
            }
            let early = receiver.take();
            thread.join().unwrap();
            assert_eq!(early.or_else(|| receiver.take()).expect("sent by now").id, 9);
        });
    }
}

/// Unbounded; the same for a message in memory of its own, behind another record, in a lane of 512 bytes that has a
/// quarter to check.
#[test]
fn who_waits_for_an_attachment_to_be_taken_is_woken() {
    for sleep in BOTH {
        check(None, move || {
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
            for id in 1..=3 {
                assert_eq!(poll(&mut receiver), id);
            }
            thread.join().unwrap();
            assert_eq!(poll(&mut receiver), 4);
        });
    }
}

/// Preemption bound 3; a lane of 1024 bytes shrinks to 128 and is full there (3 records of 32) before the receiver has
/// followed: a look each quarter of the old lane would come too late.
#[test]
fn who_waits_for_room_in_a_smaller_lane_is_woken() {
    for sleep in BOTH {
        check(Some(3), move || {
            let (mut sender, mut receiver) = Session::resizing(1024, 128, 1024, sleep);
            sender.push(1, 0).unwrap();
            sender.shrink().unwrap();
            for id in 2..=4 {
                sender.push(id, 16).unwrap();
            }
            sender.commit();
            let thread = thread::spawn(move || sender.send(5, 16));
            for id in 1..=4 {
                assert_eq!(poll(&mut receiver), id);
            }
            thread.join().unwrap();
            assert_eq!(poll(&mut receiver), 5);
        });
    }
}

/// Preemption bound 3; the same for a lane of 128 bytes that grew to 256 and is full there.
#[test]
fn who_waits_for_room_in_a_larger_lane_is_woken() {
    for sleep in BOTH {
        check(Some(3), move || {
            let (mut sender, mut receiver) = Session::resizing(128, 128, 256, sleep);
            sender.push(1, 0).unwrap();
            sender.grow(256).unwrap();
            for id in 2..=3 {
                sender.push(id, 80).unwrap();
            }
            sender.commit();
            let thread = thread::spawn(move || sender.send(4, 80));
            for id in 1..=3 {
                assert_eq!(poll(&mut receiver), id);
            }
            thread.join().unwrap();
            assert_eq!(poll(&mut receiver), 4);
        });
    }
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
        assert_eq!(poll(&mut receiver), 1);
        let mut seen = 1;
        for _ in 0..2 {
            seen += u64::from(receiver.take().is_some());
        }
        thread.join().unwrap();
        for id in seen + 1..=3 {
            assert_eq!(poll(&mut receiver), id);
        }
    });
}

/// Unbounded; a record that grows the lane, then the Close record, against a peer that parks: both are read.
#[test]
fn a_close_right_after_a_switch_is_seen() {
    for sleep in BOTH {
        check(None, move || {
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
}

/// Unbounded; one end closes the lane while the other grows, and parks for an epoch that will not be followed: the
/// Close record wakes it.
#[test]
fn a_close_wakes_who_waits_for_an_epoch() {
    for sleep in BOTH {
        check(None, move || {
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
}

/// Preemption bound 3; a call whose request and whose answer each need a larger lane; both ends park.
#[test]
fn a_call_that_grows_both_lanes_comes_back() {
    for sleep in BOTH {
        check(Some(3), move || {
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
            let reply = loop {
                if let Some(reply) = client.reply(&mut calls, &mut buffer) {
                    break reply;
                }
                client.sleep(false);
            };
            assert_eq!((reply.len, &buffer[..]), (LARGE, &[9; LARGE][..]));
            thread.join().unwrap();
        });
    }
}
