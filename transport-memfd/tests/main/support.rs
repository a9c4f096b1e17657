//! What several modules need. Nothing here sleeps for a fixed time: it waits for events.

use std::os::fd::OwnedFd;
use std::time::Duration;

use bellwire_core::wire::{Doorbell, PAGE_SIZE};
use bellwire_core::{Instant, ServiceName};
use bellwire_memfd::clock;
use bellwire_memfd::link::Link;
use bellwire_memfd::prelude::*;
use bellwire_memfd::region::{OwnRegion, PeerRegion};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// A test that waits longer than this hangs; nothing is measured with it.
pub(crate) fn test_deadline() -> Option<Instant> {
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

/// Both ends of a session in this process, with small lanes. Each is rung as its doorbell says.
pub(crate) fn links(first: Doorbell, second: Doorbell) -> (Link, Link) {
    crate::links::links(PAGE_SIZE, first, second)
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
