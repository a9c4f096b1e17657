//! A session between two processes: who calls, and who serves.

use bellwire_core::drive::{Attachable, CallDriver, RespondOutcome, ServeDriver};
use bellwire_core::lane::{Armed, LaneTerms, Lanes, Wake};
use bellwire_core::resize::{FollowError, Shortage};
use bellwire_core::serve::Incoming;
use bellwire_core::wire::Status;
use bellwire_core::{Bell, Deadline, Geometry, Limits, Park, Port, SpinPolicy, Woken};
use bellwire_win::link::Link;
use bellwire_win::prelude::*;
use bellwire_win::snapshot::{Snapshot, SnapshotBuilder};
use tempfile::TempDir;

use crate::child::{self, Running};
use crate::exchange::link_over;
use crate::support::{accept, bind, connect, connect_when_there, test_deadline};

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
    pub(crate) driver: CallDriver<Link>,
    pub(crate) child: Running,
    _dir: TempDir,
}

impl Session {
    pub(crate) fn open(listens: Listens) -> Self {
        let (link, child, _dir) =
            link_with("session::body_connects", "session::body_listens", listens);
        Self { driver: CallDriver::new(link, lanes(), SpinPolicy::NEVER), child, _dir }
    }

    /// Calls with `request`, and checks the answer.
    pub(crate) fn call(&mut self, request: &[u8]) {
        let mut buffer = Vec::new();
        let ticket = self.driver.submit(request).unwrap();
        let until = &mut Deadline::at(test_deadline().unwrap());
        let reply = self.driver.wait_for_reply(until, &mut buffer).unwrap();
        assert_eq!((reply.ticket, reply.attached), (ticket, false));
        assert!(buffer[..reply.len] == answer(request), "{} bytes", request.len());
    }

    /// Says bye; the child ends well.
    pub(crate) fn close(mut self) {
        self.driver.close(bellwire_core::wire::CloseReason::Normal);
        drop(self.driver);
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
            let endpoint = bind(dir.path(), "calls");
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
    let endpoint = bind(&child::run_dir()?, "calls");
    Some(link_over(accept(&endpoint)))
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

/// Bytes that differ from their neighbors, none of them zero.
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

/// An answer in memory of its own.
struct Attached(Snapshot);

impl Attachable<Link> for Attached {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn pass(&self, link: &Link, id: u64) -> Result<(), Shortage> {
        link.pass_attachment(id, 0, &self.0)
    }
}

/// Adds one to each byte; a request of one zero byte ends the process without a word. What comes attached is answered
/// attached.
fn serve(link: Link) {
    let mut driver = ServeDriver::<_, Attached>::new(link, lanes(), u64::MAX, ());
    let mut buffer = Vec::new();
    loop {
        driver.end().disarm();
        // Pending answers first: with room for it, more is taken.
        loop {
            driver.flush().unwrap();
            if driver.is_blocked() {
                break;
            }
            match driver.next(&mut buffer).unwrap() {
                Some(Incoming::Request { id, len, .. }) => {
                    let request = &buffer[..len];
                    if request == [0] {
                        driver.commit();
                        std::process::abort();
                    }
                    let answer = answer(request);
                    let responded = driver.respond(id, Status::Ok, &answer).unwrap();
                    assert_eq!(responded, RespondOutcome::Done);
                }
                Some(Incoming::Attached { id }) => {
                    let (_, request) = driver.end_mut().port_mut().take_attachment(id).unwrap();
                    let responded = driver.attach(id, Attached(sealed(&answer(&request))));
                    assert_eq!(responded, Ok(RespondOutcome::Done));
                }
                Some(Incoming::Switch(switch)) => match driver.end_mut().follow(&switch) {
                    // A client that has closed has taken its memory along.
                    Err(FollowError::Short(_)) if driver.end().port().peer_gone() => return,
                    followed => followed.unwrap(),
                },
                Some(Incoming::Trim) => driver.trim().unwrap(),
                Some(_) => {}
                None => break,
            }
        }
        driver.commit();
        let Armed::Sleep { tail, head } = driver.arm().unwrap() else { continue };
        let park = Park { tail, head, until: None };
        if driver.end_mut().port_mut().park(park) == Woken::PeerGone {
            return;
        }
    }
}
