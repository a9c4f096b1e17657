//! Lanes: one ring of records per direction, and the parking protocol between the two ends.
//!
//! # Memory ordering
//! Publication is ordinary Release/Acquire. The writer writes records, then stores `tail` with Release; the reader
//! loads `tail` with Acquire and copies. `head` works the same way in the other direction: the reader's copies happen
//! before its Release store, and the writer's Acquire load happens before it overwrites them.
//!
//! Parking is the store-buffering pattern and needs a full fence on both sides: *store, fence, load*. The ringer
//! stores `tail` (or `head`), fences and loads the peer's event index ([`Lanes::commit`]). The waiter stores its
//! event index, fences and loads `tail` (or `head`) again ([`Lanes::arm`]). At least one of the two sees the other's
//! store. An event index needs no clearing, because the ringer rings only when its move crosses that position.
//!
//! # Epochs
//! A Switch record is the last record in the old memfd; the lane goes on in another one, and positions keep counting.
//! The sender passes the memfd, writes the Switch record, writes everything after it to the new memory, and publishes
//! all of it with one store to `tail`. The receiver maps the new memory when it reads the record. The words are in
//! the page, which stays, so a waiter is not affected. See [`crate::resize`].

mod epoch;
mod prefetch;
mod receiver;
mod sender;
mod sizing;

pub use epoch::{Epoch, LaneStats, LaneTerms, MAX_ATTACHED, MAX_OUTSTANDING};
pub use receiver::{Plain, Record};
pub use sender::{PushError, Reservation};
pub use sizing::{FULL_LIMIT, Growth};

use receiver::Receiver;
use sender::Sender;

use crate::sync::{Ordering, fence};
use crate::wire::{COUNTERS_AT, COUNTERS_LAYOUT, CloseReason, Counter, PageState};
use crate::{Geometry, OwnMemory, PeerFault, PeerMemory, Word};

/// Bytes in a cache line.
const LINE: u64 = if cfg!(loom) { 16 } else { 64 };

/// The event index that never requests a ring.
pub(crate) const DO_NOT_RING: u64 = u64::MAX;

/// Which doorbells the peer expects after a commit. The owner of the port rings them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a peer that asked to be rung sleeps until it is"]
pub struct Wake {
    /// The peer is parked for data.
    pub data: bool,
    /// The peer is parked for space.
    pub space: bool,
}

/// The outcome of [`Lanes::arm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Armed {
    /// A word moved meanwhile: do not sleep, check again.
    Moved,
    /// Nothing moved: sleep unless the words differ from these values.
    Sleep {
        /// The peer's `tail`.
        tail: u64,
        /// The peer's `head`, if the caller waits for space.
        head: Option<u64>,
    },
}

/// Both lanes of a session as one end sees them: it writes its own lane and reads the peer's.
///
/// Positions are bytes since the session began. Every value of the peer's words is checked before use. After a
/// [`PeerFault`] the session must not be used again.
#[derive(Debug)]
pub struct Lanes {
    sender: Sender,
    receiver: Receiver,
}

impl Lanes {
    /// Creates two empty lanes of fixed size: this end writes `own` and reads `peer`.
    pub fn new(own: Geometry, peer: Geometry) -> Self {
        Self::with_terms(LaneTerms::fixed(own), LaneTerms::fixed(peer))
    }

    /// Creates two empty lanes on the terms of the handshake: this end writes `own` and reads `peer`.
    pub fn with_terms(own: LaneTerms, peer: LaneTerms) -> Self {
        Self { sender: Sender::new(own), receiver: Receiver::new(peer) }
    }

    /// Stores the words of a new session: open, with no ring requested.
    pub fn open(own: &impl OwnMemory) {
        own.store(Word::WantData, DO_NOT_RING, Ordering::Relaxed);
        own.store(Word::WantSpace, DO_NOT_RING, Ordering::Relaxed);
        own.store(Word::State, PageState::Open.word(None), Ordering::Relaxed);
        own.export_counter(COUNTERS_AT, COUNTERS_LAYOUT);
    }

    /// Closes this lane: publishes its last record, then the state in the page. Nothing can follow.
    pub fn close<O: OwnMemory, P: PeerMemory>(
        &mut self,
        own: &O,
        peer: &P,
        reason: CloseReason,
    ) -> Wake {
        self.push_close(own, reason);
        let wake = self.commit(own, peer);
        self.export_counters(own);
        // Last: an end that sees it also sees all records before it, including the Close record. The fence in
        // `commit` releases them.
        own.store(Word::State, PageState::Closed.word(Some(reason)), Ordering::Relaxed);
        wake
    }

    /// Publishes the pushed records and returns the space of consumed ones.
    ///
    /// It checks the peer's event index for data after every publication, but for space only once per quarter of the
    /// lane. That suffices: a waiting peer needs at most half a lane, so it asks for a position at least a quarter
    /// before the end of what it published, and a later check finds it.
    #[inline]
    pub fn commit<O: OwnMemory, P: PeerMemory>(&mut self, own: &O, peer: &P) -> Wake {
        self.receiver.release(own);
        let published = self.sender.publish(own);
        let check_space = self.wake_check_due();
        if published.is_none() && !check_space {
            return Wake::default();
        }
        // Partner: the fence in `arm`. Either the peer's second load sees what was stored above, or the loads below
        // see its event index.
        fence(Ordering::SeqCst);
        let data = published
            .is_some_and(|moved| moved.crosses(peer.load(Word::WantData, Ordering::Relaxed)));
        let space = self.receiver.peer_wants_space(check_space, peer);
        if check_space {
            self.export_counters(own);
        }
        Wake { data, space }
    }

    /// Requests a ring when the peer publishes and, with `space`, when it frees room for the record that did not fit.
    /// First publishes and returns space like [`Lanes::commit`].
    ///
    /// # Errors
    /// [`PeerFault`] when the peer's words are invalid.
    pub fn arm<O: OwnMemory, P: PeerMemory>(
        &mut self,
        own: &O,
        peer: &P,
        space: bool,
    ) -> Result<(Armed, Wake), PeerFault> {
        self.receiver.release(own);
        let published = self.sender.publish(own);
        let tail = self.receiver.peer_tail;
        own.store(Word::WantData, tail, Ordering::Relaxed);
        let head = space.then_some(self.sender.event_index);
        if let Some(event_index) = head {
            own.store(Word::WantSpace, event_index, Ordering::Relaxed);
        }
        // Partner: the fence in `commit`, on the peer's side, for the event indexes; and, for what was published
        // just above, the peer's fence here.
        fence(Ordering::SeqCst);
        let data = published
            .is_some_and(|moved| moved.crosses(peer.load(Word::WantData, Ordering::Relaxed)));
        let wake = Wake { data, space: self.receiver.peer_wants_space(true, peer) };
        self.export_counters(own);
        let moved = self.receiver.has_more(peer)? || (space && self.has_room(peer)?);
        if moved {
            self.disarm(own);
            return Ok((Armed::Moved, wake));
        }
        Ok((Armed::Sleep { tail, head: head.map(|_| self.seen_taken()) }, wake))
    }

    /// Exports how the lanes are used: four times per lap of the receiving lane, before each sleep, and at the end.
    #[cold]
    fn export_counters<O: OwnMemory>(&self, own: &O) {
        let (sent, received) = (self.sent(), self.received());
        for (counter, value) in [
            (Counter::LaneFull, sent.full),
            (Counter::HighWater, sent.high_water),
            (Counter::PeerHighWater, received.high_water),
            (Counter::Grows, sent.grows),
            (Counter::Shrinks, sent.shrinks),
            (Counter::Attaches, sent.attaches),
            (Counter::Lane, self.epoch().to_wire()),
        ] {
            own.export_counter(counter.offset(), value);
        }
    }

    /// Withdraws both event indexes after a wait. A late ring is harmless: a waiter checks again.
    pub fn disarm<O: OwnMemory>(&self, own: &O) {
        own.store(Word::WantData, DO_NOT_RING, Ordering::Relaxed);
        own.store(Word::WantSpace, DO_NOT_RING, Ordering::Relaxed);
    }

    /// Returns whether the peer has published something new: one load, for spinning. Also prefetches the lines of the
    /// next record, so that they arrive together with `tail` and not after it. Until the peer writes them, they stay
    /// in the cache and the prefetch is cheap.
    #[inline]
    pub fn moved<P: PeerMemory>(&self, peer: &P) -> bool {
        self.receiver.fetch(peer);
        peer.load(Word::Tail, Ordering::Relaxed) != self.receiver.peer_tail
    }

    /// Returns the bytes written plus the bytes taken; never decreases.
    #[inline]
    pub fn exchanged(&self) -> u64 {
        self.position().wrapping_add(self.receiver.head)
    }
}
