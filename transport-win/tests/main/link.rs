use std::os::windows::io::{AsHandle, BorrowedHandle};
use std::time::Duration;

use bellwire_core::drive::{CallDriver, CallFailed};
use bellwire_core::lane::Armed;
use bellwire_core::sync::{AtomicU64, Ordering};
use bellwire_core::wire::{CloseReason, Doorbell, MAX_CONTROL, Message, PAGE_SIZE, Ready};
use bellwire_core::{
    Bell, Deadline, Executed, OwnMemory, Park, PeerFault, PeerMemory, Port, SpinPolicy, Woken, Word,
};
use bellwire_win::clock;
use bellwire_win::link::DrainOutcome;
use bellwire_win::peer::{Process, ProcessAccess};
use bellwire_win::prelude::*;
use bellwire_win::region::{OwnRegion, PeerRegion};
use bellwire_win::watch::Watchers;

use crate::child;
use crate::exchange::link_over;
use crate::session::{Listens, Session, lanes, sealed};
use crate::support::{accept, bind, connect, is_ready, links, links_of, ready, test_deadline};

fn until_data(tail: u64) -> Park {
    Park { tail, head: None, until: test_deadline() }
}

fn no_longer(park: Park) -> Park {
    Park { until: Some(clock::now()), ..park }
}

#[test]
fn a_peer_without_an_event_or_with_the_pipe_as_doorbell_is_rung_through_the_pipe() {
    for wanted in [Doorbell::Socket as u64, Doorbell::Eventfd as u64, 0, 9, u64::MAX] {
        let (mut waiter, ringer) = links();
        waiter.own().store(Word::Doorbell, wanted, Ordering::Release);
        std::thread::scope(|scope| {
            let waiter = &mut waiter;
            let waiter = scope.spawn(move || waiter.park(until_data(0)));
            ringer.own().store(Word::Tail, 16, Ordering::Release);
            ringer.ring(Bell::Data);
            assert_eq!(waiter.join().unwrap(), Woken::Rung, "{wanted}");
        });
        assert_eq!(waiter.park(no_longer(until_data(16))), Woken::Deadline, "{wanted}");
    }
}

#[test]
fn an_unexpected_message_on_an_open_session_ends_a_wait() {
    let ready = Message::Ready(Ready { session: 9 });
    let mut bytes = [0; MAX_CONTROL];
    let len = ready.encode(0, &mut bytes);
    for message in [b"nothing".as_slice(), &bytes[..len]] {
        let (mut waiter, ringer) = links();
        ringer.ring(Bell::Data);
        ringer.channel().send(message, &[]).unwrap();
        while waiter.fault().is_none() {
            assert_ne!(waiter.park(until_data(0)), Woken::Deadline);
        }
        assert_eq!(waiter.park(until_data(0)), Woken::PeerGone);
        assert!(matches!(waiter.fault(), Some(PeerFault::Control { .. })), "{:?}", waiter.fault());
    }
}

#[test]
fn memory_without_a_record_hides_neither_rings_nor_deadlines() {
    let (mut waiter, ringer) = links();
    let sealed = sealed(&[1; 10]);
    for id in 1..=40 {
        ringer.pass_attachment(id, 0, &sealed).unwrap();
    }
    for tail in [16, 32, 48] {
        let until = clock::now().after(Duration::from_millis(5));
        let parked = || waiter.park(Park { until: Some(until), ..until_data(tail - 16) });
        let ended = std::iter::repeat_with(parked).find(|woken| *woken != Woken::Rung);
        assert_eq!(ended, Some(Woken::Deadline));
        assert!(clock::now() >= until);
        ringer.own().store(Word::Tail, tail, Ordering::Release);
        ringer.ring(Bell::Data);
        assert_eq!(waiter.park(until_data(tail - 16)), Woken::Rung);
    }
    for id in 1..=40 {
        assert_eq!(waiter.take_attachment(id).unwrap().1.len(), 10);
    }
    assert_eq!(waiter.take_control(), Ok(DrainOutcome::Nothing));
}

#[test]
fn memory_is_available_with_its_record() {
    // The end of a read is reported to the thread that started it, which may be late: here it makes no system call.
    for to_server in [true, false] {
        let (server, client) = links();
        let (sender, mut receiver) = if to_server { (client, server) } else { (server, client) };
        let passed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (sender, sealed) = (sender, sealed(&[1]));
                for id in 1..=500 {
                    sender.pass_attachment(id, 0, &sealed).unwrap();
                    passed.store(id, Ordering::Release);
                    while passed.load(Ordering::Acquire) != 0 {
                        std::hint::spin_loop();
                    }
                }
            });
            for id in 1..=500 {
                while passed.load(Ordering::Acquire) != id {
                    std::hint::spin_loop();
                }
                let taken = receiver.take_attachment(id).map(|(_, map)| map.len());
                passed.store(0, Ordering::Release);
                assert_eq!(taken, Ok(1), "{id}");
            }
        });
    }
}

#[test]
fn an_event_loop_waits_for_rings_and_death() {
    let (mut waiter, ringer) = links();
    let is_polled = |link: &bellwire_win::link::Link, poll: fn(BorrowedHandle<'_>) -> bool| {
        poll(link.pollable().unwrap().expect("there is an event"))
    };
    assert!(!is_polled(&waiter, is_ready));
    for _ in 0..3 {
        ringer.ring(Bell::Data);
        assert!(is_polled(&waiter, is_ready), "rung");
        ringer.ring(Bell::Data);
        waiter.acknowledge();
        assert!(!is_polled(&waiter, is_ready));
    }
    drop(ringer);
    assert!(is_polled(&waiter, ready), "the end is reported");
    waiter.acknowledge();
    assert!(is_polled(&waiter, ready), "a peer that is gone stays so");
}

#[test]
fn a_watcher_wakes_when_the_board_moves() {
    let (mut waiter, ringer) = links();
    let (board, section) = OwnRegion::create("board", PAGE_SIZE, |_| {}).unwrap();
    let seen = PeerRegion::verify_and_map(section, PAGE_SIZE).unwrap();
    std::thread::scope(|scope| {
        let (waiter, seen) = (&mut waiter, &seen);
        let watcher = scope.spawn(move || waiter.watch(seen, 128, 0, test_deadline()));
        // Rung for something else first.
        ringer.ring(Bell::Data);
        board.store_u64(128, 1, Ordering::Release);
        ringer.ring(Bell::Data);
        assert_eq!(watcher.join().unwrap(), Woken::Rung);
    });
    let soon = clock::now().after(Duration::from_millis(3));
    assert_eq!(waiter.watch(&seen, 128, 1, Some(soon)), Woken::Deadline);
    drop(ringer);
    assert_eq!(waiter.watch(&seen, 128, 1, None), Woken::PeerGone);
}

// Two processes.

#[test]
fn two_processes_call_each_other_parked_and_spinning() {
    let Session { mut driver, mut child, .. } = Session::open(Listens::Caller);
    let mut buffer = Vec::new();
    for round in 1..=2000_u32 {
        let request = round.to_le_bytes().repeat(1 + usize::try_from(round % 50).unwrap());
        driver.submit(&request).unwrap();
        let reply = driver.wait_for_reply(&mut Deadline::NEVER.clone(), &mut buffer).unwrap();
        let expected: Vec<_> = request.iter().map(|byte| byte.wrapping_add(1)).collect();
        assert_eq!(&buffer[..reply.len], expected, "round {round}");
    }
    assert!(driver.parks() > 0, "both ends slept now and then");
    // More than a lane holds, in one go.
    let mut answered = 0;
    for request in 0..1000_u32 {
        let payload = [9; 500];
        while let Err(error) = driver.submit(&payload) {
            assert!(matches!(error, CallFailed::Submit(_)), "{error}");
            if driver.try_reply(&mut buffer).unwrap().is_some() {
                answered += 1;
            } else {
                driver.wait_for_room(&mut Deadline::at(test_deadline().unwrap())).unwrap();
            }
        }
        let _ = request;
    }
    while driver.in_flight() > 0 {
        driver.wait_for_reply(&mut Deadline::at(test_deadline().unwrap()), &mut buffer).unwrap();
        answered += 1;
    }
    assert_eq!(answered, 1000);
    driver.close(CloseReason::Normal);
    drop(driver);
    assert!(child.wait());
}

#[test]
fn the_death_of_a_peer_ends_a_call_after_its_published_answers() {
    let Session { mut driver, mut child, .. } = Session::open(Listens::Caller);
    let mut buffer = Vec::new();
    driver.push(&[7]).unwrap();
    driver.push(&[8]).unwrap();
    driver.push(&[0]).unwrap();
    driver.commit();
    // No deadline: only the death can end the last wait.
    for expected in [8, 9] {
        driver.wait_for_reply(&mut Deadline::NEVER.clone(), &mut buffer).unwrap();
        assert_eq!(buffer[0], expected);
    }
    let error = driver.wait_for_reply(&mut Deadline::NEVER.clone(), &mut buffer).unwrap_err();
    assert_eq!(error, CallFailed::PeerGone(Executed::Maybe));
    assert!(!child.wait());
}

#[test]
fn the_end_of_a_process_is_seen_though_its_pipe_stays_open() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = child::start("peer::body_waits", dir.path());
    let process = Process::open(child.pid(), ProcessAccess::Watch).unwrap();
    let (ringer, mut waiter) = links_of(Some(process));
    assert!(!waiter.peer_gone());
    std::thread::scope(|scope| {
        scope.spawn(|| child.kill());
        assert_eq!(waiter.park(until_data(0)), Woken::PeerGone);
    });
    assert!(waiter.peer_gone());
    drop(ringer);
}

#[test]
fn a_killed_client_wakes_its_parked_server() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = bind(dir.path(), "calls");
    let mut child = child::start("link::body_calls_and_waits", dir.path());
    let mut link = link_over(accept(&endpoint));
    // What it published is seen first.
    let (armed, _) = lanes().arm(link.own(), link.peer(), false).unwrap();
    if armed != Armed::Moved {
        assert_eq!(link.park(until_data(0)), Woken::Rung);
    }
    let tail = link.peer().load(Word::Tail, Ordering::Acquire);
    assert_eq!(tail, 32);
    std::thread::scope(|scope| {
        scope.spawn(|| child.kill());
        // A ring that came late may end a wait or two.
        let woken = std::iter::repeat_with(|| link.park(until_data(tail)));
        assert_eq!(woken.into_iter().find(|woken| *woken != Woken::Rung), Some(Woken::PeerGone));
    });
    assert!(link.process().is_some_and(Process::has_exited) || link.peer_gone());
}

#[test]
fn body_calls_and_waits() {
    let Some(dir) = child::run_dir() else { return };
    let mut driver = CallDriver::new(link_over(connect(&dir, "calls")), lanes(), SpinPolicy::NEVER);
    driver.submit(&[1; 10]).unwrap();
    child::wait_to_be_killed();
}

#[test]
fn publishing_wakes_all_watchers_and_those_that_joined_too_late() {
    let (waiter, ringer) = links();
    let (board, section) = OwnRegion::create("board", PAGE_SIZE, |_| {}).unwrap();
    let seen = PeerRegion::verify_and_map(section, PAGE_SIZE).unwrap();
    let watchers = Watchers::default();
    let until_moved = |from| waiter.watch(&seen, 128, from, test_deadline());
    // Published after the waiter looked at the word, and before it was counted.
    board.store_u64(128, 1, Ordering::Release);
    watchers.wake(&board, 128);
    assert!(!is_ready(waiter.event().unwrap().as_handle()), "it is not counted yet");
    watchers.join(&ringer);
    assert!(is_ready(waiter.event().unwrap().as_handle()), "it looks again");
    assert_eq!(until_moved(0), Woken::Rung);
    board.store_u64(128, 2, Ordering::Release);
    watchers.wake(&board, 128);
    assert!(is_ready(waiter.event().unwrap().as_handle()), "and is woken from now on");
    drop(ringer);
    watchers.wake(&board, 128);
}
