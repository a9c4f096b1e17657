use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::{SimEnd, Step};
use crate::Port;
use crate::drive::SHRINK_AFTER;
use crate::lane::{Armed, LaneStats, Lanes, PushError};
use crate::resize::{self, FollowError, ResizeError};
use crate::serve::{Flushed, Incoming, Passed, RespondError, ServeCounts, ServeMachine};
use crate::wire::{CloseReason, Status};

/// How soon a server retries after a shortage.
const RETRY: Duration = Duration::from_millis(1);

/// The serving end of a simulated session, as in a server: it resizes its lane, follows the peer's, and attaches what
/// no lane carries. It panics on a protocol violation of its peer.
#[derive(Debug)]
pub struct Serving {
    machine: ServeMachine,
    lanes: Lanes,
    buffer: Vec<u8>,
    attach_from: usize,
    stream_from: usize,
    shrink_after: Duration,
    /// Attached answers that were not passed yet.
    kept: BTreeMap<u64, Vec<u8>>,
    /// A request whose memory could not be mapped.
    unmapped: Option<u64>,
}

/// What the peer sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A request.
    Request {
        /// The id to answer it with.
        id: u64,
        /// The request's bytes.
        payload: Vec<u8>,
        /// Whether it was attached.
        attached: bool,
    },
    /// The peer no longer wants this answer.
    Cancel {
        /// The request.
        id: u64,
    },
}

impl Serving {
    /// Creates a server over the lanes of a new session, with at most `limit` requests in flight.
    pub fn new(end: &SimEnd, limit: u64) -> Self {
        Self {
            machine: ServeMachine::new(limit),
            lanes: end.lanes(),
            buffer: Vec::new(),
            attach_from: usize::MAX,
            stream_from: usize::MAX,
            shrink_after: SHRINK_AFTER,
            kept: BTreeMap::new(),
            unmapped: None,
        }
    }

    /// Attaches answers of at least this many bytes.
    #[must_use]
    pub fn attaching(mut self, from: usize) -> Self {
        self.attach_from = from;
        self
    }

    /// Sends answers of at least this many bytes in parts.
    #[must_use]
    pub fn streaming(mut self, from: usize) -> Self {
        self.stream_from = from;
        self
    }

    /// Shrinks a lane that has been oversized for `span`.
    #[must_use]
    pub fn shrinking_after(mut self, span: Duration) -> Self {
        self.shrink_after = span;
        self
    }

    /// Returns the counters.
    pub fn counts(&self) -> ServeCounts {
        self.machine.counts()
    }

    /// Returns why the peer closed its lane, if it did.
    pub fn closed(&self) -> Option<CloseReason> {
        self.machine.closed()
    }

    /// Returns the statistics of the lane that this end writes and of the one that it reads.
    pub fn lane_stats(&self) -> [LaneStats; 2] {
        [self.lanes.sent(), self.lanes.received()]
    }

    /// Returns both lanes.
    pub fn lanes(&mut self) -> &mut Lanes {
        &mut self.lanes
    }

    /// Returns what the peer sent next, if anything; follows and trims lanes on the way. After a shortage, `Err` is
    /// when to retry.
    pub fn next(&mut self, end: &SimEnd) -> Result<Option<Taken>, Step> {
        let again = Step::Busy(end.now().after(RETRY));
        if let Some(id) = self.unmapped.take() {
            return self.take_attached(end, id).map(Some).ok_or(again);
        }
        loop {
            let Self { machine, lanes, buffer, .. } = self;
            let incoming = machine.next(lanes, end.own(), end.peer(), buffer);
            let taken = match incoming.expect("the peer is honest") {
                None => return Ok(None),
                // The buffer stays unchanged.
                Some(Incoming::Part) => continue,
                Some(Incoming::GivenUp { .. }) => unreachable!("nobody gives up here"),
                Some(Incoming::Request { id, len, .. }) => {
                    let payload = buffer.get(..len).expect("the payload was copied there").to_vec();
                    Taken::Request { id, payload, attached: false }
                }
                Some(Incoming::Attached { id }) => self.take_attached(end, id).ok_or(again)?,
                Some(Incoming::Cancel { id }) => Taken::Cancel { id },
                Some(Incoming::Switch(switch)) => {
                    match resize::follow(&mut { end }, lanes, &switch) {
                        Ok(()) => {}
                        Err(FollowError::Short(_)) => return Err(again),
                        Err(FollowError::Lied(fault)) => panic!("the peer lied: {fault}"),
                    }
                    self.publish(end);
                    continue;
                }
                Some(Incoming::Trim) => {
                    // A lane that cannot shrink now will when it is idle.
                    let _ = resize::shrink(&mut { end }, &mut self.lanes);
                    let trimmed = self.machine.trimmed(&mut self.lanes, end.own(), end.peer());
                    trimmed.expect("the peer is honest");
                    continue;
                }
            };
            return Ok(Some(taken));
        }
    }

    fn take_attached(&mut self, end: &SimEnd, id: u64) -> Option<Taken> {
        match end.take(id) {
            Ok(payload) => Some(Taken::Request { id, payload, attached: true }),
            Err(FollowError::Short(_)) => {
                self.unmapped = Some(id);
                None
            }
            Err(FollowError::Lied(fault)) => panic!("the peer lied: {fault}"),
        }
    }

    /// Answers a request; the lane grows for the answer. On a shortage, the answer becomes [`Status::Short`].
    pub fn respond(&mut self, end: &SimEnd, id: u64, status: Status, payload: &[u8]) {
        let attach = status == Status::Ok && payload.len() >= self.attach_from;
        if !attach && payload.len() >= self.stream_from {
            self.machine.respond_in_parts(id, status, Box::new(payload.to_vec()));
            self.flush(end);
            return;
        }
        let (mut status, mut payload, mut attach) = (status, payload, attach);
        loop {
            let responded = if attach {
                self.attach(end, id, payload)
            } else {
                let Self { machine, lanes, .. } = self;
                machine.respond(lanes, end.own(), end.peer(), id, status, payload)
            };
            match responded {
                Ok(()) => return,
                Err(RespondError::Peer(fault)) => panic!("the peer lied: {fault}"),
                Err(RespondError::Attach) => attach = true,
                Err(RespondError::Short(_)) => {
                    (status, payload, attach) = (Status::Short, &[], false);
                }
                Err(RespondError::Grow(to)) => {
                    match resize::grow(&mut { end }, &mut self.lanes, to) {
                        Ok(()) => {}
                        Err(ResizeError::Short(_)) => (status, payload) = (Status::Short, &[]),
                        Err(ResizeError::Push(PushError::TooLarge { .. })) => {
                            (status, payload) = (Status::TooLarge, &[]);
                        }
                        Err(ResizeError::Push(_)) => {
                            return self.machine.respond_later(id, status, payload);
                        }
                    }
                }
            }
        }
    }

    fn attach(&mut self, end: &SimEnd, id: u64, payload: &[u8]) -> Result<(), RespondError> {
        let Self { machine, lanes, .. } = self;
        let bytes = payload.len() as u64;
        let pass = |id| end.pass(id, payload);
        match machine.respond_attached(lanes, end.own(), end.peer(), id, bytes, pass)? {
            Passed::Later => {
                self.kept.insert(id, payload.to_vec());
            }
            Passed::Now | Passed::Never => {}
        }
        Ok(())
    }

    /// Writes the owed answers for which there is room; returns true when none is left.
    pub fn flush(&mut self, end: &SimEnd) -> bool {
        loop {
            let Self { machine, lanes, kept, .. } = self;
            let pass = |id| end.pass(id, &kept.remove(&id).expect("it was kept"));
            let flushed = machine.flush(lanes, end.own(), end.peer(), pass);
            let to = match flushed.expect("the peer is honest") {
                Flushed::Done => {
                    self.kept.clear();
                    return true;
                }
                Flushed::Grow(to) => Some(to),
                Flushed::Part => {
                    self.publish(end);
                    continue;
                }
                Flushed::Blocked => self.lanes.should_grow(),
            };
            let Some(to) = to else { return false };
            match resize::grow(&mut { end }, &mut self.lanes, to) {
                Ok(()) => {}
                Err(ResizeError::Short(_)) if matches!(flushed, Ok(Flushed::Grow(_))) => {
                    self.machine.cut_first();
                }
                Err(_) => return false,
            }
        }
    }

    /// Publishes, and does maintenance.
    pub fn commit(&mut self, end: &SimEnd) {
        self.publish(end);
        if self.lanes.take_maintenance()
            && resize::maintain(&mut { end }, &mut self.lanes, self.shrink_after)
        {
            self.publish(end);
        }
    }

    fn publish(&mut self, end: &SimEnd) {
        end.wake(self.lanes.commit(end.own(), end.peer()));
    }

    /// Closes the session.
    pub fn close(&mut self, end: &SimEnd, reason: CloseReason) {
        end.wake(self.lanes.close(end.own(), end.peer(), reason));
    }

    /// Parks until the peer publishes, or makes room for owed answers.
    pub fn park(&mut self, end: &SimEnd) -> Step {
        let blocked = self.machine.is_blocked();
        let armed = self.lanes.arm(end.own(), end.peer(), blocked);
        let (armed, wake) = armed.expect("the peer is honest");
        end.wake(wake);
        if armed == Armed::Moved { Step::Again } else { Step::Parked(None) }
    }

    /// Starts a step: withdraws the armed event indexes.
    pub fn wake_up(&mut self, end: &SimEnd) {
        self.lanes.disarm(end.own());
        if self.lanes.is_grown() {
            resize::shrink_idle(&mut { end }, &mut self.lanes, Port::now(&end), self.shrink_after);
        }
    }
}
