#![allow(unsafe_code, reason = "mutexes of the C library, beside life words")]
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bellwire_core::sync::Ordering;
use bellwire_core::wire::{LIFE_SIZE, PAGE_SIZE, SAMPLE_SLOTS};
use bellwire_core::{Bell, OwnMemory, Park, Port, Woken, Word};
use bellwire_memfd::LifeState;
use bellwire_memfd::doorbell::futex_wait_any;
use bellwire_memfd::endpoint::{Endpoint, connect};
use bellwire_memfd::life::{LIFE_OFFSET, LifeLock, MAX_PER_THREAD, life_state};
use bellwire_memfd::link::OwnEnd;
use bellwire_memfd::prelude::*;
use bellwire_memfd::region::{OwnRegion, PeerRegion};
use bellwire_memfd::{pass, peer, poll};

use crate::child;
use crate::support::{region, service, test_deadline, thread_id, wait_until_parked};

fn state(page: &PeerRegion) -> LifeState {
    life_state(page.word(LIFE_OFFSET).load())
}

#[test]
fn a_killed_process_wakes_threads_parked_on_its_life_word() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::bind(dir.path(), service("life")).unwrap();
    // The child sends its page without a handshake. Older kernels have no such option.
    let _ = pass::set_passrights(endpoint.as_fd(), true);
    let mut child = child::start("life::body_that_is_killed", dir.path());
    assert!(poll::wait_readable(&[endpoint.as_fd()], test_deadline()).unwrap().any());
    let socket = endpoint.accept().unwrap().unwrap();
    assert!(poll::wait_readable(&[socket.as_fd()], test_deadline()).unwrap().any());
    let process = peer::peer_pidfd(socket.as_fd()).unwrap();
    let mut fds = pass::receive(socket.as_fd(), &mut [0; 8], 1).unwrap().into_objects();
    let fd = fds.next().unwrap();
    let page = PeerRegion::verify_and_map(fd, PAGE_SIZE).unwrap();
    assert_eq!(state(&page), LifeState::Alive);
    assert!(!process.has_exited());

    let parked = thread_id();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until_parked(parked);
            child.kill().unwrap();
        });
        let tail = page.word(Word::Tail.offset());
        let life = page.word(LIFE_OFFSET);
        let seen = life.load();
        // Without a deadline: only the kernel can wake this.
        while life_state(life.load()) == LifeState::Alive {
            futex_wait_any(&[(tail, 0), (life, seen)], None);
        }
    });
    assert_eq!(state(&page), LifeState::Died);
    child.wait().unwrap();
    assert!(process.has_exited());
}

#[test]
fn body_that_is_killed() {
    let Some(dir) = child::run_dir() else { return };
    let socket = connect(&dir, service("life")).unwrap();
    let (page, fd) = OwnRegion::create("page", PAGE_SIZE, |_| {}).unwrap();
    let _lock = LifeLock::hold(&page).expect("a life word");
    pass::send(socket.as_fd(), b"page", &[fd.as_fd()]).unwrap();
    child::wait_to_be_killed();
}

#[test]
fn a_thread_that_ends_holding_it_has_died() {
    let (own, peer) = region(PAGE_SIZE);
    assert_eq!(state(&peer), LifeState::Unarmed);
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                // The region moves here and back: it is Send.
                let own = own;
                std::mem::forget(LifeLock::hold(&own).unwrap());
                assert_eq!(state(&peer), LifeState::Alive);
            })
            .join()
            .unwrap();
    });
    let life = peer.word(LIFE_OFFSET);
    // A joined thread may still be on its way out of the kernel.
    while life_state(life.load()) == LifeState::Alive {
        futex_wait_any(&[(life, life.load())], test_deadline());
    }
    assert_eq!(state(&peer), LifeState::Died);
}

#[test]
fn releasing_a_life_word_disarms_it_and_wakes_the_peer() {
    let (own, peer) = region(PAGE_SIZE);
    let lock = LifeLock::hold(&own).unwrap();
    let life = peer.word(LIFE_OFFSET);
    let seen = life.load();
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let parked = scope.spawn(move || {
            sender.send(thread_id()).unwrap();
            while life.load() == seen {
                futex_wait_any(&[(life, seen)], None);
            }
        });
        wait_until_parked(receiver.recv().unwrap());
        drop(lock);
        parked.join().unwrap();
    });
    assert_eq!(state(&peer), LifeState::Unarmed);
}

#[test]
fn the_region_may_go_before_the_lock() {
    let (own, peer) = region(PAGE_SIZE);
    let lock = LifeLock::hold(&own).unwrap();
    drop(own);
    assert_eq!(state(&peer), LifeState::Alive);
    drop(lock);
    assert_eq!(state(&peer), LifeState::Unarmed);
}

#[test]
fn no_safe_function_reaches_a_life_word_that_is_held() {
    let (own, peer) = region(PAGE_SIZE);
    let lock = LifeLock::hold(&own).unwrap();
    let bytes = || {
        let mut bytes = [0; 64];
        peer.read(LIFE_OFFSET, &mut bytes);
        bytes
    };
    let held = bytes();
    // Where the C library would write when the lock is released.
    let victim = Box::new(7_u64);
    let at = (&raw const *victim).addr() as u64;
    let is_refused = |access: &dyn Fn()| catch_unwind(AssertUnwindSafe(access)).is_err();
    let behind = LIFE_OFFSET + LIFE_SIZE;
    for offset in [0, LIFE_OFFSET - 8, LIFE_OFFSET, LIFE_OFFSET + 8, behind - 8, behind] {
        let is_inside = (LIFE_OFFSET..behind).contains(&offset);
        assert_eq!(is_refused(&|| own.store_u64(offset, at, Ordering::Release)), is_inside);
        assert_eq!(is_refused(&|| _ = own.load_u64(offset, Ordering::Relaxed)), is_inside);
    }
    for (len, offset) in [(1, 0), (8, 1), (64, 7), (4096, 0)].into_iter().flat_map(|(len, skew)| {
        let ends = [LIFE_OFFSET, LIFE_OFFSET + 1, behind, behind + 1, PAGE_SIZE].into_iter();
        ends.filter_map(move |end| Some((len, (end - skew).checked_sub(len)?)))
    }) {
        let is_before = offset + len <= LIFE_OFFSET;
        let refused = is_refused(&|| own.write(offset, &[0xa5; PAGE_SIZE][..len]));
        assert_eq!(refused, !is_before, "{len} bytes at {offset:#x}");
        assert_eq!(is_refused(&|| own.read(offset, &mut [0; PAGE_SIZE][..len])), !is_before);
    }
    assert_eq!(bytes(), held);
    let link = OwnEnd { page: own, lane: region(PAGE_SIZE).0 };
    for slot in 0..2 * SAMPLE_SLOTS {
        link.stamp(slot, [at; 4]);
    }
    let counters = (0..PAGE_SIZE).step_by(8).filter(|at| !(LIFE_OFFSET..behind).contains(at));
    counters.for_each(|offset| link.export_counter(offset, at));
    assert_eq!(bytes(), held);
    drop(lock);
    assert_eq!((*victim, state(&peer)), (7, LifeState::Unarmed));
}

#[test]
fn a_life_word_is_held_once_and_only_where_there_is_room_for_it() {
    let (short, _peer) = region(LIFE_OFFSET + 32);
    assert!(LifeLock::hold(&short).is_none());
    let (own, peer) = region(PAGE_SIZE);
    let lock = LifeLock::hold(&own).unwrap();
    assert!(LifeLock::hold(&own).is_none(), "a mutex that is locked is not made anew");
    assert_eq!(state(&peer), LifeState::Alive);
    drop(lock);
    assert!(LifeLock::hold(&own).is_none());
    assert_eq!(state(&peer), LifeState::Unarmed);
}

#[test]
fn a_thread_holds_only_as_many_as_the_kernel_would_find() {
    let pages = (0..=MAX_PER_THREAD).map(|_| region(PAGE_SIZE));
    let (own, peers): (Vec<_>, Vec<_>) = pages.unzip();
    std::thread::scope(|scope| {
        let body = move || {
            let (last, most) = own.split_last().unwrap();
            let mut locks: Vec<_> = most.iter().map(|page| LifeLock::hold(page).unwrap()).collect();
            assert!(LifeLock::hold(last).is_none());
            drop(locks.pop());
            locks.push(LifeLock::hold(last).expect("one was given back"));
            std::mem::forget(locks);
        };
        scope.spawn(body).join().unwrap();
    });
    for (n, page) in peers.iter().enumerate().filter(|(n, _)| *n != MAX_PER_THREAD - 1) {
        let life = page.word(LIFE_OFFSET);
        while life_state(life.load()) == LifeState::Alive {
            futex_wait_any(&[(life, life.load())], test_deadline());
        }
        assert_eq!(life_state(life.load()), LifeState::Died, "number {n}");
    }
}

#[test]
fn a_parked_link_sees_the_death_of_the_thread_at_the_other_end() {
    use bellwire_core::wire::Doorbell;
    let (mut client, server) = crate::support::links(Doorbell::Futex, Doorbell::Futex);
    let parked = thread_id();
    let woken = std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        scope.spawn(move || {
            let lock = LifeLock::hold(&server.own().page).unwrap();
            sender.send(()).unwrap();
            wait_until_parked(parked);
            // Published before it dies: read first.
            server.own().page.store_u64(Word::Tail.offset(), 16, Ordering::Release);
            std::mem::forget(lock);
            // The socket stays open, as in a forked child of the peer's.
            std::mem::forget(server);
        });
        receiver.recv().unwrap();
        let park = |tail| Park { tail, head: None, until: None };
        // No ring came for it: the death woke it.
        assert_eq!(client.park(park(0)), Woken::Rung);
        client.park(park(16))
    });
    assert_eq!(woken, Woken::PeerGone);
    assert!(client.peer_gone());
    client.ring(Bell::Data);
    let until = Some(client.now().after(Duration::ZERO));
    assert_eq!(client.park(Park { tail: 16, head: None, until }), Woken::PeerGone);
}

/// One list of the thread has both: robust mutexes of the C library and life words.
#[test]
fn life_words_and_robust_mutexes_of_one_thread_are_held_and_released_in_any_order() {
    // Even: a mutex. What comes last is left to the end of the thread.
    for order in [[0, 1, 2, 3, 4, 5], [4, 3, 2, 1, 0, 5], [2, 5, 0, 3, 4, 1], [1, 4, 5, 0, 2, 3]] {
        let (own, peers): (Vec<_>, Vec<_>) = (0..3).map(|_| region(PAGE_SIZE)).unzip();
        let all_alive = || peers.iter().all(|peer| state(peer) == LifeState::Alive);
        std::thread::scope(|scope| {
            let body = || {
                let own = own;
                let mut held: Vec<_> = (0..6)
                    .map(|at| match at % 2 {
                        0 => (Some(RobustMutex::locked()), None),
                        _ => (None, Some(LifeLock::hold(&own[at / 2]).unwrap())),
                    })
                    .collect();
                assert!(all_alive());
                for at in &order[..5] {
                    held[*at] = (None, None);
                }
                std::mem::forget(held);
            };
            scope.spawn(body).join().unwrap();
        });
        for (at, peer) in peers.iter().enumerate() {
            let life = peer.word(LIFE_OFFSET);
            while life_state(life.load()) == LifeState::Alive {
                futex_wait_any(&[(life, life.load())], test_deadline());
            }
            let wanted = if order[5] == 2 * at + 1 { LifeState::Died } else { LifeState::Unarmed };
            assert_eq!(state(peer), wanted, "{order:?}, number {at}");
        }
    }
}

/// A mutex of the C library that this thread holds until it is dropped.
struct RobustMutex(Box<libc::pthread_mutex_t>);

impl RobustMutex {
    fn locked() -> Self {
        let mut attributes = std::mem::MaybeUninit::uninit();
        let mut mutex = Box::new(libc::PTHREAD_MUTEX_INITIALIZER);
        let attributes = attributes.as_mut_ptr();
        // SAFETY: a live local with room for them.
        unsafe { libc::pthread_mutexattr_init(attributes) };
        // SAFETY: initialized above.
        unsafe { libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST) };
        // SAFETY: the box keeps its place, and the attributes were initialized above.
        unsafe { libc::pthread_mutex_init(&raw mut *mutex, attributes) };
        // SAFETY: initialized above, and unlocked by the same thread.
        assert_eq!(unsafe { libc::pthread_mutex_lock(&raw mut *mutex) }, 0);
        Self(mutex)
    }
}

impl Drop for RobustMutex {
    fn drop(&mut self) {
        // SAFETY: this thread has it locked.
        assert_eq!(unsafe { libc::pthread_mutex_unlock(&raw mut *self.0) }, 0);
    }
}
