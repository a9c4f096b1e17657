use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use bellwire_core::lane::Epoch;
use bellwire_core::resize::{Resource, Shortage};
use bellwire_core::sync::{AtomicBool, Ordering};
use bellwire_core::wire::{Attachment, Doorbell, Join, MAX_CONTROL, Message, Ready};
use bellwire_core::{Bell, Geometry, OwnMemory, Park, PeerFault, Port, Woken, Word};
use bellwire_memfd::link::Link;
use bellwire_memfd::memory::{LoanAccount, MemoryPool, Quota};
use bellwire_memfd::prelude::*;
use bellwire_memfd::region::{OwnRegion, PeerRegion};
use bellwire_memfd::{clock, pass, poll};

use crate::child;
use crate::support::{links, socket_pair, test_deadline};

fn until_data(tail: u64) -> Park {
    Park { tail, head: None, until: None }
}

fn send(link: &Link, message: &Message) {
    let mut bytes = [0; MAX_CONTROL];
    let len = message.encode(0, &mut bytes);
    pass::send(link.arrived(), &bytes[..len], &[]).unwrap();
}

/// The canceller's word is waited on only while there is one: the end of the last one must not hide its cancel until
/// the wait checks for the peer's death.
#[test]
fn a_cancel_by_an_end_that_is_gone_is_noticed_at_once() {
    let mut late = 0;
    for round in 0..600 {
        let (mut waiter, _ringer) = links(Doorbell::Futex, Doorbell::Futex);
        let canceller = waiter.canceller().unwrap();
        // Every second one comes when the waiter sleeps.
        let delay = round % 200 * if round % 2 == 0 { 1 } else { 100 };
        let begun = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                begun.store(true, Ordering::Release);
                for _ in 0..delay {
                    std::hint::spin_loop();
                }
                canceller.cancel();
            });
            while !begun.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            let began = clock::now();
            assert_eq!(waiter.park(until_data(0)), Woken::Cancelled, "round {round}");
            late += u32::from(clock::now().since(began) >= Duration::from_millis(90));
        });
    }
    // Others may want the processors now and then. Of 2000, unseen cancellations were 264.
    assert!(late < 20, "{late}");
}

#[test]
fn an_unexpected_message_on_an_open_session_ends_the_wait_and_is_reported() {
    for message in [
        Message::Ready(Ready { session: 9 }),
        Message::Join(Join { session: 9 }),
        // What belongs there comes with one descriptor.
        Message::Lane(Epoch::first(Geometry::DEFAULT)),
        Message::Attachment(Attachment { id: 1, generation: 0, len: 1 }),
    ] {
        let (mut waiter, ringer) = links(Doorbell::Socket, Doorbell::Futex);
        ringer.ring(Bell::Data);
        let park = Park { until: Some(clock::now()), ..until_data(0) };
        assert_eq!(waiter.park(park), Woken::Deadline, "a ring is only a ring");
        assert_eq!(waiter.fault(), None);
        send(&ringer, &message);
        assert_eq!(waiter.park(until_data(0)), Woken::PeerGone, "{message:?}");
        assert!(matches!(waiter.fault(), Some(PeerFault::Control { fds: 0, .. })), "{message:?}");
    }
}

#[test]
fn memory_on_the_socket_is_kept_for_its_record_and_the_wait_continues() {
    let (mut waiter, ringer) = links(Doorbell::Socket, Doorbell::Futex);
    let (_own, fd) = OwnRegion::create("next", 8192, |_| {}).unwrap();
    let epoch = Epoch { number: 2, size: Geometry::new(8192).unwrap() };
    let mut bytes = [0; MAX_CONTROL];
    let len = Message::Lane(epoch).encode(1, &mut bytes);
    pass::send(ringer.arrived(), &bytes[..len], &[fd.as_fd()]).unwrap();
    ringer.ring(Bell::Data);
    let park = Park { until: Some(clock::now()), ..until_data(0) };
    assert_eq!(waiter.park(park), Woken::Deadline);
    let mut buf = [0; MAX_CONTROL];
    let empty = pass::receive(waiter.arrived(), &mut buf, 1).err();
    assert_eq!(empty, Some(pass::ReceiveError::WouldBlock), "all was taken off the socket");
    waiter.follow(epoch).unwrap();
    assert_eq!((waiter.fault(), waiter.peer().lane.size()), (None, 8192));
}

#[test]
fn lanes_that_a_peer_keeps_are_on_its_users_quota() {
    let (sender, peer) = links(Doorbell::Socket, Doorbell::Futex);
    let pool = Arc::new(MemoryPool::new(1 << 20, Box::new(())));
    let quota = Arc::new(Quota::new(1 << 20, pool));
    let mut sender =
        sender.on_quota_of(LoanAccount { quota: Arc::clone(&quota), is_watching: true });
    let size = Geometry::new(256 << 10).unwrap();
    let mut kept = Vec::new();
    let mut grow = |kept: &mut Vec<_>, number| {
        let epoch = Epoch { number, size };
        sender.offer(epoch)?;
        sender.adopt(epoch);
        let received = pass::receive(peer.arrived(), &mut [0; MAX_CONTROL], 1).unwrap();
        kept.extend(received.into_objects());
        Ok::<_, Shortage>(())
    };
    for number in 2..=5 {
        grow(&mut kept, number).unwrap();
    }
    assert_eq!(grow(&mut kept, 6).unwrap_err().resource, Resource::Quota);
    assert_eq!(quota.held(), 1 << 20);
    // One of them stays mapped, and another one is in flight.
    let map = PeerRegion::verify_and_map(kept.remove(0), 256 << 10).unwrap();
    let (here, there) = socket_pair();
    pass::send(here.as_fd(), &[1], &[kept.remove(0).as_fd()]).unwrap();
    kept.clear();
    grow(&mut kept, 6).unwrap();
    grow(&mut kept, 7).unwrap();
    assert!(grow(&mut kept, 8).is_err());
    drop((map, here, there));
    grow(&mut kept, 8).unwrap();
}

#[test]
fn a_socket_full_of_rings_does_not_block_its_sender() {
    let (mut waiter, ringer) = links(Doorbell::Socket, Doorbell::Futex);
    for _ in 0..10_000 {
        ringer.ring(Bell::Data);
    }
    waiter.acknowledge();
    let mut buf = [0; MAX_CONTROL];
    assert_eq!(
        pass::receive(waiter.arrived(), &mut buf, 0).err(),
        Some(pass::ReceiveError::WouldBlock)
    );
}

#[test]
fn descriptors_that_come_with_a_ring_are_closed() {
    let (mut waiter, ringer) = links(Doorbell::Socket, Doorbell::Futex);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let mut bytes = [0; MAX_CONTROL];
    let len = Message::Ring.encode(0, &mut bytes);
    pass::send(ringer.arrived(), &bytes[..len], &[writer.as_fd()]).unwrap();
    drop(writer);
    waiter.acknowledge();
    assert!(poll::wait_readable(&[reader.as_fd()], test_deadline()).unwrap().is(0));
}

#[test]
fn an_event_loop_polls_one_descriptor_for_rings_and_death() {
    for doorbell in [Doorbell::Eventfd, Doorbell::Socket] {
        let (mut waiter, ringer) = links(doorbell, Doorbell::Futex);
        let ready = |waiter: &Link| {
            let fd = waiter.pollable().unwrap().expect("a descriptor");
            poll::wait_readable(&[fd], Some(clock::now())).unwrap().any()
        };
        assert!(!ready(&waiter), "{doorbell:?}");
        for _ in 0..3 {
            ringer.ring(Bell::Data);
            assert!(ready(&waiter), "{doorbell:?}");
            waiter.acknowledge();
            assert!(!ready(&waiter), "{doorbell:?}");
        }
        drop(ringer);
        assert!(ready(&waiter), "{doorbell:?}");
        waiter.acknowledge();
        assert!(ready(&waiter), "a peer that is gone stays so: {doorbell:?}");
    }
    let (waiter, _ringer) = links(Doorbell::Futex, Doorbell::Futex);
    assert!(waiter.pollable().unwrap().is_none());
}

#[test]
fn an_event_loop_polls_one_descriptor_more() {
    child::run("link::body_that_counts_descriptors");
}

#[test]
fn body_that_counts_descriptors() {
    if child::run_dir().is_none() {
        return;
    }
    let (waiter, _ringer) = links(Doorbell::Eventfd, Doorbell::Futex);
    let held = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = held();
    for _ in 0..2 {
        waiter.pollable().unwrap().expect("a descriptor");
        assert_eq!(held(), before + 1);
    }
}

#[test]
fn a_peer_with_an_invalid_doorbell_is_rung_by_futex() {
    let (ringer, waiter) = links(Doorbell::Futex, Doorbell::Futex);
    for wanted in [0, 4, u64::MAX, Doorbell::Eventfd as u64] {
        waiter.own().store(Word::Doorbell, wanted, Ordering::Release);
        ringer.ring(Bell::Data);
    }
    let rings = ringer.own().page.load_u64(Word::Rings.offset(), Ordering::Relaxed);
    assert_eq!(rings, 4);
}

#[test]
fn unread_rings_on_a_socket_are_bounded() {
    let (waiter, ringer) = links(Doorbell::Socket, Doorbell::Futex);
    let unread = || {
        let flags = rustix::net::RecvFlags::DONTWAIT;
        let next = || rustix::net::recv(waiter.arrived(), &mut [0_u8; 64], flags).ok();
        std::iter::from_fn(next).take_while(|(_, len)| *len > 0).count()
    };
    (0..1000).for_each(|_| ringer.ring(Bell::Data));
    // A quarter of what fits.
    let rings = unread();
    assert!((1..150).contains(&rings), "{rings}");
    ringer.ring(Bell::Data);
    assert_eq!(unread(), 1, "what was read makes room");
}

/// It looks like the end of the socket, and keeps it readable.
#[test]
fn an_empty_message_is_a_violation_and_is_taken_off_the_socket() {
    for fds in [0, 1, 16] {
        let (mut waiter, ringer) = links(Doorbell::Socket, Doorbell::Futex);
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        pass::send(ringer.arrived(), b"", &vec![writer.as_fd(); fds]).unwrap();
        drop(writer);
        assert_eq!(waiter.park(until_data(0)), Woken::PeerGone);
        let why = "it is empty";
        assert_eq!(waiter.fault(), Some(PeerFault::Control { len: 0, fds, why }));
        // None of its descriptors is left anywhere.
        assert!(poll::wait_readable(&[reader.as_fd()], test_deadline()).unwrap().is(0));
        let none = pass::receive(waiter.arrived(), &mut [0; MAX_CONTROL], 0).unwrap_err();
        assert_eq!(none, pass::ReceiveError::WouldBlock);
    }
}
