//! Parking for data: `arm` against `commit`. A lost wake is a deadlock.

use bellwire_loom_tests::{Session, check_both};
use loom::thread;

/// The receiver parks for each of `messages`; the sender commits after each and rings only when told to.
fn parked_for_data(messages: u64) {
    check_both(None, move |sleep| {
        let (mut sender, mut receiver) = Session::ends(128, sleep);
        let thread = thread::spawn(move || {
            (1..=messages).for_each(|id| sender.publish(id..=id, 0));
        });
        receiver.receives(1..=messages);
        thread.join().unwrap();
    });
}

/// Unbounded; 1 message.
#[test]
fn one_message_wakes() {
    parked_for_data(1);
}

/// Unbounded; 2 messages.
#[test]
fn two_messages_wake() {
    parked_for_data(2);
}

/// Preemption bound 4; 2 batches of 2 messages, one commit each.
#[test]
fn a_batch_rings_once_and_is_seen_whole() {
    check_both(Some(4), |sleep| {
        let (mut sender, mut receiver) = Session::ends(128, sleep);
        let thread = thread::spawn(move || {
            for id in [1, 3] {
                sender.publish(id..=id + 1, 0);
            }
        });
        receiver.receives(1..=4);
        thread.join().unwrap();
    });
}

/// Unbounded; 1 message each way. Arming publishes, and rings for it: no end commits here.
#[test]
fn records_published_by_arming_wake_the_peer() {
    check_both(None, |sleep| {
        let (mut asking, mut answering) = Session::ends(128, sleep);
        let thread = thread::spawn(move || {
            assert_eq!(answering.receive().id, 1);
            answering.publish(2..=2, 0);
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
