//! The serving end of a session: takes requests and answers them.

mod answers;
mod counts;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::call::{append, close_reason, unexpected};
use crate::lane::{Lanes, Record};
use crate::wire::{CloseReason, Kind, ONE_WAY};
use crate::{OwnMemory, PeerFault, PeerMemory};
use answers::PendingAnswer;
pub use answers::{Flushed, OwnedBytes, Passed, RespondError};
pub use counts::ServeCounts;

/// A record that the peer sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A request; its payload is in the caller's buffer.
    Request {
        /// The id to answer it with; [`ONE_WAY`] for a one-way request, whose answer is only counted.
        id: u64,
        /// The payload's length in bytes.
        len: usize,
        /// Whether it is an unparsed [batch](crate::batch), so that its answer must be one too.
        batch: bool,
    },
    /// A part of a request: the caller must pass the same buffer unchanged to the next call.
    Part,
    /// The end of a request that was [given up](ServeMachine::give_up_arriving): no handler runs for it.
    GivenUp {
        /// The id to answer it with.
        id: u64,
    },
    /// An attached request: its payload is a memfd on the control socket.
    Attached {
        /// The id to answer it with.
        id: u64,
    },
    /// The lane goes on in another epoch: [`follow`](crate::resize::follow) it, then call again.
    Switch(Record),
    /// The peer asks this end to free memory: call [`ServeMachine::trimmed`] afterwards.
    Trim,
    /// The peer no longer wants the answer to a request. An answer, of any kind, is still due, to keep the counters
    /// balanced.
    Cancel {
        /// The request.
        id: u64,
    },
    /// The peer has closed the session: there is nothing more to take.
    Closed(CloseReason),
}

impl Incoming {
    /// Returns the id of a request and the length of its payload; 0 when the payload is attached.
    pub fn request(&self) -> Option<(u64, usize)> {
        match *self {
            Self::Request { id, len, .. } => Some((id, len)),
            Self::Attached { id } => Some((id, 0)),
            _ => None,
        }
    }
}

/// The serving end of a session, without I/O.
///
/// Requests arrive through [`ServeMachine::next`]; answers leave through [`ServeMachine::respond`] in any order. An
/// answer that finds the lane full is kept, and no request is taken until it is written. So a peer that does not read
/// fills its own lane, and at most `limit` answers here.
#[derive(Debug)]
pub struct ServeMachine {
    last_id: u64,
    limit: u64,
    pending: VecDeque<PendingAnswer>,
    counts: ServeCounts,
    arriving: Option<Arriving>,
}

/// The request that is arriving in parts.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    id: u64,
    batch: bool,
    /// The bytes received so far: they are in the buffer, unless the request was given up.
    len: usize,
    is_wanted: bool,
}

impl ServeMachine {
    /// Creates the machine of a new session with at most `limit` requests in flight; at least one.
    pub fn new(limit: u64) -> Self {
        let counts = ServeCounts::default();
        Self { last_id: 0, limit: limit.max(1), pending: VecDeque::new(), counts, arriving: None }
    }

    /// Returns the next request or cancellation; copies a request's payload to `buffer`, which grows as needed.
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
        if !self.pending.is_empty() || self.counts.in_flight() >= self.limit {
            lanes.load_tail(peer)?;
            return Ok(None);
        }
        if let Some((id, len)) = self.try_next(lanes, own, peer, buffer) {
            return Ok(Some(Incoming::Request { id, len, batch: false }));
        }
        let Some(record) = lanes.peek(peer)? else { return Ok(None) };
        let incoming = match record.kind {
            Kind::Request => {
                let (id, batch) = (record.id, record.batch);
                let (start, is_wanted) = match self.arriving.take() {
                    Some(part) if part.id == id && part.batch == batch => {
                        (part.len, part.is_wanted)
                    }
                    Some(_) => return Err(unexpected(&record)),
                    None => {
                        self.begin(id)?;
                        (0, true)
                    }
                };
                let len = append(lanes, peer, &record, buffer, start, is_wanted)?;
                if record.more {
                    self.arriving = Some(Arriving { id, batch, len, is_wanted });
                    Incoming::Part
                } else {
                    self.counts.accepted += 1;
                    match is_wanted {
                        true => Incoming::Request { id, len, batch },
                        false => Incoming::GivenUp { id },
                    }
                }
            }
            // Followed before it is consumed.
            Kind::Switch => return Ok(Some(Incoming::Switch(record))),
            // The rest of it will not arrive.
            Kind::Cancel if self.arriving.is_some_and(|part| part.id == record.id) => {
                self.arriving = None;
                Incoming::Part
            }
            Kind::Attach | Kind::Trim if self.arriving.is_some() => {
                return Err(unexpected(&record));
            }
            Kind::Attach => {
                self.begin(record.id)?;
                self.counts.accepted += 1;
                Incoming::Attached { id: record.id }
            }
            Kind::Trim => Incoming::Trim,
            Kind::Cancel if record.id != ONE_WAY && record.id <= self.last_id => {
                Incoming::Cancel { id: record.id }
            }
            Kind::Cancel => return Err(PeerFault::UnknownId { id: record.id }),
            Kind::Close => Incoming::Closed(close_reason(&record)?),
            _ => return Err(unexpected(&record)),
        };
        lanes.take_before_acting(own, &record);
        Ok(Some(incoming))
    }

    /// Takes the next request into the first bytes of `buffer` and returns its id and length, if it is complete, no
    /// batch, below the limit and fits. Returns `None` otherwise; call [`ServeMachine::next`] then.
    ///
    /// It is no branch of that, since a result of several words goes through memory: 72 instructions more a request
    /// (`docs/adr/0026-fast-path.md`).
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "also called by the slow path; otherwise LLVM emits one shared, outlined copy"
    )]
    pub fn try_next<O: OwnMemory, P: PeerMemory>(
        &mut self,
        lanes: &mut Lanes,
        own: &O,
        peer: &P,
        buffer: &mut [u8],
    ) -> Option<(u64, usize)> {
        let is_held_up = self.arriving.is_some() || self.is_at_limit();
        if is_held_up || self.is_blocked() {
            return None;
        }
        let plain = lanes.peek_plain(peer, Kind::Request)?;
        let (id, len) = (plain.id(), plain.len());
        let into = match buffer.get_mut(..len) {
            Some(into) if self.begin(id).is_ok() => into,
            _ => {
                lanes.leave_plain(plain);
                return None;
            }
        };
        self.counts.accepted += 1;
        lanes.take_plain(own, peer, plain, into);
        Some((id, len))
    }

    /// Returns whether a request is arriving in parts: the next [`ServeMachine::next`] needs the same buffer.
    pub fn is_arriving(&self) -> bool {
        self.arriving.is_some()
    }

    /// Discards the rest of the request that is arriving in parts; its buffer may be dropped. Its end arrives as
    /// [`Incoming::GivenUp`].
    pub fn give_up_arriving(&mut self) {
        if let Some(arriving) = &mut self.arriving {
            arriving.is_wanted = false;
        }
    }

    /// Returns whether answers wait for room in the lane.
    pub fn is_blocked(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns whether the limit of requests in flight is reached: no more are taken until one is answered.
    pub fn is_at_limit(&self) -> bool {
        self.counts.in_flight() >= self.limit
    }

    /// Returns the counters.
    pub fn counts(&self) -> ServeCounts {
        self.counts
    }

    #[inline]
    fn begin(&mut self, id: u64) -> Result<(), PeerFault> {
        if id > self.last_id {
            self.last_id = id;
            return Ok(());
        }
        if id == ONE_WAY { Ok(()) } else { Err(PeerFault::ReusedId { id, last: self.last_id }) }
    }
}
