#![allow(unsafe_code, reason = "a signal handler, to interrupt a wait")]

use std::os::fd::AsFd;
use std::time::Duration;

use bellwire_core::sync::Ordering;
use bellwire_memfd::clock;
use bellwire_memfd::doorbell::{Eventfd, Woke, futex_wait_any};
use bellwire_memfd::poll::wait_readable;
use bellwire_memfd::prelude::*;

use crate::support::{region, test_deadline, thread_id, wait_until_parked};

#[test]
fn a_wake_reaches_a_thread_parked_on_a_read_only_map() {
    let (own, peer) = region(4096);
    let parked = thread_id();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            wait_until_parked(parked);
            own.store_u64(128, 7, Ordering::Release);
            while !own.wake_one(128) {}
            own
        });
        let word = peer.word(128);
        assert_eq!(futex_wait_any(&[(word, 0)], None), Woke::CheckAgain);
        assert_eq!(peer.load_u64(128, Ordering::Acquire), 7);
    });
}

#[test]
fn any_of_many_words_ends_the_wait() {
    for count in [1, 2, 8, 9, 128] {
        let (_own, peer) = region(count * 128);
        let mut words: Vec<_> = (0..count).map(|n| (peer.word(n * 128), 0)).collect();
        assert_eq!(futex_wait_any(&words, Some(clock::now())), Woke::Deadline);
        words.last_mut().unwrap().1 = 1;
        assert_eq!(futex_wait_any(&words, None), Woke::CheckAgain, "{count} words");
    }
}

#[test]
fn more_words_than_the_kernel_takes_are_waited_for_in_slices() {
    let (own, peer) = region(129 * 128);
    let words: Vec<_> = (0..129).map(|n| (peer.word(n * 128), 0)).collect();
    let until = clock::now().after(Duration::from_millis(25));
    assert_eq!(futex_wait_any(&words, Some(until)), Woke::Deadline);
    assert!(clock::now() >= until);
    own.store_u64(128 * 128, 1, Ordering::Release);
    assert_eq!(futex_wait_any(&words, None), Woke::CheckAgain);
}

#[test]
fn a_wait_on_nothing_returns() {
    assert_eq!(futex_wait_any(&[], None), Woke::CheckAgain);
}

#[test]
fn a_deadline_is_not_early() {
    let until = clock::now().after(Duration::from_millis(3));
    let (_own, peer) = region(4096);
    assert_eq!(futex_wait_any(&[(peer.word(0), 0)], Some(until)), Woke::Deadline);
    assert!(clock::now() >= until);
    let until = clock::now().after(Duration::from_millis(3));
    let silent = Eventfd::create().unwrap();
    assert!(!wait_readable(&[silent.as_fd()], Some(until)).unwrap().any());
    assert!(clock::now() >= until);
}

#[test]
fn an_eventfd_wakes_and_is_drained() {
    let (silent, bell) = (Eventfd::create().unwrap(), Eventfd::create().unwrap());
    assert!(!bell.drain());
    let parked = thread_id();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until_parked(parked);
            bell.ring();
        });
        let ready = wait_readable(&[silent.as_fd(), bell.as_fd()], test_deadline()).unwrap();
        assert!(!ready.is(0) && ready.is(1));
    });
    assert!(bell.drain());
    assert!(!bell.drain());
}

#[test]
fn a_peer_that_fills_an_eventfd_blocks_no_honest_ring() {
    let bell = Eventfd::create().unwrap();
    rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    bell.ring();
    assert!(bell.drain());
}

#[test]
fn draining_does_not_block_on_an_eventfd_that_a_peer_made_blocking() {
    let bell = Eventfd::create().unwrap();
    rustix::fs::fcntl_setfl(&bell, rustix::fs::OFlags::empty()).unwrap();
    assert!(!bell.drain());
}

#[test]
fn a_signal_does_not_end_a_wait_for_descriptors() {
    extern "C" fn ignore(_: libc::c_int) {}
    let handler = ignore as extern "C" fn(libc::c_int);
    // SAFETY: a handler that does nothing is safe at any point; no other test uses this signal.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    let bell = Eventfd::create().unwrap();
    let parked = thread_id();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..10 {
                wait_until_parked(parked);
                let process = std::process::id();
                // SAFETY: no memory is passed. The thread is alive: it waits for the bell that rings below.
                let result =
                    unsafe { libc::syscall(libc::SYS_tgkill, process, parked, libc::SIGUSR1) };
                assert_eq!(result, 0);
            }
            bell.ring();
        });
        assert!(wait_readable(&[bell.as_fd()], None).unwrap().is(0));
    });
}
