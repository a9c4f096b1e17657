use std::time::Duration;

use bellwire_core::drive::{Attachable, RespondOutcome, ServeDriver};
use bellwire_core::lane::{Armed, LaneStats};
use bellwire_core::resize::{FollowError, Shortage};
use bellwire_core::serve::{Incoming, ServeCounts};
use bellwire_core::wire::{CloseReason, Status};

use crate::{SimEnd, Step};

/// How soon a server retries after a shortage.
const RETRY: Duration = Duration::from_millis(1);

/// The serving end of a simulated session: a [`ServeDriver`] that takes its own buffers along. It panics on a protocol
/// violation of its peer.
#[derive(Debug)]
pub struct Serving {
    driver: ServeDriver<SimEnd, Attached>,
    buffer: Vec<u8>,
    attach_from: usize,
    stream_from: usize,
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

/// An answer to attach.
#[derive(Debug)]
struct Attached(Vec<u8>);

impl Attachable<SimEnd> for Attached {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn pass(&self, end: &SimEnd, id: u64) -> Result<(), Shortage> {
        end.pass(id, &self.0)
    }
}

impl Serving {
    /// Creates a server over the lanes of a new session, with at most `limit` requests in flight.
    pub fn new(end: &SimEnd, limit: u64) -> Self {
        Self {
            driver: ServeDriver::new(end.clone(), end.lanes(), limit, ()),
            buffer: Vec::new(),
            attach_from: usize::MAX,
            stream_from: usize::MAX,
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
        self.driver.end_mut().set_shrink_after(span);
        self
    }

    /// Returns the counters.
    pub fn counts(&self) -> ServeCounts {
        self.driver.counts()
    }

    /// Returns why the peer closed its lane, if it did.
    pub fn closed(&self) -> Option<CloseReason> {
        self.driver.end().closed()
    }

    /// Returns the statistics of the lane that this end writes and of the one that it reads.
    pub fn lane_stats(&self) -> [LaneStats; 2] {
        let lanes = self.driver.end().lanes();
        [lanes.sent(), lanes.received()]
    }

    /// Returns what the peer sent next, if anything; follows and trims lanes on the way. After a shortage, `Err` is
    /// when to retry.
    pub fn take(&mut self) -> Result<Option<Taken>, Step> {
        if let Some(id) = self.unmapped.take() {
            return self.take_attached(id).map(Some);
        }
        loop {
            let incoming = self.driver.next(&mut self.buffer).expect("no violation");
            let taken = match incoming {
                None => return Ok(None),
                // The buffer stays unchanged.
                Some(Incoming::Part | Incoming::Closed(_)) => continue,
                Some(Incoming::GivenUp { .. }) => unreachable!("nobody gives up here"),
                Some(Incoming::Request { id, len, .. }) => {
                    let payload =
                        self.buffer.get(..len).expect("the payload was copied there").to_vec();
                    Taken::Request { id, payload, attached: false }
                }
                Some(Incoming::Attached { id }) => self.take_attached(id)?,
                Some(Incoming::Cancel { id }) => Taken::Cancel { id },
                Some(Incoming::Switch(switch)) => {
                    match self.driver.end_mut().follow(&switch) {
                        Ok(()) => {}
                        Err(FollowError::Short(_)) => return Err(self.retry()),
                        Err(FollowError::Peer(fault)) => {
                            panic!("the peer broke the protocol: {fault}")
                        }
                    }
                    self.driver.commit();
                    continue;
                }
                Some(Incoming::Trim) => {
                    // A lane that cannot shrink now will when it is idle.
                    self.driver.trim().expect("no violation");
                    continue;
                }
            };
            return Ok(Some(taken));
        }
    }

    fn retry(&self) -> Step {
        Step::Busy(self.driver.end().port().now().after(RETRY))
    }

    fn take_attached(&mut self, id: u64) -> Result<Taken, Step> {
        match self.driver.end().port().take(id) {
            Ok(payload) => Ok(Taken::Request { id, payload, attached: true }),
            Err(FollowError::Short(_)) => {
                self.unmapped = Some(id);
                Err(self.retry())
            }
            Err(FollowError::Peer(fault)) => panic!("the peer broke the protocol: {fault}"),
        }
    }

    /// Answers a request; the lane grows for the answer. On a shortage, the answer becomes [`Status::Short`].
    pub fn respond(&mut self, id: u64, status: Status, payload: &[u8]) {
        if self.try_respond(id, status, payload).is_none() {
            // An answer without a payload needs nothing that could be lacking.
            self.try_respond(id, Status::Short, &[]).expect("an empty answer is written or kept");
        }
    }

    fn try_respond(&mut self, id: u64, status: Status, payload: &[u8]) -> Option<()> {
        let driver = &mut self.driver;
        let mut responded = Ok(RespondOutcome::Attach);
        if status != Status::Ok || payload.len() < self.attach_from {
            if payload.len() >= self.stream_from {
                driver
                    .respond_in_parts(id, status, Box::new(payload.to_vec()))
                    .expect("no violation");
                return Some(());
            }
            responded = driver.respond(id, status, payload);
        }
        if responded == Ok(RespondOutcome::Attach) {
            responded = driver.attach(id, Attached(payload.to_vec()));
        }
        (responded.expect("no violation") == RespondOutcome::Done).then_some(())
    }

    /// Writes the pending answers for which there is room; returns true when none is left.
    pub fn flush(&mut self) -> bool {
        self.driver.flush().expect("no violation");
        !self.driver.is_blocked()
    }

    /// Publishes, and does maintenance.
    pub fn commit(&mut self) {
        self.driver.commit();
    }

    /// Closes the session.
    pub fn close(&mut self, reason: CloseReason) {
        self.driver.end_mut().close(reason);
    }

    /// Parks until the peer publishes, or makes room for pending answers.
    pub fn park(&mut self) -> Step {
        let armed = self.driver.arm().expect("no violation");
        if armed == Armed::Moved { Step::Again } else { Step::Parked(None) }
    }

    /// Starts a step: withdraws the armed event indexes.
    pub fn wake_up(&mut self) {
        let now = self.driver.end().port().now();
        self.driver.end().disarm();
        self.driver.end_mut().shrink_idle(now);
    }
}
