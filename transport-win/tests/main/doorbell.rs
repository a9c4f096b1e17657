use std::os::windows::io::AsHandle;
use std::time::Duration;

use bellwire_win::doorbell::Event;
use bellwire_win::prelude::*;
use bellwire_win::{clock, poll};

use crate::support::{is_ready, ready};

#[test]
fn a_ring_wakes_one_wait() {
    let event = Event::create().unwrap();
    let peers = Event::from_peer(event.for_peer().unwrap()).unwrap();
    assert!(!is_ready(event.as_handle()));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| ready(event.as_handle()));
        peers.ring();
        assert!(waiter.join().unwrap());
    });
    assert!(!is_ready(event.as_handle()), "the wait took the ring");
}

#[test]
fn many_rings_are_one() {
    let event = Event::create().unwrap();
    for _ in 0..1000 {
        event.ring();
    }
    assert!(event.drain());
    assert!(!event.drain());
}

#[test]
fn the_peer_can_ring_and_not_wait() {
    let event = Event::create().unwrap();
    let peers = event.for_peer().unwrap();
    event.ring();
    let waited = poll::wait(&[peers.as_handle()], Some(clock::now()));
    assert!(waited.is_err(), "a peer could take the ring away: {waited:?}");
    assert!(event.drain());
}

#[test]
fn a_handle_of_something_else_rings_nothing() {
    let file = tempfile::tempfile().unwrap();
    Event::from_peer(std::os::windows::io::OwnedHandle::from(file)).unwrap().ring();
}

#[test]
fn a_lasting_event_stays_set_until_it_is_reset() {
    let event = Event::manual_reset().unwrap();
    assert!(!is_ready(event.as_handle()));
    event.ring();
    assert!(is_ready(event.as_handle()) && is_ready(event.as_handle()));
    event.reset();
    assert!(!is_ready(event.as_handle()));
}

#[test]
fn a_wait_ends_at_its_deadline_and_not_before() {
    let event = Event::create().unwrap();
    for wait in [0, 1, 3, 40] {
        let until = clock::now().after(Duration::from_millis(wait));
        assert_eq!(poll::wait(&[event.as_handle()], Some(until)), Ok(None));
        assert!(clock::now() >= until);
    }
}
