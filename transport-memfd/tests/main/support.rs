//! What several modules need. Nothing here sleeps for a fixed time: it waits for events.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bellwire_core::wire::{Doorbell, PAGE_SIZE};
use bellwire_core::{Instant, Limits, ServiceName};
use bellwire_memfd::clock;
use bellwire_memfd::doorbell::Eventfd;
use bellwire_memfd::link::{Link, OwnEnd, Parts, PeerEnd};
use bellwire_memfd::region::{OwnRegion, PeerRegion};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// A test that waits longer than this hangs; nothing is measured with it.
pub(crate) fn patience() -> Option<Instant> {
    Some(clock::now().after(Duration::from_secs(60)))
}

pub(crate) fn service(name: &str) -> ServiceName {
    name.parse().unwrap()
}

pub(crate) fn socket_pair() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

pub(crate) fn region(size: usize) -> (OwnRegion, PeerRegion) {
    let (own, fd) = OwnRegion::create("test", size, |_| {}).unwrap();
    (own, PeerRegion::verify_and_map(fd, size).unwrap())
}

/// Both ends of a session in this process. Each is rung as its doorbell says.
pub(crate) fn links(first: Doorbell, second: Doorbell) -> (Link, Link) {
    let (socket_a, socket_b) = socket_pair();
    let (page_a, seen_page_a) = region(PAGE_SIZE);
    let (page_b, seen_page_b) = region(PAGE_SIZE);
    let (lane_a, seen_lane_a) = region(PAGE_SIZE);
    let (lane_b, seen_lane_b) = region(PAGE_SIZE);
    let bell = |doorbell| {
        (doorbell == Doorbell::Eventfd).then(|| {
            let own = Eventfd::create().unwrap();
            let sent = own.as_fd().try_clone_to_owned().unwrap();
            (own, Eventfd::from_peer(sent).unwrap())
        })
    };
    let (own_a, rung_a) = bell(first).unzip();
    let (own_b, rung_b) = bell(second).unzip();
    let make = |own, peer, socket: OwnedFd, doorbell, own_event, peer_event| {
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
    let a = make(
        OwnEnd { page: page_a, lane: lane_a },
        PeerEnd { page: seen_page_b, lane: seen_lane_b },
        socket_a,
        first,
        own_a,
        rung_b,
    );
    let b = make(
        OwnEnd { page: page_b, lane: lane_b },
        PeerEnd { page: seen_page_a, lane: seen_lane_a },
        socket_b,
        second,
        own_b,
        rung_a,
    );
    (a, b)
}

/// The kernel's number of the calling thread.
pub(crate) fn thread_id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Waits until the thread sleeps in a system call that waits for a doorbell.
pub(crate) fn wait_until_parked(thread: i32) {
    let calls = [libc::SYS_futex_waitv, libc::SYS_futex, libc::SYS_ppoll];
    loop {
        let path = format!("/proc/self/task/{thread}/syscall");
        let text = std::fs::read_to_string(path).expect("the thread is alive");
        let call = text.split_whitespace().next().and_then(|n| n.parse::<libc::c_long>().ok());
        if call.is_some_and(|call| calls.contains(&call)) {
            return;
        }
        std::thread::yield_now();
    }
}
