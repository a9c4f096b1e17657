//! Parking for data: `arm` against `commit`. A lost wake is a deadlock.

use bellwire_loom_tests::{Session, Sleep, check};
use loom::thread;

/// The receiver parks for each of `messages`; the sender commits after each and rings only when told to.
fn parked_for_data(sleep: Sleep, messages: u64, preemptions: Option<usize>) {
    check(preemptions, move || {
        let (mut sender, mut receiver) = Session::ends(128, sleep);
        let thread = thread::spawn(move || {
            for id in 1..=messages {
                sender.push(id, 0).unwrap();
                sender.commit();
            }
        });
        for id in 1..=messages {
            assert_eq!(receiver.receive().id, id);
        }
        thread.join().unwrap();
    });
}

/// Unbounded; 1 message, futex.
#[test]
fn one_message_wakes_a_futex() {
    parked_for_data(Sleep::Futex, 1, None);
}

/// Unbounded; 1 message, eventfd.
#[test]
fn one_message_wakes_an_eventfd() {
    parked_for_data(Sleep::Eventfd, 1, None);
}

/// Unbounded; 2 messages, futex.
#[test]
fn two_messages_wake_a_futex() {
    parked_for_data(Sleep::Futex, 2, None);
}

/// Unbounded; 2 messages, eventfd.
#[test]
fn two_messages_wake_an_eventfd() {
    parked_for_data(Sleep::Eventfd, 2, None);
}

/// Preemption bound 4; 2 batches of 2 messages, one commit each.
#[test]
fn a_batch_rings_once_and_is_seen_whole() {
    for sleep in [Sleep::Futex, Sleep::Eventfd] {
        check(Some(4), move || {
            let (mut sender, mut receiver) = Session::ends(128, sleep);
            let thread = thread::spawn(move || {
                for id in [1, 3] {
                    sender.push(id, 0).unwrap();
                    sender.push(id + 1, 0).unwrap();
                    sender.commit();
                }
            });
            for id in 1..=4 {
                assert_eq!(receiver.receive().id, id);
            }
            thread.join().unwrap();
        });
    }
}

/// Unbounded; 1 message each way. Arming publishes, and rings for it: no end commits here.
#[test]
fn what_is_published_by_arming_wakes() {
    for sleep in [Sleep::Futex, Sleep::Eventfd] {
        check(None, move || {
            let (mut asking, mut answering) = Session::ends(128, sleep);
            let thread = thread::spawn(move || {
                assert_eq!(answering.receive().id, 1);
                answering.push(2, 0).unwrap();
                answering.commit();
            });
            asking.push(1, 0).unwrap();
            let answer = loop {
                asking.sleep(false);
                if let Some(record) = asking.take() {
                    break record;
                }
            };
            assert_eq!(answer.id, 2);
            thread.join().unwrap();
        });
    }
}
