//! Lanes: one direction's ring of records each, and the parking protocol between them.
//!
//! # What orders what
//! Publication is ordinary Release/Acquire: records are written, then `tail` is stored with Release; the
//! reader loads it with Acquire and copies. `head` goes the other way likewise: the reader's copies
//! happen before its Release store, the writer's Acquire load happens before it writes there again.
//!
//! Parking is the store-buffering pattern and needs a full fence on both sides: *store what the other
//! looks for; fence; look*. The ringer stores `tail` (or `head`), fences and reads the peer's wish
//! ([`Lanes::commit`]); the waiter stores its wish, fences and reads `tail` (or `head`) again
//! ([`Lanes::arm`]). One of the two sees the other. An event index needs no clearing: the ringer rings
//! only when its move crosses the position wished for.

//!
//! # Epochs
//! A lane goes on in another memfd by a switch record, the last one in the old memfd; positions go on counting.
//! The sender passes the memfd, writes the record and everything after it in the new memory, and publishes all of
//! it by the one store to `tail`. The receiver, at the record, maps that memory and goes on there. The words are in
//! the page, which stays: nobody who waits notices. The rest of it is in [`crate::resize`].

mod claim;
mod epoch;
mod receiver;
mod sender;
mod sizing;

pub use epoch::{Epoch, LaneStats, LaneTerms, MOST_ATTACHED, MOST_OUTSTANDING};
pub use receiver::Record;
pub use sender::PushError;
pub use sizing::{FULL_LIMIT, Growth};

use receiver::Receiver;
use sender::Sender;

use crate::sync::{Ordering, fence};
use crate::wire::{COUNTERS_AT, COUNTERS_LAYOUT, CloseReason, Counter, Header, Kind, SessionState};
use crate::{Geometry, Instant, OwnMemory, PeerFault, PeerMemory, Word};
use core::time::Duration;

/// What a processor fetches at once, in bytes.
const LINE: u64 = if cfg!(loom) { 16 } else { 64 };

/// The value of a wish word that wishes nothing.
pub(crate) const DO_NOT_RING: u64 = u64::MAX;

/// Which bells the peer wants to hear after a commit. Whoever holds a port rings them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a peer that asked to be rung sleeps until it is"]
pub struct Wake {
    /// The peer is parked for data.
    pub data: bool,
    /// The peer is parked for space.
    pub space: bool,
}

/// What [`Lanes::arm`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Armed {
    /// Something moved meanwhile: do not sleep, look again.
    Moved,
    /// Nothing moved: sleep unless the words move on from these values.
    Sleep {
        /// The peer's `tail`.
        tail: u64,
        /// The peer's `head`, when space is waited for.
        head: Option<u64>,
    },
}

/// Both lanes of a session, seen from one end: the own lane's writer and the peer's lane's reader.
///
/// Positions are bytes since the session began. What the peer's words say is checked before it is used;
/// after a [`PeerFault`] the session must not be used again.
#[derive(Debug)]
pub struct Lanes {
    sender: Sender,
    receiver: Receiver,
}

impl Lanes {
    /// Both lanes, empty, which keep their sizes: `own` is the one that this end writes, `peer` the one it reads.
    pub fn new(own: Geometry, peer: Geometry) -> Self {
        Self::with_terms(LaneTerms::fixed(own), LaneTerms::fixed(peer))
    }

    /// Both lanes, empty, on the terms of the handshake: `own` is the one that this end writes.
    pub fn with_terms(own: LaneTerms, peer: LaneTerms) -> Self {
        Self { sender: Sender::new(own), receiver: Receiver::new(peer) }
    }

    /// Stores the words of a new session: open, and not to be rung.
    pub fn open(own: &impl OwnMemory) {
        own.store(Word::WantData, DO_NOT_RING, Ordering::Relaxed);
        own.store(Word::WantSpace, DO_NOT_RING, Ordering::Relaxed);
        own.store(Word::State, SessionState::Open.word(None), Ordering::Relaxed);
        own.tell(COUNTERS_AT, COUNTERS_LAYOUT);
    }

    /// Writes a record, not yet visible to the peer: [`Lanes::commit`] publishes.
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

    /// Writes a record, not yet visible to the peer, if it takes no more than that: no look at the peer, no pad, no other
    /// lane. False when it does, and nothing was written: [`Lanes::push`] then.
    #[inline]
    pub fn push_at_once<O: OwnMemory>(&mut self, own: &O, header: Header, payload: &[u8]) -> bool {
        self.sender.push_at_once(own, header, payload)
    }

    /// Takes the next record, if it was published and is a message of `kind` that is whole and plain: no flag, and the
    /// status Ok. `into` gets its id and length and says where its payload goes, exactly as long, or that it is left.
    /// Says so to the peer before anything is done about it, as [`Lanes::take_before_acting`] does.
    ///
    /// Whatever else is there, lies among it, stays there for [`Lanes::peek`].
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "the general way asks it too, and would share a copy with the short one"
    )]
    pub fn take_at_once<'b, O: OwnMemory, P: PeerMemory>(
        &mut self,
        own: &O,
        peer: &P,
        kind: Kind,
        into: impl FnOnce(u64, usize) -> Option<&'b mut [u8]>,
    ) -> Option<(u64, usize)> {
        let taken = self.receiver.take_at_once(peer, kind, into);
        if taken.is_some() {
            self.receiver.release(own);
        }
        taken
    }

    /// Checks that both ends allow a message of this length, in bytes.
    ///
    /// # Errors
    /// [`PushError::TooLarge`].
    pub fn allows(&self, len: u64) -> Result<(), PushError> {
        self.sender.allows(len)
    }

    /// Writes the next part of a message that is sent in parts, of which `sent` bytes were written before: as much as
    /// is good to write at once. Returns how much was written then; the last part is the one that reaches the end.
    ///
    /// # Errors
    /// [`PushError`]: nothing was written now.
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

    /// Ends this lane: publishes its last record, then says so in the page. Nothing can follow.
    pub fn close<O: OwnMemory, P: PeerMemory>(
        &mut self,
        own: &O,
        peer: &P,
        reason: CloseReason,
    ) -> Wake {
        self.push_bye(own, reason);
        let wake = self.commit(own, peer);
        self.tell(own);
        // Last: who sees it has all records before it, the bye among them. The fence in `commit` releases them.
        own.store(Word::State, SessionState::Closed.word(Some(reason)), Ordering::Relaxed);
        wake
    }

    /// Writes the last record of this lane, which always fits: nothing can follow it.
    pub fn push_bye<O: OwnMemory>(&mut self, own: &O, reason: CloseReason) {
        self.sender.push_bye(own, reason);
    }

    /// The next record of the peer's lane, if one was published; it stays there until [`Lanes::take`].
    ///
    /// # Errors
    /// [`PeerFault`] when the peer's words or the record's header are not what an honest peer writes.
    pub fn peek<P: PeerMemory>(&mut self, peer: &P) -> Result<Option<Record>, PeerFault> {
        self.receiver.peek(peer)
    }

    /// Copies the start of a record's payload out: as many bytes as `into` holds, at most the record's.
    pub fn copy<P: PeerMemory>(&self, peer: &P, record: &Record, into: &mut [u8]) {
        self.receiver.copy(peer, record, into);
    }

    /// Leaves a record behind: its room is the peer's again at the next commit.
    pub fn take(&mut self, record: &Record) {
        self.receiver.take(record);
    }

    /// Leaves a record behind and says so before anything is done about it: after a crash, the peer knows
    /// from `head` whether a request can have reached a handler.
    pub fn take_before_acting<O: OwnMemory>(&mut self, own: &O, record: &Record) {
        self.receiver.take(record);
        self.receiver.release(own);
    }

    /// Publishes what was pushed and gives back the room of what was taken.
    ///
    /// A record published is looked up in the peer's wish at once. Room given back is looked up once per
    /// quarter of the lane: a peer that waits for space needs at most half a lane, so it waits for a
    /// position that lies at least a quarter behind the end of what it published, and the look-up there
    /// finds it.
    #[inline]
    pub fn commit<O: OwnMemory, P: PeerMemory>(&mut self, own: &O, peer: &P) -> Wake {
        self.receiver.release(own);
        let published = self.sender.publish(own);
        let look_space = self.receiver.owes_a_look();
        if published.is_none() && !look_space {
            return Wake::default();
        }
        // Partner: the fence in `arm`. Either the peer's second look sees what was stored above, or the
        // loads below see its wish.
        fence(Ordering::SeqCst);
        let data = published
            .is_some_and(|moved| moved.crosses(peer.load(Word::WantData, Ordering::Relaxed)));
        let space = self.receiver.looked(look_space, peer);
        if look_space {
            self.tell(own);
        }
        Wake { data, space }
    }

    /// Publishes records that the peer need not be woken for, and gives back room, without a look at its wishes: it sees them
    /// when it is awake for something else. The next [`Lanes::commit`], or [`Lanes::arm`], rings for them too, if it has to.
    pub fn show<O: OwnMemory>(&mut self, own: &O) {
        self.receiver.release(own);
        self.sender.show(own);
    }

    /// Whether so much room was given back that the next [`Lanes::commit`] looks for a peer that waits for it.
    /// Who takes records without sending any commits when this says so.
    #[inline]
    pub fn owes_a_look(&self) -> bool {
        self.receiver.owes_a_look()
    }

    /// Wishes to be rung when the peer publishes, and, with `space`, when it makes room for the record
    /// that did not fit. Publishes and gives back room like [`Lanes::commit`] first.
    ///
    /// # Errors
    /// [`PeerFault`] when the peer's words are lies.
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
        let head = space.then(|| self.sender.wish());
        if let Some(wish) = head {
            own.store(Word::WantSpace, wish, Ordering::Relaxed);
        }
        // Partner: the fence in `commit`, on the peer's side, for the wishes; and, for what was published
        // just above, the peer's fence here.
        fence(Ordering::SeqCst);
        let data = published
            .is_some_and(|moved| moved.crosses(peer.load(Word::WantData, Ordering::Relaxed)));
        let wake = Wake { data, space: self.receiver.looked(true, peer) };
        self.tell(own);
        let moved = self.receiver.has_more(peer)? || (space && self.sender.has_room(peer)?);
        if moved {
            self.disarm(own);
            return Ok((Armed::Moved, wake));
        }
        Ok((Armed::Sleep { tail, head: head.map(|_| self.sender.peer_head()) }, wake))
    }

    /// Tells observers how the lanes are used: not with every record, but four times a lap of what is read, before each
    /// sleep, and at the end.
    #[cold]
    fn tell<O: OwnMemory>(&self, own: &O) {
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
            own.tell(counter.offset(), value);
        }
    }

    /// Takes both wishes back after a wait. Late rings are harmless: a waiter looks again.
    pub fn disarm<O: OwnMemory>(&self, own: &O) {
        own.store(Word::WantData, DO_NOT_RING, Ordering::Relaxed);
        own.store(Word::WantSpace, DO_NOT_RING, Ordering::Relaxed);
    }

    /// Looks at the peer's tail and leaves the records there, for who takes none now: a lie is noticed all the same, and
    /// what was published counts as seen.
    ///
    /// # Errors
    /// [`PeerFault`].
    pub fn look<P: PeerMemory>(&mut self, peer: &P) -> Result<(), PeerFault> {
        self.receiver.has_more(peer).map(|_| ())
    }

    /// Whether the peer has published something that was not seen yet: one load, for spinning. With it the processor
    /// fetches where the next record will lie: after the peer has written it and then `tail`, all of them come over
    /// together instead of the record after `tail`. While nothing is written they are in the cache, and cheap to ask for.
    #[inline]
    pub fn moved<P: PeerMemory>(&self, peer: &P) -> bool {
        self.receiver.fetch(peer);
        peer.load(Word::Tail, Ordering::Relaxed) != self.receiver.seen()
    }

    /// Gets hold of a few of the lines that the next record will lie in, before it is there, as far as they are free and not
    /// yet had: for whoever waits for the peer, between two looks. Writing a long record then takes a fraction of the time.
    #[inline]
    pub fn claim<O: OwnMemory>(&mut self, own: &O) {
        self.sender.claim(own);
    }

    /// Whether there are records of the peer that were seen and not taken, or a lie that was seen and not told.
    pub fn has_untaken(&self) -> bool {
        self.receiver.has_untaken()
    }

    /// Whether the record that did not fit would fit now.
    ///
    /// # Errors
    /// [`PeerFault`] when the peer's `head` is a lie.
    pub fn has_room<P: PeerMemory>(&mut self, peer: &P) -> Result<bool, PeerFault> {
        self.sender.has_room(peer)
    }

    /// Where the next pushed record will start: what [`Lanes::taken`] is compared with.
    pub fn position(&self) -> u64 {
        self.sender.position()
    }

    /// How many bytes were written and taken, both ways: positions that only grow.
    #[inline]
    pub fn exchanged(&self) -> u64 {
        self.sender.position().wrapping_add(self.receiver.position())
    }

    /// How far the peer has taken this end's records, as it says, within what can be true.
    ///
    /// # Errors
    /// [`PeerFault`] when it is a lie.
    pub fn taken<P: PeerMemory>(&mut self, peer: &P) -> Result<u64, PeerFault> {
        self.sender.refresh_head(peer)?;
        Ok(self.sender.peer_head())
    }

    /// Checks that a message of `bytes` can travel in a memfd of its own now, and its record be written: pass the
    /// descriptor then, and [`Lanes::push_attached`].
    ///
    /// # Errors
    /// [`PushError::TooLarge`], [`PushError::Full`] until the peer has taken some, [`PushError::Peer`].
    pub fn can_attach<P: PeerMemory>(&mut self, peer: &P, bytes: u64) -> Result<(), PushError> {
        self.sender.can_attach(peer, bytes)
    }

    /// Writes the record of a message of `bytes` whose memfd was passed, after [`Lanes::can_attach`].
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

    /// The epoch of the own lane.
    pub fn epoch(&self) -> Epoch {
        self.sender.epoch()
    }

    /// The size that the own lane should have for a message in parts, if it is smaller.
    pub fn wanted_for_parts(&self) -> Option<Geometry> {
        self.sender.wanted_for_parts()
    }

    /// The epoch that was passed to the peer and is not used yet.
    pub fn offered(&self) -> Option<Epoch> {
        self.sender.offered()
    }

    /// The epoch to pass for a lane of `size`, if one more is within what was agreed now.
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

    /// Notes that the memory of [`Lanes::next_epoch`] was passed to the peer.
    pub fn offer(&mut self, epoch: Epoch) {
        self.sender.offer(epoch);
    }

    /// Writes the switch record into `own` as it is, and goes on in the epoch that was offered: from now on `own`
    /// must be that memory. `None` when none was offered, or the lane is closed.
    pub fn switch<O: OwnMemory>(&mut self, own: &O) -> Option<Epoch> {
        self.sender.switch(own)
    }

    /// The size that the own lane should have instead of waiting for room.
    pub fn should_grow(&self) -> Option<Geometry> {
        self.sender.should_grow()
    }

    /// The next larger size of the own lane that was agreed, if it is not the largest.
    pub fn next_size(&self) -> Option<Geometry> {
        self.sender.next_size()
    }

    /// Whether there is something to do that is not urgent: see [`chores`](crate::resize::chores). Once, until the
    /// sender looks at its peer again.
    #[inline]
    pub fn take_chores(&mut self) -> bool {
        self.sender.take_chores()
    }

    /// The epoch that should be passed before it is needed, if it is within what was agreed now: the lane was three
    /// quarters full.
    pub fn foresees<P: PeerMemory>(&mut self, peer: &P) -> Option<Epoch> {
        self.sender.foresees(peer)
    }

    /// The size that the own lane, which is grown, should have at once because much goes through it while much is on its way, if it
    /// is smaller and the next epoch is within what was agreed now: ask now and then.
    pub fn wanted_for_pace<P: PeerMemory>(&mut self, peer: &P, now: Instant) -> Option<Geometry> {
        self.sender.wanted_for_pace(peer, now)
    }

    /// Whether the own lane is larger than the least that was agreed.
    pub fn is_grown(&self) -> bool {
        self.sender.is_grown()
    }

    /// Whether the own lane is grown and has used less than a quarter of its ring for `span`, as far as it was
    /// asked: ask now and then.
    pub fn is_idle(&mut self, now: Instant, span: Duration) -> bool {
        self.sender.is_idle(now, span)
    }

    /// The least size that was agreed for the own lane.
    pub fn least(&self) -> Geometry {
        self.sender.terms().least
    }

    /// The epoch that a switch record of the peer announces.
    ///
    /// # Errors
    /// [`PeerFault::Switch`] when no honest peer announces it.
    pub fn announced(&self, switch: &Record) -> Result<Epoch, PeerFault> {
        self.receiver.epoch(switch)
    }

    /// Leaves a switch record behind: the peer's lane goes on in `epoch`, whose memory is mapped.
    pub fn follow<O: OwnMemory>(&mut self, own: &O, switch: &Record, epoch: Epoch) {
        self.receiver.follow(own, switch, epoch);
    }

    /// The longest message that both ends allow, in bytes.
    pub fn max_message(&self) -> u64 {
        self.sender.terms().message.bytes
    }

    /// The longest message that this end takes, in bytes.
    pub fn max_received(&self) -> u64 {
        self.receiver.max_message()
    }

    /// The longest payload of a record in the largest lane that both ends allow, in bytes. A longer message
    /// travels in a memfd of its own.
    pub fn max_payload(&self) -> usize {
        self.sender.terms().most.max_payload()
    }

    /// What the own lane has carried.
    pub fn sent(&self) -> LaneStats {
        self.sender.stats()
    }

    /// What the peer's lane has carried.
    pub fn received(&self) -> LaneStats {
        self.receiver.stats()
    }
}
