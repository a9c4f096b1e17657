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

pub use epoch::{Epoch, LaneStats, LaneTerms, MOST_ATTACHED, MOST_OUTSTANDING};
pub use receiver::{Plain, Record};
pub use sender::PushError;
pub use sizing::{FULL_LIMIT, Growth};

use receiver::Receiver;
use sender::Sender;

use crate::sync::{Ordering, fence};
use crate::wire::{COUNTERS_AT, COUNTERS_LAYOUT, CloseReason, Counter, Header, Kind, SessionState};
use crate::{Geometry, Instant, OwnMemory, PeerFault, PeerMemory, Word};
use core::time::Duration;

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
        own.store(Word::State, SessionState::Open.word(None), Ordering::Relaxed);
        own.export_counter(COUNTERS_AT, COUNTERS_LAYOUT);
    }

    /// Writes a record that the peer does not see until [`Lanes::commit`].
    ///
    /// # Errors
    /// [`PushError`]: nothing of the record was written.
    pub fn push<O: OwnMemory, P: PeerMemory>(
        &mut self,
        own: &O,
        peer: &P,
        header: Header,
        payload: &[u8],
    ) -> Result<(), PushError> {
        self.sender.push(own, peer, header, payload)
    }

    /// Writes an unpublished record if it fits without loading the peer's `head`, padding or growing. Returns false,
    /// and writes nothing, if it does not; use [`Lanes::push`] then.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "also called by the slow path; otherwise LLVM emits one shared, outlined copy"
    )]
    pub fn try_push<O: OwnMemory>(&mut self, own: &O, header: Header, payload: &[u8]) -> bool {
        self.sender.try_push(own, header, payload)
    }

    /// Returns the next record if it is a complete, plain message of `kind`: no flags, status Ok. Then either
    /// [take](Lanes::take_plain) or [leave](Lanes::leave_plain) it. Any other record, or a protocol violation, stays for
    /// [`Lanes::peek`].
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "also called by the slow path; otherwise LLVM emits one shared, outlined copy"
    )]
    pub fn peek_plain<P: PeerMemory>(&mut self, peer: &P, kind: Kind) -> Option<Plain> {
        self.receiver.peek_plain(peer, kind)
    }

    /// Copies the payload of a plain message into `into`, which has its length, and stores `head` before the caller acts
    /// on it, as [`Lanes::take_before_acting`] does.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "also called by the slow path; otherwise LLVM emits one shared, outlined copy"
    )]
    pub fn take_plain<O: OwnMemory, P: PeerMemory>(
        &mut self,
        own: &O,
        peer: &P,
        plain: Plain,
        into: &mut [u8],
    ) {
        self.receiver.take_plain(peer, plain, into);
        self.receiver.release(own);
    }

    /// Leaves a plain message for [`Lanes::peek`].
    #[inline]
    pub fn leave_plain(&mut self, plain: Plain) {
        self.receiver.leave_plain(plain);
    }

    /// Checks that both ends allow a message of this length in bytes.
    ///
    /// # Errors
    /// [`PushError::TooLarge`].
    pub fn allows(&self, len: u64) -> Result<(), PushError> {
        self.sender.allows(len)
    }

    /// Writes the next part of a message after the `sent` bytes already written. Returns the bytes written in total;
    /// the message is complete when that is its length.
    ///
    /// # Errors
    /// [`PushError`]: this call wrote nothing.
    pub fn push_part<O: OwnMemory, P: PeerMemory>(
        &mut self,
        own: &O,
        peer: &P,
        header: Header,
        payload: &[u8],
        sent: usize,
    ) -> Result<usize, PushError> {
        self.sender.push_part(own, peer, header, payload, sent)
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
        own.store(Word::State, SessionState::Closed.word(Some(reason)), Ordering::Relaxed);
        wake
    }

    /// Writes the Close record. It always fits, because nothing can follow it.
    pub fn push_close<O: OwnMemory>(&mut self, own: &O, reason: CloseReason) {
        self.sender.push_close(own, reason);
    }

    /// Returns the next published record of the peer's lane, which stays there until [`Lanes::take`].
    ///
    /// # Errors
    /// [`PeerFault`] when the peer's words or the record's header are invalid.
    pub fn peek<P: PeerMemory>(&mut self, peer: &P) -> Result<Option<Record>, PeerFault> {
        self.receiver.peek(peer)
    }

    /// Copies the start of a record's payload: as many bytes as `into` holds, at most the record's length.
    pub fn copy<P: PeerMemory>(&self, peer: &P, record: &Record, into: &mut [u8]) {
        self.receiver.copy(peer, record, into);
    }

    /// Consumes a record. The next commit returns its space to the peer.
    pub fn take(&mut self, record: &Record) {
        self.receiver.take(record);
    }

    /// Consumes a record and publishes that before the caller acts on it: after a crash, `head` tells the peer
    /// whether a handler can have received the request.
    pub fn take_before_acting<O: OwnMemory>(&mut self, own: &O, record: &Record) {
        self.receiver.take(record);
        self.receiver.release(own);
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
        let look_space = self.receiver.wake_check_due();
        if published.is_none() && !look_space {
            return Wake::default();
        }
        // Partner: the fence in `arm`. Either the peer's second load sees what was stored above, or the loads below
        // see its event index.
        fence(Ordering::SeqCst);
        let data = published
            .is_some_and(|moved| moved.crosses(peer.load(Word::WantData, Ordering::Relaxed)));
        let space = self.receiver.looked(look_space, peer);
        if look_space {
            self.export_counters(own);
        }
        Wake { data, space }
    }

    /// Returns whether the next [`Lanes::commit`] would check for a peer that waits for space. An end that only
    /// receives must commit when this is true.
    #[inline]
    pub fn wake_check_due(&self) -> bool {
        self.receiver.wake_check_due()
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
        let tail = self.receiver.seen();
        own.store(Word::WantData, tail, Ordering::Relaxed);
        let head = space.then(|| self.sender.event_index());
        if let Some(event_index) = head {
            own.store(Word::WantSpace, event_index, Ordering::Relaxed);
        }
        // Partner: the fence in `commit`, on the peer's side, for the event indexes; and, for what was published
        // just above, the peer's fence here.
        fence(Ordering::SeqCst);
        let data = published
            .is_some_and(|moved| moved.crosses(peer.load(Word::WantData, Ordering::Relaxed)));
        let wake = Wake { data, space: self.receiver.looked(true, peer) };
        self.export_counters(own);
        let moved = self.receiver.has_more(peer)? || (space && self.sender.has_room(peer)?);
        if moved {
            self.disarm(own);
            return Ok((Armed::Moved, wake));
        }
        Ok((Armed::Sleep { tail, head: head.map(|_| self.sender.peer_head()) }, wake))
    }

    /// Traces how the lanes are used: four times per lap of the receiving lane, before each sleep, and at the end.
    #[cold]
    fn export_counters<O: OwnMemory>(&self, own: &O) {
        let (sent, received) = (self.sender.stats(), self.receiver.stats());
        for (counter, value) in [
            (Counter::LaneFull, sent.full),
            (Counter::HighWater, sent.high_water),
            (Counter::PeerHighWater, received.high_water),
            (Counter::Grows, sent.grows),
            (Counter::Shrinks, sent.shrinks),
            (Counter::Attaches, sent.attaches),
            (Counter::Lane, self.sender.epoch().to_wire()),
        ] {
            own.export_counter(counter.offset(), value);
        }
    }

    /// Withdraws both event indexes after a wait. A late ring is harmless: a waiter checks again.
    pub fn disarm<O: OwnMemory>(&self, own: &O) {
        own.store(Word::WantData, DO_NOT_RING, Ordering::Relaxed);
        own.store(Word::WantSpace, DO_NOT_RING, Ordering::Relaxed);
    }

    /// Loads and checks the peer's `tail` but leaves the records, for a caller that takes none now. What was
    /// published counts as seen.
    ///
    /// # Errors
    /// [`PeerFault`].
    pub fn look<P: PeerMemory>(&mut self, peer: &P) -> Result<(), PeerFault> {
        self.receiver.has_more(peer).map(|_| ())
    }

    /// Returns whether the peer has published something new: one load, for spinning. Also prefetches the lines of the
    /// next record, so that they arrive together with `tail` and not after it. Until the peer writes them, they stay
    /// in the cache and the prefetch is cheap.
    #[inline]
    pub fn moved<P: PeerMemory>(&self, peer: &P) -> bool {
        self.receiver.fetch(peer);
        peer.load(Word::Tail, Ordering::Relaxed) != self.receiver.seen()
    }

    /// Prefetches for writing a few free lines of the next record, for a waiting end to call between two polls.
    /// Writing a long record then takes a fraction of the time.
    #[inline]
    pub fn prefetch<O: OwnMemory>(&mut self, own: &O) {
        self.sender.prefetch(own);
    }

    /// Returns whether records of the peer, or a protocol violation, were seen but not taken.
    pub fn has_untaken(&self) -> bool {
        self.receiver.has_untaken()
    }

    /// Returns whether the record that did not fit would fit now.
    ///
    /// # Errors
    /// [`PeerFault`] when the peer's `head` is invalid.
    pub fn has_room<P: PeerMemory>(&mut self, peer: &P) -> Result<bool, PeerFault> {
        self.sender.has_room(peer)
    }

    /// Returns the position of the next pushed record, for comparison with [`Lanes::taken`].
    pub fn position(&self) -> u64 {
        self.sender.position()
    }

    /// Returns the bytes written plus the bytes taken; never decreases.
    #[inline]
    pub fn exchanged(&self) -> u64 {
        self.sender.position().wrapping_add(self.receiver.position())
    }

    /// Returns how far the peer has taken this end's records, according to its `head`.
    ///
    /// # Errors
    /// [`PeerFault`] when `head` is invalid.
    pub fn taken<P: PeerMemory>(&mut self, peer: &P) -> Result<u64, PeerFault> {
        self.sender.refresh_head(peer)?;
        Ok(self.sender.peer_head())
    }

    /// Returns the same as of the last time that `head` was loaded.
    #[inline]
    pub fn seen_taken(&self) -> u64 {
        self.sender.peer_head()
    }

    /// Makes [`Lanes::has_room`] and [`Lanes::arm`] wait until the peer has taken everything before `position`, instead
    /// of for room for a record.
    pub fn await_taken(&mut self, position: u64) {
        self.sender.await_taken(position);
    }

    /// Like [`Lanes::await_taken`], but has them wait for room for the record that did not fit as well: for what comes first.
    pub fn await_taken_or_room(&mut self, position: u64) {
        let room = self.sender.event_index().saturating_add(1);
        self.sender.await_taken(position.min(room));
    }

    /// Checks that an attachment of `bytes` and its record are possible now. Then pass the descriptor and call
    /// [`Lanes::push_attached`].
    ///
    /// # Errors
    /// [`PushError::TooLarge`], [`PushError::Full`] until the peer has taken some, [`PushError::Peer`].
    pub fn can_attach<P: PeerMemory>(&mut self, peer: &P, bytes: u64) -> Result<(), PushError> {
        self.sender.can_attach(peer, bytes)
    }

    /// Writes the record of an attachment of `bytes` whose memfd was passed, after [`Lanes::can_attach`].
    ///
    /// # Errors
    /// None after a successful [`Lanes::can_attach`] without another push in between.
    pub fn push_attached<O: OwnMemory, P: PeerMemory>(
        &mut self,
        own: &O,
        peer: &P,
        header: Header,
        bytes: u64,
    ) -> Result<(), PushError> {
        self.sender.push_attached(own, peer, header, bytes)
    }

    /// Returns the epoch of the own lane.
    pub fn epoch(&self) -> Epoch {
        self.sender.epoch()
    }

    /// Returns the size that the own lane should have for a message in parts, if it is smaller.
    pub fn wanted_for_parts(&self) -> Option<Geometry> {
        self.sender.wanted_for_parts()
    }

    /// Returns the epoch that was passed to the peer but is not in use yet.
    pub fn offered(&self) -> Option<Epoch> {
        self.sender.offered()
    }

    /// Returns the epoch to pass for a lane of `size`, if the agreed limits allow one more now.
    ///
    /// # Errors
    /// [`PushError::Full`] until the peer has followed, [`PushError::TooLarge`], [`PushError::Peer`].
    pub fn next_epoch<P: PeerMemory>(
        &mut self,
        peer: &P,
        size: Geometry,
    ) -> Result<Epoch, PushError> {
        self.sender.can_offer(peer, size, size.max_payload() as u64)?;
        Ok(self.sender.epoch().next(size))
    }

    /// Records that the memory of [`Lanes::next_epoch`] was passed to the peer.
    pub fn offer(&mut self, epoch: Epoch) {
        self.sender.offer(epoch);
    }

    /// Writes the Switch record into the current memory and enters the offered epoch: from now on, `own` must be its
    /// memory. Returns `None` when no epoch is offered or the lane is closed.
    pub fn switch<O: OwnMemory>(&mut self, own: &O) -> Option<Epoch> {
        self.sender.switch(own)
    }

    /// Returns the size to grow the own lane to instead of waiting for room.
    pub fn should_grow(&self) -> Option<Geometry> {
        self.sender.should_grow()
    }

    /// Returns the next larger size of the own lane, up to the agreed maximum.
    pub fn next_size(&self) -> Option<Geometry> {
        self.sender.next_size()
    }

    /// Returns whether maintenance that is not urgent is due: see [`maintenance`](crate::resize::maintain). True
    /// once, until the sender loads the peer's `head` again.
    #[inline]
    pub fn take_maintenance(&mut self) -> bool {
        self.sender.take_maintenance()
    }

    /// Returns the epoch to pass before it is needed, because the lane was three quarters full; `None` if the agreed
    /// limits do not allow it now.
    pub fn wants_pregrow<P: PeerMemory>(&mut self, peer: &P) -> Option<Epoch> {
        self.sender.wants_pregrow(peer)
    }

    /// Returns the size that the own, grown lane should have because it is busy and deep, if it is smaller and the
    /// agreed limits allow the next epoch now. Call it periodically.
    pub fn wanted_for_pace<P: PeerMemory>(&mut self, peer: &P, now: Instant) -> Option<Geometry> {
        self.sender.wanted_for_pace(peer, now)
    }

    /// Returns whether the own lane is larger than the agreed minimum.
    pub fn is_grown(&self) -> bool {
        self.sender.is_grown()
    }

    /// Returns whether the own lane is grown but used less than a quarter of its ring for `span`. Call it
    /// periodically.
    pub fn is_idle(&mut self, now: Instant, span: Duration) -> bool {
        self.sender.is_idle(now, span)
    }

    /// Returns the agreed minimum size of the own lane.
    pub fn least(&self) -> Geometry {
        self.sender.terms().least
    }

    /// Returns the epoch that a Switch record of the peer announces.
    ///
    /// # Errors
    /// [`PeerFault::Switch`] when it is invalid.
    pub fn announced(&self, switch: &Record) -> Result<Epoch, PeerFault> {
        self.receiver.epoch(switch)
    }

    /// Consumes a Switch record: the peer's lane goes on in `epoch`, whose memory is mapped.
    pub fn follow<O: OwnMemory>(&mut self, own: &O, switch: &Record, epoch: Epoch) {
        self.receiver.follow(own, switch, epoch);
    }

    /// Returns the longest message that both ends allow, in bytes.
    pub fn max_message(&self) -> u64 {
        self.sender.terms().message.bytes
    }

    /// Returns the longest message that this end accepts, in bytes.
    pub fn max_received(&self) -> u64 {
        self.receiver.max_message()
    }

    /// Returns the longest payload of a record in the largest lane that both ends allow, in bytes. A longer message
    /// is attached.
    pub fn max_payload(&self) -> usize {
        self.sender.terms().most.max_payload()
    }

    /// Returns the statistics of the own lane.
    pub fn sent(&self) -> LaneStats {
        self.sender.stats()
    }

    /// Returns the statistics of the peer's lane.
    pub fn received(&self) -> LaneStats {
        self.receiver.stats()
    }
}
