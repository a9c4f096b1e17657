//! What several modules need. Nothing here sleeps for a fixed time: it waits for events.

use std::os::windows::io::{AsHandle, BorrowedHandle};
use std::path::Path;

use bellwire_core::lane::Lanes;
use bellwire_core::wire::{Doorbell, PAGE_SIZE};
use bellwire_core::{Limits, ServiceName};
use bellwire_win::admission::Admission;
use bellwire_win::doorbell::Event;
use bellwire_win::endpoint::{BindError, ConnectError, Endpoint};
use bellwire_win::link::{Link, OwnEnd, Parts, PeerEnd};
use bellwire_win::pass::Channel;
use bellwire_win::peer::{self, Process, ProcessAccess};
use bellwire_win::prelude::*;
use bellwire_win::region::{OwnRegion, PeerRegion};
use bellwire_win::{clock, poll};

pub(crate) use crate::exchange::{ready, receive, taken, test_deadline};

pub(crate) fn service(name: &str) -> ServiceName {
    name.parse().unwrap()
}

pub(crate) fn region(size: usize) -> (OwnRegion, PeerRegion) {
    let (own, section) = OwnRegion::create("test", size, |_| {}).unwrap();
    (own, PeerRegion::verify_and_map(section, size).unwrap())
}

/// Both ends of a pipe in this process, the server's first. It may reach the client.
pub(crate) fn channels() -> (Channel, Channel) {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = bind(dir.path(), "pair");
    let client = connect(dir.path(), "pair");
    (accept(&endpoint), client)
}

pub(crate) fn try_bind(run_dir: &Path, name: &str) -> Result<Endpoint, BindError> {
    Endpoint::reserve(run_dir, service(name), &Admission::SameUser, false, None)
}

pub(crate) fn bind(run_dir: &Path, name: &str) -> Endpoint {
    try_bind(run_dir, name).unwrap()
}

pub(crate) fn connect(run_dir: &Path, name: &str) -> Channel {
    Endpoint::connect(run_dir, service(name), &[], test_deadline()).unwrap()
}

/// Connects as soon as somebody serves it.
pub(crate) fn connect_when_there(run_dir: &Path, name: &str) -> Channel {
    let limit = test_deadline();
    loop {
        match Endpoint::connect(run_dir, service(name), &[], limit) {
            Ok(channel) => return channel,
            Err(ConnectError::Absent { .. }) => {
                assert!(limit.is_some_and(|limit| clock::now() < limit), "nobody serves {name}");
                std::thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Waits for a client and opens its process.
pub(crate) fn accept(endpoint: &Endpoint) -> Channel {
    loop {
        if let Some(mut channel) = endpoint.accept().unwrap() {
            let process = peer::process(&channel, ProcessAccess::Handles).unwrap();
            channel.reach(process);
            return channel;
        }
        assert!(ready(endpoint.as_handle()), "nobody connects");
    }
}

/// Whether a handle is ready now.
pub(crate) fn is_ready(handle: BorrowedHandle<'_>) -> bool {
    poll::wait(&[handle], Some(clock::now())).unwrap().is_some()
}

/// Both ends of a session in this process. Its process does not end during a test: the pipe tells of the other's
/// end.
pub(crate) struct Pair {
    pub(crate) server: Link,
    pub(crate) client: Link,
    /// The client's page, once more.
    pub(crate) page: PeerRegion,
}

/// The server's end and the client's, with small lanes.
pub(crate) fn links() -> (Link, Link) {
    links_of(None)
}

/// The same; the client takes `process` for its peer's.
pub(crate) fn links_of(process: Option<Process>) -> (Link, Link) {
    let Pair { server, client, .. } = pair(PAGE_SIZE, process);
    (server, client)
}

/// A session with lanes of `lane` bytes; the client takes `process` for its peer's. The client trusts the server, and
/// the server does not trust the client.
pub(crate) fn pair(lane: usize, process: Option<Process>) -> Pair {
    let (server, client) = channels();
    let ((own_server, seen_server, _), (own_client, seen_client, page)) = (end(lane), end(lane));
    let (bell_server, rung_server) = bell();
    let (bell_client, rung_client) = bell();
    let link = |own, peer, channel, own_event, peer_event, process, trusts_peer| {
        Link::new(Parts {
            own,
            peer,
            channel,
            doorbell: Doorbell::Eventfd,
            own_event: Some(own_event),
            peer_event: Some(peer_event),
            process,
            limits: Limits::default(),
            lane_name: String::new(),
            trusts_peer,
        })
        .unwrap()
    };
    let server = link(own_server, seen_client, server, bell_server, rung_client, None, false);
    let client = link(own_client, seen_server, client, bell_client, rung_server, process, true);
    Pair { server, client, page }
}

/// One end's memory, as it sees it and as its peer does, and its page as one more sees it.
fn end(lane: usize) -> (OwnEnd, PeerEnd, PeerRegion) {
    let (page, section) = OwnRegion::create("page", PAGE_SIZE, |_| {}).unwrap();
    let once_more = section.try_clone().unwrap();
    let seen_page = PeerRegion::verify_and_map(section, PAGE_SIZE).unwrap();
    let (lane, seen_lane) = region(lane);
    let own = OwnEnd { page, lane };
    Lanes::open(&own);
    let once_more = PeerRegion::verify_and_map(once_more, PAGE_SIZE).unwrap();
    (own, PeerEnd { page: seen_page, lane: seen_lane }, once_more)
}

/// An event to be rung by, and the peer's handle to it.
fn bell() -> (Event, Event) {
    let own = Event::create().unwrap();
    let rung = Event::from_peer(own.for_peer().unwrap()).unwrap();
    (own, rung)
}
