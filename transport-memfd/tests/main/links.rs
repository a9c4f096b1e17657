//! Both ends of a session in one process, over sealed memfds. The facade's conformance tests include this file.

use std::os::fd::{AsFd, OwnedFd};

use bellwire_core::Limits;
use bellwire_core::lane::Lanes;
use bellwire_core::wire::{Doorbell, PAGE_SIZE};
use bellwire_memfd::doorbell::Eventfd;
use bellwire_memfd::link::{Link, OwnEnd, Parts, PeerEnd};
use bellwire_memfd::prelude::*;
use bellwire_memfd::region::{OwnRegion, PeerRegion};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// With lanes of so many bytes. Each is rung as its doorbell says.
pub(crate) fn links(lane: usize, first: Doorbell, second: Doorbell) -> (Link, Link) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (socket_a, socket_b) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let ((own_a, seen_a), (own_b, seen_b)) = (end(lane), end(lane));
    let ((bell_a, rung_a), (bell_b, rung_b)) = (bell(first).unzip(), bell(second).unzip());
    let link = |own, peer, socket: OwnedFd, doorbell, own_event, peer_event| {
        Link::new(Parts {
            own,
            peer,
            channel: socket.into(),
            doorbell,
            own_event,
            peer_event,
            process: None,
            limits: Limits::default(),
            lane_name: "test-lane".into(),
            trusts_peer: true,
        })
        .unwrap()
    };
    let a = link(own_a, seen_b, socket_a, first, bell_a, rung_b);
    let b = link(own_b, seen_a, socket_b, second, bell_b, rung_a);
    (a, b)
}

/// One end's memory, as it sees it and as its peer does.
fn end(lane: usize) -> (OwnEnd, PeerEnd) {
    let region = |size| {
        let (own, fd) = OwnRegion::create("test", size, |_| {}).unwrap();
        (own, PeerRegion::verify_and_map(fd, size).unwrap())
    };
    let ((page, seen_page), (lane, seen_lane)) = (region(PAGE_SIZE), region(lane));
    let own = OwnEnd { page, lane };
    Lanes::open(&own);
    (own, PeerEnd { page: seen_page, lane: seen_lane })
}

/// The eventfd of an end that wants one, twice: to wait at, and to ring.
fn bell(doorbell: Doorbell) -> Option<(Eventfd, Eventfd)> {
    (doorbell == Doorbell::Eventfd).then(|| {
        let own = Eventfd::create().unwrap();
        let sent = own.as_fd().try_clone_to_owned().unwrap();
        (own, Eventfd::from_peer(sent).unwrap())
    })
}
