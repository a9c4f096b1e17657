//! What every backend of the reactor has to do, over each that this build and this kernel have.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bellwire_core::{Backend, BackendStatus, Instant};
use bellwire_memfd::clock;
use bellwire_memfd::doorbell::Eventfd;
use bellwire_memfd::poll::{Events, Interest, PollEvent, Poller, Trigger, wait_readable};
use bellwire_memfd::prelude::*;
use rustix::io::{Errno, read, write};
use rustix::net::{SendFlags, send};

use crate::support::{socket_pair, test_deadline};

const EDGE: Interest = Interest::readable(Trigger::Edge);
const LEVEL: Interest = Interest::readable(Trigger::Level);
/// Only that the other end hangs up.
const NOT_READABLE: Interest = Interest { readable: false, ..LEVEL };

/// One backend, and the events of its last wait.
struct Bench {
    poller: Poller,
    events: Events,
}

/// Runs `test` with each backend.
fn each(test: impl Fn(&mut Bench)) {
    let wanted = [Backend::Epoll, Backend::IoUring];
    let mut ran = 0;
    for backend in wanted {
        let (poller, in_use) = Poller::choose(backend).unwrap();
        if let Some(why) = in_use.why_not {
            eprintln!("not run with {backend}: {why}");
            continue;
        }
        assert_eq!(in_use, BackendStatus { backend, why_not: None });
        ran += 1;
        test(&mut Bench { poller, events: Events::with_capacity(512) });
    }
    assert!(ran > 0);
}

impl Bench {
    /// What is ready now.
    fn poll(&mut self) -> Vec<PollEvent> {
        self.wait(Some(Duration::ZERO))
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Vec<PollEvent> {
        let count = self.poller.wait(&mut self.events, timeout).unwrap();
        let mut events: Vec<_> = self.events.iter().collect();
        assert_eq!(events.len(), count);
        events.sort_unstable_by_key(|event| event.token);
        events
    }

    fn sleep(&mut self, until: Instant) -> usize {
        let count = self.poller.sleep(&mut self.events, clock::now(), Some(until)).unwrap();
        assert_eq!(self.events.iter().count(), count);
        count
    }

    /// Sleeps with this deadline, again when that ends early, until it is over: not before, and not long after.
    fn sleeps_for(&mut self, span: Duration) {
        let until = clock::now().after(span);
        let mut sleeps = 0;
        while clock::now() < until {
            assert_eq!(self.sleep(until), 0, "for {span:?}");
            sleeps += 1;
        }
        assert!(sleeps <= 3, "{sleeps} sleeps for {span:?}");
        assert!(clock::now() < until.after(Duration::from_secs(10)), "for {span:?}");
    }

    /// What can be read now.
    fn readable(&mut self) -> Vec<u64> {
        self.poll().into_iter().filter(|event| event.readable).map(|event| event.token).collect()
    }

    /// What is ready sooner or later.
    fn one(&mut self) -> PollEvent {
        let events = self.wait(Some(Duration::from_secs(60)));
        assert_eq!(events.len(), 1, "{events:?}");
        events[0]
    }
}

fn send_byte(socket: &OwnedFd) {
    send(socket, b"x", SendFlags::empty()).unwrap();
}

fn read_bytes(socket: &OwnedFd) {
    read(socket, &mut [0; 8]).unwrap();
}

#[test]
fn an_edge_is_reported_once_and_a_level_until_it_is_drained() {
    each(|bench| {
        let (edge, level) = (Eventfd::create().unwrap(), Eventfd::create().unwrap());
        bench.poller.add(edge.as_fd(), 1, EDGE).unwrap();
        bench.poller.add(level.as_fd(), 2, LEVEL).unwrap();
        assert_eq!(bench.readable(), [0; 0]);
        edge.ring();
        level.ring();
        assert_eq!(bench.readable(), [1, 2]);
        assert_eq!(bench.readable(), [2]);
        assert_eq!(bench.readable(), [2]);
        edge.ring();
        level.drain();
        assert_eq!(bench.readable(), [1], "never read, and yet each ring is an edge");
        assert_eq!(bench.readable(), [0; 0]);
    });
}

#[test]
fn a_sleep_ends_at_its_deadline_after_any_earlier_deadline() {
    each(|bench| {
        let bell = Eventfd::create().unwrap();
        bench.poller.add(bell.as_fd(), 1, EDGE).unwrap();
        let rung = |bench: &mut Bench, within: Duration| {
            bell.ring();
            assert_eq!(bench.sleep(clock::now().after(within)), 1, "for {within:?}");
        };
        // One that was never reached, and is later than the next.
        rung(bench, Duration::from_secs(20));
        bench.sleeps_for(Duration::from_millis(150));
        // One that is earlier than the next, and passes before it.
        rung(bench, Duration::from_millis(120));
        bench.sleeps_for(Duration::from_millis(400));
        // The same again, after all of them have passed, and one that is near.
        bench.sleeps_for(Duration::from_millis(150));
        bench.sleeps_for(Duration::from_millis(5));
        rung(bench, Duration::from_millis(150));
        assert_eq!(bench.poll(), []);
    });
}

#[test]
fn readiness_from_before_the_add_is_reported() {
    each(|bench| {
        let (edge, level) = (Eventfd::create().unwrap(), Eventfd::create().unwrap());
        edge.ring();
        level.ring();
        bench.poller.add(edge.as_fd(), 1, EDGE).unwrap();
        bench.poller.add(level.as_fd(), 2, LEVEL).unwrap();
        assert_eq!(bench.readable(), [1, 2]);
        assert_eq!(bench.readable(), [2]);
    });
}

#[test]
fn a_thousand_rings_one_at_a_time_are_a_thousand_edges() {
    each(|bench| {
        let bell = Eventfd::create().unwrap();
        bench.poller.add(bell.as_fd(), 7, EDGE).unwrap();
        for _ in 0..1000 {
            bell.ring();
            assert_eq!(bench.readable(), [7]);
        }
    });
}

#[test]
fn a_ring_ends_a_wait_that_has_begun() {
    each(|bench| {
        let (there, back) = (Eventfd::create().unwrap(), Eventfd::create().unwrap());
        bench.poller.add(there.as_fd(), 1, EDGE).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..100 {
                    there.ring();
                    assert!(wait_readable(&[back.as_fd()], test_deadline()).unwrap().any());
                    back.drain();
                }
            });
            for _ in 0..100 {
                assert_eq!(bench.one().token, 1);
                back.ring();
            }
        });
    });
}

#[test]
fn a_wait_ends_at_its_limit() {
    each(|bench| {
        let bell = Eventfd::create().unwrap();
        bench.poller.add(bell.as_fd(), 1, EDGE).unwrap();
        let begun = std::time::Instant::now();
        assert_eq!(bench.wait(Some(Duration::from_millis(20))), []);
        assert!(begun.elapsed() >= Duration::from_millis(20), "{:?}", begun.elapsed());
        assert_eq!(bench.wait(Some(Duration::from_nanos(1))), []);
    });
}

#[test]
fn a_deleted_source_is_reported_no_more_and_released() {
    each(|bench| {
        let (ours, theirs) = socket_pair();
        let bell = Eventfd::create().unwrap();
        bench.poller.add(ours.as_fd(), 1, LEVEL).unwrap();
        bench.poller.add(bell.as_fd(), 2, EDGE).unwrap();
        send_byte(&theirs);
        assert_eq!(bench.readable(), [1]);
        read_bytes(&ours);
        assert_eq!(bench.readable(), [0; 0]);
        // Rung and not yet reported.
        bell.ring();
        assert!(bench.poller.delete(bell.as_fd()));
        assert!(bench.poller.delete(ours.as_fd()));
        drop(ours);
        // No wait in between: the other end sees it at once.
        assert_eq!(read(&theirs, &mut [0; 1]), Ok(0), "it is still open");
        assert_eq!(bench.poll(), []);
    });
}

#[test]
fn a_source_that_was_never_polled_can_be_deleted_and_closed() {
    each(|bench| {
        let (ours, theirs) = socket_pair();
        bench.poller.add(ours.as_fd(), 1, LEVEL).unwrap();
        assert!(bench.poller.delete(ours.as_fd()));
        drop(ours);
        assert_eq!(read(&theirs, &mut [0; 1]), Ok(0));
        assert_eq!(bench.poll(), []);
    });
}

#[test]
fn an_unwatched_source_can_be_neither_deleted_nor_modified() {
    each(|bench| {
        let bell = Eventfd::create().unwrap();
        assert!(!bench.poller.delete(bell.as_fd()));
        assert_eq!(bench.poller.modify(bell.as_fd(), 1, LEVEL), Err(Errno::NOENT));
        bench.poller.add(bell.as_fd(), 1, LEVEL).unwrap();
        assert!(bench.poller.delete(bell.as_fd()));
        assert!(!bench.poller.delete(bell.as_fd()));
    });
}

#[test]
fn a_number_that_is_used_again_is_another_descriptor() {
    each(|bench| {
        for token in 0..100 {
            let (ours, theirs) = socket_pair();
            bench.poller.add(ours.as_fd(), token, LEVEL).unwrap();
            send_byte(&theirs);
            let token = if token % 2 == 0 {
                token
            } else {
                bench.poller.modify(ours.as_fd(), token + 1000, LEVEL).unwrap();
                token + 1000
            };
            assert_eq!(bench.readable(), [token]);
            assert!(bench.poller.delete(ours.as_fd()));
        }
    });
}

#[test]
fn a_changed_interest_holds_at_once_and_hang_ups_are_always_reported() {
    each(|bench| {
        let (ours, theirs) = socket_pair();
        bench.poller.add(ours.as_fd(), 1, LEVEL).unwrap();
        send_byte(&theirs);
        assert_eq!(bench.readable(), [1]);
        bench.poller.modify(ours.as_fd(), 2, NOT_READABLE).unwrap();
        assert_eq!(bench.poll(), [], "what can be read is not asked for");
        bench.poller.modify(ours.as_fd(), 3, LEVEL).unwrap();
        assert_eq!(bench.readable(), [3]);
        bench.poller.modify(ours.as_fd(), 4, NOT_READABLE).unwrap();
        assert_eq!(bench.poll(), []);
        drop(theirs);
        for _ in 0..3 {
            let event = bench.one();
            assert!(event.token == 4 && event.hung_up && !event.readable, "{event:?}");
        }
        read_bytes(&ours);
    });
}

#[test]
fn readiness_for_an_earlier_interest_is_reported_for_the_new_one_only() {
    each(|bench| {
        let bell = Eventfd::create().unwrap();
        bench.poller.add(bell.as_fd(), 0, EDGE).unwrap();
        assert_eq!(bench.readable(), [0; 0]);
        for token in 1..10 {
            bell.ring();
            bench.poller.modify(bell.as_fd(), token, EDGE).unwrap();
            assert_eq!(bench.readable(), [token]);
            assert_eq!(bench.readable(), [0; 0]);
        }
    });
}

#[test]
fn writable_sources_are_reported() {
    each(|bench| {
        let (ours, theirs) = socket_pair();
        let interest = Interest { writable: true, ..NOT_READABLE };
        bench.poller.add(ours.as_fd(), 1, interest).unwrap();
        assert!(bench.one().writable);
        while write(&ours, &[0; 4096]).is_ok() {}
        assert_eq!(bench.poll(), []);
        while read(&theirs, &mut [0; 4096]).is_ok() {}
        assert!(bench.one().writable);
    });
}

#[test]
fn the_end_of_a_process_is_reported_until_it_is_deleted() {
    each(|bench| {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let flags = rustix::process::PidfdFlags::empty();
        let pidfd = rustix::process::pidfd_open(pid, flags).unwrap();
        bench.poller.add(pidfd.as_fd(), 9, LEVEL).unwrap();
        for _ in 0..3 {
            let event = bench.one();
            assert!(event.readable && event.token == 9, "{event:?}");
        }
        assert!(bench.poller.delete(pidfd.as_fd()));
        assert_eq!(bench.poll(), []);
        child.wait().unwrap();
    });
}

/// More than either backend reports at once, and more than a completion queue holds.
#[test]
fn thousands_of_events_at_once_are_all_reported_and_edges_only_once() {
    const MANY: usize = 3000;
    let place = |event: &PollEvent| usize::try_from(event.token).unwrap();
    each(|bench| {
        let bells: Vec<_> = (0..MANY).map(|_| Eventfd::create().unwrap()).collect();
        for (bell, token) in bells.iter().zip(0..) {
            bench
                .poller
                .add(bell.as_fd(), token, if token % 2 == 0 { EDGE } else { LEVEL })
                .unwrap();
        }
        assert_eq!(bench.poll(), []);
        for round in 0..3 {
            bells.iter().for_each(|bell| {
                bell.ring();
            });
            let mut reported = vec![0; MANY];
            while reported.contains(&0) {
                for event in bench.wait(Some(Duration::from_secs(60))) {
                    reported[place(&event)] += 1;
                    if event.token % 2 == 1 {
                        bells[place(&event)].drain();
                    }
                }
            }
            let edges = reported.iter().step_by(2).filter(|count| **count != 1).count();
            assert!(edges < MANY / 10, "round {round}: {edges} edges were reported again");
            // Repeated reports, caused by a full queue, come to an end.
            while !bench.poll().is_empty() {}
        }
    });
}

#[cfg(feature = "io-uring")]
mod ring {
    use bellwire_memfd::poll::Uring;

    use super::*;

    /// Completions for which there is no room, over and over.
    #[test]
    fn a_queue_that_overflows_loses_nothing() {
        let Ok(mut uring) = Uring::with_completions(4) else {
            return eprintln!("not run: this kernel or sandbox has no io_uring");
        };
        let mut events = Events::with_capacity(2);
        let bells: Vec<_> = (0..200).map(|_| Eventfd::create().unwrap()).collect();
        for (bell, token) in bells.iter().zip(0..) {
            uring.add(bell, token, EDGE).unwrap();
        }
        for _ in 0..20 {
            let mut missing: std::collections::BTreeSet<u64> = (0..200).collect();
            bells.iter().for_each(|bell| {
                bell.ring();
            });
            while !missing.is_empty() {
                let count = uring.wait(&mut events, Some(Duration::from_secs(60))).unwrap();
                assert!(count > 0, "lost: {missing:?}");
                events.iter().for_each(|event| {
                    missing.remove(&event.token);
                });
            }
        }
    }

    #[test]
    fn a_dropped_io_uring_releases_its_watched_sources() {
        let Ok(mut uring) = Uring::create() else {
            return eprintln!("not run: this kernel or sandbox has no io_uring");
        };
        let (ours, theirs) = socket_pair();
        uring.add(&ours, 1, LEVEL).unwrap();
        let mut events = Events::with_capacity(2);
        assert_eq!(uring.wait(&mut events, Some(Duration::ZERO)), Ok(0));
        drop(ours);
        assert_eq!(read(&theirs, &mut [0; 1]), Err(Errno::AGAIN), "watched, it stays open");
        drop(uring);
        assert_eq!(read(&theirs, &mut [0; 1]), Ok(0));
    }
}

#[test]
fn the_default_backend_is_epoll_and_an_unavailable_one_is_reported() {
    let (_, in_use) = Poller::choose(Backend::Auto).unwrap();
    assert_eq!(in_use, BackendStatus { backend: Backend::Epoll, why_not: None });
    let (_, in_use) = Poller::choose(Backend::ThreadPool).unwrap();
    assert_eq!(in_use.backend, Backend::Epoll);
    assert!(in_use.why_not.is_some());
}
