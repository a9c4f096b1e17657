use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use bellwire_core::lane::Lanes;
use bellwire_core::wire::{Doorbell, PAGE_SIZE};
use bellwire_core::{Geometry, Limits};
use bellwire_memfd::doorbell::Eventfd;
use bellwire_memfd::link::{Link, OwnEnd, Parts, PeerEnd};
use bellwire_memfd::region::{OwnRegion, PeerRegion};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::suite::Transport;
use super::suite::endpoints::{Script, serve};
use crate::support::parked::once_parked;

/// Both ends over sealed memfds, rung by futexes.
pub(crate) struct OverFutex;
/// The same, rung by eventfds.
pub(crate) struct OverEventfd;
/// The same, rung by bytes on the control socket.
pub(crate) struct OverSocket;

macro_rules! over {
    ($($transport:ident is rung by $doorbell:expr;)*) => {$(
        impl Transport for $transport {
            type Port = Link;

            fn connect(lane: Geometry, script: Box<Script>) -> (Link, Lanes) {
                connect($doorbell, lane, script)
            }

            fn cancel_when_parked(link: &Link) {
                let canceller = link.canceller().unwrap();
                once_parked(move || canceller.cancel());
            }

            fn take_cancel(link: &Link) {
                assert!(link.take_cancel());
            }
        }
    )*};
}

over! {
    OverFutex is rung by Doorbell::Futex;
    OverEventfd is rung by Doorbell::Eventfd;
    OverSocket is rung by Doorbell::Socket;
}

/// The serving end runs on a thread of its own until the calling end is gone, or it vanishes.
fn connect(doorbell: Doorbell, lane: Geometry, mut script: Box<Script>) -> (Link, Lanes) {
    let (calling, serving) = pair(doorbell, lane);
    thread::spawn(move || serve(serving, Lanes::new(lane, lane), &mut *script, Link::peer_gone));
    (calling, Lanes::new(lane, lane))
}

/// Both ends of a session.
fn pair(doorbell: Doorbell, lane: Geometry) -> (Link, Link) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (socket_a, socket_b) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let lane = usize::try_from(lane.size()).unwrap();
    let (own_a, seen_a) = end(lane);
    let (own_b, seen_b) = end(lane);
    let (bell_a, rung_a) = bell(doorbell);
    let (bell_b, rung_b) = bell(doorbell);
    let a = link(own_a, seen_b, socket_a, doorbell, bell_a, rung_b);
    let b = link(own_b, seen_a, socket_b, doorbell, bell_b, rung_a);
    (a, b)
}

fn end(lane: usize) -> (OwnEnd, PeerEnd) {
    let region = |size| {
        let (own, fd) = OwnRegion::create("conformance", size, |_| {}).unwrap();
        (own, PeerRegion::verify_and_map(fd, size).unwrap())
    };
    let ((page, seen_page), (lane, seen_lane)) = (region(PAGE_SIZE), region(lane));
    let own = OwnEnd { page, lane };
    Lanes::open(&own);
    (own, PeerEnd { page: seen_page, lane: seen_lane })
}

/// The eventfd of an end that wants one, twice: to wait at, and to ring.
fn bell(doorbell: Doorbell) -> (Option<Eventfd>, Option<Eventfd>) {
    if doorbell != Doorbell::Eventfd {
        return (None, None);
    }
    let own = Eventfd::create().unwrap();
    let sent = own.as_fd().try_clone_to_owned().unwrap();
    (Some(own), Some(Eventfd::from_peer(sent).unwrap()))
}

fn link(
    own: OwnEnd,
    peer: PeerEnd,
    socket: OwnedFd,
    doorbell: Doorbell,
    own_eventfd: Option<Eventfd>,
    peer_eventfd: Option<Eventfd>,
) -> Link {
    let parts = Parts {
        own,
        peer,
        channel: socket.into(),
        doorbell,
        own_event: own_eventfd,
        peer_event: peer_eventfd,
        process: None,
        limits: Limits::default(),
        lane_name: "conformance".into(),
        trusts_peer: true,
    };
    Link::new(parts).unwrap()
}
