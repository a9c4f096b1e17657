use std::os::windows::io::AsHandle;
use std::time::Duration;

use bellwire_win::doorbell::Event;
use bellwire_win::poll::{self, Events, Interest, Poller, Trigger};
use bellwire_win::prelude::*;

use crate::support::test_deadline;

const EDGE: Interest = Interest::readable(Trigger::Edge);
const NOW: Option<Duration> = Some(Duration::ZERO);
const LONG: Option<Duration> = Some(Duration::from_secs(60));

fn tokens(poller: &mut Poller, timeout: Option<Duration>) -> Vec<u64> {
    let mut events = Events::with_capacity(8);
    poller.wait(&mut events, timeout).unwrap();
    events.iter().map(|event| event.token).collect()
}

#[test]
fn the_first_of_several_handles_is_reported() {
    let events = [Event::create().unwrap(), Event::create().unwrap(), Event::create().unwrap()];
    let handles = events.each_ref().map(AsHandle::as_handle);
    events[2].ring();
    events[1].ring();
    assert_eq!(poll::wait(&handles, test_deadline()), Ok(Some(1)));
    assert_eq!(poll::wait(&handles, test_deadline()), Ok(Some(2)));
}

#[test]
fn more_handles_than_one_wait_takes_are_an_error() {
    let event = Event::create().unwrap();
    let handles = vec![event.as_handle(); poll::MAX_HANDLES + 1];
    assert!(poll::wait(&handles, test_deadline()).is_err());
    event.ring();
    assert_eq!(poll::wait(&handles[..poll::MAX_HANDLES], test_deadline()), Ok(Some(0)));
}

#[test]
fn rings_are_reported_once_and_lasting_events_each_time() {
    let (once, kept) = (Event::create().unwrap(), Event::manual_reset().unwrap());
    let mut poller = Poller::create().unwrap();
    poller.add(once.as_handle(), 1, EDGE).unwrap();
    poller.add(kept.as_handle(), 2, Interest::readable(Trigger::Level)).unwrap();
    assert_eq!(tokens(&mut poller, NOW), []);
    once.ring();
    assert_eq!(tokens(&mut poller, LONG), [1]);
    kept.ring();
    assert_eq!(tokens(&mut poller, LONG), [2]);
    assert_eq!(tokens(&mut poller, LONG), [2]);
    kept.reset();
    once.ring();
    let mut seen = tokens(&mut poller, LONG);
    // The pool may have looked at the one with manual reset again before it was reset.
    while !seen.contains(&1) {
        seen = tokens(&mut poller, LONG);
    }
}

#[test]
fn hundreds_of_handles_are_watched_together() {
    const MANY: u64 = 300;
    let events: Vec<_> = (0..MANY).map(|_| Event::create().unwrap()).collect();
    let mut poller = Poller::create().unwrap();
    for (event, token) in events.iter().zip(0..) {
        poller.add(event.as_handle(), token, EDGE).unwrap();
    }
    for round in 0..3 {
        for (event, token) in events.iter().zip(0..) {
            if token % 3 == round {
                event.ring();
            }
        }
        let mut seen = Vec::new();
        while seen.len() < 100 {
            seen.extend(tokens(&mut poller, LONG));
        }
        seen.sort_unstable();
        let expected: Vec<_> = (0..MANY).filter(|token| token % 3 == round).collect();
        assert_eq!(seen, expected);
    }
}

#[test]
fn a_deleted_source_is_not_reported() {
    let event = Event::create().unwrap();
    let mut poller = Poller::create().unwrap();
    poller.add(event.as_handle(), 7, EDGE).unwrap();
    assert_eq!(tokens(&mut poller, NOW), []);
    event.ring();
    assert!(poller.delete(event.as_handle()));
    assert!(!poller.delete(event.as_handle()));
    assert_eq!(tokens(&mut poller, Some(Duration::from_millis(5))), []);
    poller.add(event.as_handle(), 7, EDGE).unwrap();
    event.ring();
    assert_eq!(tokens(&mut poller, LONG), [7]);
}

#[test]
fn a_source_without_interest_is_silent_until_it_has_one_again() {
    let event = Event::manual_reset().unwrap();
    let mut poller = Poller::create().unwrap();
    let listens = |readable| Interest::exchange(readable, false);
    poller.add(event.as_handle(), 7, listens(true)).unwrap();
    event.ring();
    assert_eq!(tokens(&mut poller, LONG), [7]);
    poller.modify(event.as_handle(), 7, listens(false)).unwrap();
    assert_eq!(tokens(&mut poller, Some(Duration::from_millis(5))), []);
    poller.modify(event.as_handle(), 8, listens(true)).unwrap();
    assert_eq!(tokens(&mut poller, LONG), [8]);
}
