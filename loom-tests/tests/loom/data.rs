//! Parking for data: `arm` against `commit`. A lost wake is a deadlock.

use bellwire_loom_tests::{Session, check_both};
use loom::thread;

/// The server parks for each of `messages`; the client commits after each and rings only if `commit` says so.
fn parked_for_data(messages: u64) {
    check_both(None, move |sleep| {
        let (mut client, mut server) = Session::open(128, sleep);
        let thread = thread::spawn(move || (0..messages).for_each(|_| client.send(0)));
        server.receives(1..=messages);
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
        let (mut client, mut server) = Session::open(128, sleep);
        let thread = thread::spawn(move || {
            for _ in 0..2 {
                client.publish(2, 0);
            }
        });
        server.receives(1..=4);
        thread.join().unwrap();
    });
}

/// Unbounded; 1 message each way. Arming publishes, and rings for it: the client does not commit here.
#[test]
fn records_published_by_arming_wake_the_peer() {
    check_both(None, |sleep| {
        let (mut client, mut server) = Session::open(128, sleep);
        let thread = thread::spawn(move || server.serve(1, 0));
        client.push(0).unwrap();
        client.waits(1..=1, 0);
        thread.join().unwrap();
    });
}
