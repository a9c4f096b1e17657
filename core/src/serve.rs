//! The serving end of a session: requests taken, and answers owed.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::call::{close_reason, unexpected};
use crate::lane::{Lanes, PushError};
use crate::wire::{CloseReason, Header, Kind, Status};
use crate::{OwnMemory, PeerFault, PeerMemory};

/// What the peer sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A request; its payload is in the buffer given.
    Request {
        /// What to answer it by.
        id: u64,
        /// The payload's length in bytes.
        len: usize,
    },
    /// The peer no longer wants the answer to a request. An answer is still due, to keep the books: any.
    Cancel {
        /// The request.
        id: u64,
    },
}

/// Counters of the serving end. `accepted = answered + refused + in flight`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServeCounts {
    /// Requests taken.
    pub accepted: u64,
    /// Requests that a handler answered, or failed.
    pub answered: u64,
    /// Requests that were answered without a handler having run.
    pub refused: u64,
}

impl ServeCounts {
    /// Requests taken and not yet answered.
    pub fn in_flight(&self) -> u64 {
        self.accepted - self.answered - self.refused
    }
}

#[derive(Debug)]
struct Owed {
    header: Header,
    payload: Vec<u8>,
}

/// The serving end of a session, without I/O.
///
/// Requests come in by [`ServeMachine::next`], answers go out by [`ServeMachine::respond`] in any order. An
/// answer that meets a full lane is kept, and no request is taken until it is out: a peer that does not read
/// fills its own lane, and at most `limit` answers here.
#[derive(Debug)]
pub struct ServeMachine {
    last_id: u64,
    limit: u64,
    owed: VecDeque<Owed>,
    counts: ServeCounts,
    closed: Option<CloseReason>,
}

impl ServeMachine {
    /// A new session's machine that has at most `limit` requests in flight; at least one.
    pub fn new(limit: u64) -> Self {
        let counts = ServeCounts::default();
        Self { last_id: 0, limit: limit.max(1), owed: VecDeque::new(), counts, closed: None }
    }

    /// The next request or cancellation; a request's payload is copied into `buffer`, which grows as needed.
    ///
    /// # Errors
    /// [`PeerFault`]: the session is poisoned.
    pub fn next<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Incoming>, PeerFault> {
        if self.closed.is_some() || !self.owed.is_empty() || self.counts.in_flight() >= self.limit {
            return Ok(None);
        }
        let Some(record) = lanes.peek(peer)? else { return Ok(None) };
        let incoming = match record.kind {
            Kind::Request => {
                if record.id <= self.last_id {
                    return Err(PeerFault::ReusedId { id: record.id, last: self.last_id });
                }
                self.last_id = record.id;
                let len = record.len as usize;
                if buffer.len() < len {
                    buffer.resize(len, 0);
                }
                if let Some(into) = buffer.get_mut(..len) {
                    lanes.copy(peer, &record, into);
                }
                self.counts.accepted += 1;
                Some(Incoming::Request { id: record.id, len })
            }
            Kind::Cancel if record.id <= self.last_id => Some(Incoming::Cancel { id: record.id }),
            Kind::Cancel => return Err(PeerFault::UnknownId { id: record.id }),
            Kind::Bye => {
                self.closed = Some(close_reason(&record)?);
                None
            }
            _ => return Err(unexpected(&record)),
        };
        lanes.take_before_acting(own, &record);
        Ok(incoming)
    }

    /// Answers a request, once. An answer that does not fit the lane now is kept until
    /// [`ServeMachine::flush`]; one that never fits becomes [`Status::TooLarge`].
    ///
    /// # Errors
    /// [`PeerFault`]: the session is poisoned.
    pub fn respond<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        id: u64,
        status: Status,
        payload: &[u8],
    ) -> Result<(), PeerFault> {
        self.send(lanes, own, peer, Kind::Response, id, status, payload)
    }

    /// Answers a request by a memfd, whose SNAPSHOT message went over the control socket just before.
    ///
    /// # Errors
    /// [`PeerFault`]: the session is poisoned.
    pub fn respond_attached<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        id: u64,
    ) -> Result<(), PeerFault> {
        self.send(lanes, own, peer, Kind::Attach, id, Status::Ok, &[])
    }

    /// Writes the answers that are still owed, as far as there is room. True when none is left.
    ///
    /// # Errors
    /// [`PeerFault`]: the session is poisoned.
    pub fn flush<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
    ) -> Result<bool, PeerFault> {
        while let Some(owed) = self.owed.front() {
            match lanes.push(own, peer, owed.header, &owed.payload) {
                Ok(()) => {
                    self.owed.pop_front();
                }
                Err(PushError::Peer(fault)) => return Err(fault),
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Whether answers wait for room in the lane.
    pub fn is_blocked(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Whether as many requests are in flight as may be: no more are taken until one is answered.
    pub fn is_at_limit(&self) -> bool {
        self.counts.in_flight() >= self.limit
    }

    /// The counters.
    pub fn counts(&self) -> ServeCounts {
        self.counts
    }

    /// Why the peer closed, when it said bye.
    pub fn closed(&self) -> Option<CloseReason> {
        self.closed
    }

    #[allow(clippy::too_many_arguments, reason = "the three memories, and a record's four fields")]
    fn send<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        kind: Kind,
        id: u64,
        status: Status,
        payload: &[u8],
    ) -> Result<(), PeerFault> {
        let (status, payload) = if payload.len() > lanes.max_payload() {
            (Status::TooLarge, &[][..])
        } else {
            (status, payload)
        };
        if status.ran() {
            self.counts.answered += 1;
        } else {
            self.counts.refused += 1;
        }
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let header = Header::new(kind, status, id, len);
        if self.owed.is_empty() {
            match lanes.push(own, peer, header, payload) {
                Ok(()) => return Ok(()),
                Err(PushError::Peer(fault)) => return Err(fault),
                Err(_) => {}
            }
        }
        self.owed.push_back(Owed { header, payload: payload.to_vec() });
        Ok(())
    }
}
