//! A session between two processes: who calls, and who serves.

use std::collections::HashMap;
use std::os::windows::io::AsHandle;

use bellwire_core::drive::{Drive, SHRINK_AFTER};
use bellwire_core::lane::{Armed, LaneTerms, Lanes, Wake};
use bellwire_core::resize::{self, FollowError};
use bellwire_core::serve::{Flushed, Incoming, Passed, ServeMachine};
use bellwire_core::wire::{Doorbell, PAGE_SIZE, Status};
use bellwire_core::{Bell, Deadline, Geometry, Limits, Park, Port, SpinPolicy, Woken};
use bellwire_win::doorbell::Event;
use bellwire_win::endpoint::Endpoint;
use bellwire_win::link::{Link, OwnEnd, Parts, PeerEnd};
use bellwire_win::pass::Channel;
use bellwire_win::peer::{self, Reach};
use bellwire_win::region::{OwnRegion, PeerRegion};
use bellwire_win::snapshot::{Snapshot, SnapshotBuilder};
use tempfile::TempDir;

use crate::child::{self, Running};
use crate::support::{accept, connect, connect_when_there, patience, receive, service};

/// Which process has the server's end of the pipe, whose doing all handles cross by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listens {
    Caller,
    Other,
}

impl Listens {
    pub(crate) const BOTH: [Self; 2] = [Self::Caller, Self::Other];
}

/// A session with a child that adds one to each byte.
pub(crate) struct Session {
    pub(crate) drive: Drive<Link>,
    pub(crate) child: Running,
    _dir: TempDir,
}

impl Session {
    pub(crate) fn open(listens: Listens) -> Self {
        let (link, child, _dir) =
            link_with("session::body_connects", "session::body_listens", listens);
        Self { drive: Drive::new(link, lanes(), SpinPolicy::NEVER), child, _dir }
    }

    /// Calls with `request`, and checks the answer.
    pub(crate) fn call(&mut self, request: &[u8]) {
        let mut buffer = Vec::new();
        let ticket = self.drive.submit(request).unwrap();
        let until = &mut Deadline::at(patience().unwrap());
        let reply = self.drive.wait_for_reply(until, &mut buffer).unwrap();
        assert_eq!((reply.ticket, reply.attached), (ticket, false));
        assert!(buffer[..reply.len] == answer(request), "{} bytes", request.len());
    }

    /// Says bye; the child ends well.
    pub(crate) fn close(mut self) {
        self.drive.close(bellwire_core::wire::CloseReason::Normal);
        drop(self.drive);
        assert!(self.child.wait());
    }
}

/// A link to a child, which runs the first body if this process listens, and else the second.
pub(crate) fn link_with(
    connects: &str,
    listens_there: &str,
    listens: Listens,
) -> (Link, Running, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let (link, child) = match listens {
        Listens::Caller => {
            let endpoint = Endpoint::bind_admitting(
                dir.path(),
                service("calls"),
                &bellwire_win::admission::Admission::SameUser,
            )
            .unwrap();
            let child = child::start(connects, dir.path());
            (link_over(accept(&endpoint)), child)
        }
        Listens::Other => {
            let child = child::start(listens_there, dir.path());
            (link_over(connect_when_there(dir.path(), "calls")), child)
        }
    };
    (link, child, dir)
}

/// The child's end of [`link_with`], where it connects.
pub(crate) fn connected() -> Option<Link> {
    child::run_dir().map(|dir| link_over(connect(&dir, "calls")))
}

/// The child's end of [`link_with`], where it listens.
pub(crate) fn accepted() -> Option<Link> {
    let endpoint = Endpoint::bind_admitting(
        &child::run_dir()?,
        service("calls"),
        &bellwire_win::admission::Admission::SameUser,
    )
    .unwrap();
    Some(link_over(accept(&endpoint)))
}

/// Exchanges memory over a channel and makes a link of it, as a handshake would.
pub(crate) fn link_over(channel: Channel) -> Link {
    let (page, page_handle) = OwnRegion::create("page", PAGE_SIZE, |_| {}).unwrap();
    let lane_size = usize::try_from(Geometry::DEFAULT.size()).unwrap();
    let (lane, lane_handle) = OwnRegion::create("lane", lane_size, |_| {}).unwrap();
    let own = OwnEnd { page, lane };
    Lanes::open(&own);
    let own_event = Event::create().unwrap();
    let ringer = own_event.for_peer().unwrap();
    let sent = [page_handle.as_handle(), lane_handle.as_handle(), ringer.as_handle()];
    channel.send(b"memory", &sent).unwrap();
    let [page, lane, event] = receive(&channel).unwrap().1.expect_handles().unwrap();
    let peer = PeerEnd {
        page: PeerRegion::verify_and_map(page, PAGE_SIZE).unwrap(),
        lane: PeerRegion::verify_and_map(lane, lane_size).unwrap(),
    };
    let peer_event = Some(Event::from_peer(event).unwrap());
    let process = match channel.process() {
        Some(_) => None,
        None => Some(peer::process(&channel, Reach::Watch).unwrap()),
    };
    Link::new(Parts {
        own,
        peer,
        channel,
        doorbell: Doorbell::Eventfd,
        own_event: Some(own_event),
        peer_event,
        process,
        limits: Limits::default(),
        lane_name: String::new(),
        trusts_peer: true,
    })
    .unwrap()
}

/// Lanes that grow as far as the limits go.
pub(crate) fn lanes() -> Lanes {
    let limits = Limits::default();
    let terms = LaneTerms::agreed(Geometry::DEFAULT, Geometry::DEFAULT, &limits, &limits);
    Lanes::with_terms(terms, terms)
}

pub(crate) fn ring(link: &Link, wake: Wake) {
    if wake.data {
        link.ring(Bell::Data);
    }
    if wake.space {
        link.ring(Bell::Space);
    }
}

/// Bytes that differ from their neighbours, none of them zero.
pub(crate) fn request(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ at >> 8) as u8 | 1).collect()
}

pub(crate) fn answer(request: &[u8]) -> Vec<u8> {
    request.iter().map(|byte| byte.wrapping_add(1)).collect()
}

pub(crate) fn sealed(bytes: &[u8]) -> Snapshot {
    let mut builder = SnapshotBuilder::create("x", bytes.len()).unwrap();
    builder.bytes().copy_from_slice(bytes);
    builder.seal().unwrap()
}

#[test]
fn body_connects() {
    connected().into_iter().for_each(serve);
}

#[test]
fn body_listens() {
    accepted().into_iter().for_each(serve);
}

/// Adds one to each byte; a request of one zero byte ends the process without a word. What comes attached is answered
/// attached.
fn serve(mut link: Link) {
    let (mut lanes, mut machine, mut buffer) = (lanes(), ServeMachine::new(u64::MAX), Vec::new());
    let mut kept: HashMap<u64, Snapshot> = HashMap::new();
    loop {
        lanes.disarm(link.own());
        // What is owed first: with room for it, more is taken.
        loop {
            let pass = |id| link.pass_attachment(id, 0, &kept.remove(&id).unwrap());
            match machine.flush(&mut lanes, link.own(), link.peer(), pass).unwrap() {
                Flushed::Done => {}
                Flushed::Grow(to) => {
                    resize::grow(&mut link, &mut lanes, to).unwrap();
                    continue;
                }
                _ => break,
            }
            match machine.next(&mut lanes, link.own(), link.peer(), &mut buffer).unwrap() {
                Some(Incoming::Request { id, len, .. }) => {
                    let request = &buffer[..len];
                    if request == [0] {
                        let wake = lanes.commit(link.own(), link.peer());
                        ring(&link, wake);
                        std::process::abort();
                    }
                    machine.respond_later(id, Status::Ok, &answer(request));
                }
                Some(Incoming::Attached { id }) => {
                    let answer = sealed(&answer(&link.take_attachment(id).unwrap().1));
                    let (own, peer, len) = (link.own(), link.peer(), answer.len() as u64);
                    let pass = |id| link.pass_attachment(id, 0, &answer);
                    match machine.respond_attached(&mut lanes, own, peer, id, len, pass).unwrap() {
                        Passed::Later => drop(kept.insert(id, answer)),
                        passed => assert_eq!(passed, Passed::Now),
                    }
                }
                Some(Incoming::Switch(switch)) => {
                    match resize::follow(&mut link, &mut lanes, &switch) {
                        // A client that has closed has taken its memory along.
                        Err(FollowError::Short(_)) if link.peer_gone() => return,
                        followed => followed.unwrap(),
                    }
                }
                Some(Incoming::Trim) => {
                    resize::shrink(&mut link, &mut lanes).unwrap();
                    machine.trimmed(&mut lanes, link.own(), link.peer()).unwrap();
                }
                Some(_) => {}
                None => break,
            }
        }
        let wake = lanes.commit(link.own(), link.peer());
        ring(&link, wake);
        if lanes.take_maintenance() && resize::maintain(&mut link, &mut lanes, SHRINK_AFTER) {
            continue;
        }
        let (armed, wake) = lanes.arm(link.own(), link.peer(), machine.is_blocked()).unwrap();
        ring(&link, wake);
        let Armed::Sleep { tail, head } = armed else { continue };
        if link.park(Park { tail, head, until: None }) == Woken::PeerGone {
            return;
        }
    }
}
