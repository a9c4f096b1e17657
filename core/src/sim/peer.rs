use alloc::vec::Vec;
use core::time::Duration;

use super::SimEnd;
use crate::Instant;
use crate::lane::{Armed, Lanes};
use crate::serve::{Incoming, ServeMachine};
use crate::wire::Status;

/// What the peer does after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It goes on at once.
    Again,
    /// It is busy until then: rings do not matter.
    Busy(Instant),
    /// It has armed and parks until it is rung, or until then.
    Parked(Option<Instant>),
    /// Its process ends: the driven end's waits say [`Woken::PeerGone`](crate::Woken::PeerGone) from now on.
    Gone,
}

/// The end of a simulated session that is not driven: a closure, or a [`SimServer`].
pub trait Peer {
    /// Runs for one step. Called while the driven end spins or is parked.
    fn step(&mut self, end: &SimEnd) -> Step;
}

impl<F: FnMut(&SimEnd) -> Step> Peer for F {
    fn step(&mut self, end: &SimEnd) -> Step {
        self(end)
    }
}

/// A peer that serves requests by a handler, one after the other, and parks when there are none.
#[derive(Debug)]
pub struct SimServer<H> {
    handler: H,
    takes: Duration,
    machine: ServeMachine,
    lanes: Option<Lanes>,
    buffer: Vec<u8>,
    /// The answer that is being worked out.
    answer: Option<(u64, Status, Vec<u8>)>,
}

impl<H: FnMut(&[u8]) -> (Status, Vec<u8>)> SimServer<H> {
    /// A server whose handler takes no time.
    pub fn new(handler: H) -> Self {
        Self {
            handler,
            takes: Duration::ZERO,
            machine: ServeMachine::new(u64::MAX),
            lanes: None,
            buffer: Vec::new(),
            answer: None,
        }
    }

    /// Lets the handler take this much virtual time for each request.
    #[must_use]
    pub fn taking(mut self, time: Duration) -> Self {
        self.takes = time;
        self
    }
}

impl<H: FnMut(&[u8]) -> (Status, Vec<u8>)> Peer for SimServer<H> {
    fn step(&mut self, end: &SimEnd) -> Step {
        let lanes = self.lanes.get_or_insert_with(|| end.lanes());
        let (own, peer) = (end.own(), end.peer());
        lanes.disarm(own);
        if let Some((id, status, payload)) = self.answer.take() {
            let answered = self.machine.respond(lanes, own, peer, id, status, &payload);
            answered.expect("the driven end is honest");
        }
        let flushed = self.machine.flush(lanes, own, peer).expect("the driven end is honest");
        end.wake(lanes.commit(own, peer));
        let incoming = self.machine.next(lanes, own, peer, &mut self.buffer);
        match incoming.expect("the driven end is honest") {
            Some(Incoming::Request { id, len }) => {
                let request = self.buffer.get(..len).expect("the payload was copied there");
                let (status, answer) = (self.handler)(request);
                self.answer = Some((id, status, answer));
                return Step::Busy(end.now().after(self.takes));
            }
            Some(Incoming::Cancel { .. }) => return Step::Again,
            None if self.machine.closed().is_some() => return Step::Parked(None),
            None => {}
        }
        let (armed, wake) = lanes.arm(own, peer, !flushed).expect("the driven end is honest");
        end.wake(wake);
        if armed == Armed::Moved { Step::Again } else { Step::Parked(None) }
    }
}
