//! A call has one deadline, however often it is sent.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use bellwire::Client;
use bellwire_memfd::{Linux, clock, prelude::*};

use crate::support::guard::TEST_TIMEOUT;
use crate::support::rogue::RogueListener;
use crate::support::services::Echo;
use crate::support::test_server::{Dir, client_config};

const TIMEOUT: Duration = Duration::from_secs(2);

#[test]
fn a_call_that_is_sent_again_after_a_death_ends_at_the_deadline_of_the_first_try() {
    let dir = Dir::new();
    // Its successor, by the same name, admits no client.
    let listener = RogueListener::bind(&dir.run_dir, "echo");
    let config = client_config().connect_timeout(TEST_TIMEOUT);
    let mut client = Client::<Echo>::with_config(&dir.run_dir, config);
    let (sender, receiver) = channel();
    let (called, lived) = thread::scope(|scope| {
        let listener = &listener;
        let rogue = scope.spawn(move || {
            let rogue = listener.open(1);
            let begun: Instant = receiver.recv().unwrap();
            // It dies when most of the time is over.
            let _ = Linux::wait_any(&[], Some(clock::now().after(TIMEOUT * 3 / 4)));
            drop(rogue);
            begun.elapsed()
        });
        client.connect().unwrap();
        let begun = Instant::now();
        sender.send(begun).unwrap();
        client.call_within(&vec![1], TIMEOUT).unwrap_err();
        (begun.elapsed(), rogue.join().unwrap())
    });
    assert!(called >= TIMEOUT && called < lived + TIMEOUT, "{called:?}, it lived {lived:?}");
}
