//! The own lane: what [`Lanes`] does to write it.

use super::Lanes;
use super::epoch::{LaneStats, LaneTerms, MAX_ATTACHED, MAX_OUTSTANDING, Ring};
use super::prefetch::LinePrefetcher;
use super::sizing::{FULL_LIMIT, Resize, longest, pages, step};
use crate::sync::Ordering;
use crate::wire::{
    ALIGN, CloseReason, HEADER, HEADER_U32, Header, Kind, PAGE_SIZE, SWITCH_RESERVE, Status,
    record_len,
};
use crate::{Geometry, LimitOwner, OwnMemory, PeerFault, PeerMemory, Word};

/// Why a record was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// The message is longer than a limit.
    #[error("a message of {len} bytes is above {owner} limit of {limit} bytes")]
    TooLarge {
        /// The message's length in bytes.
        len: u64,
        /// The limit in bytes.
        limit: u64,
        /// Whose limit it is.
        owner: LimitOwner,
    },
    /// The lane must first grow to this size: [`grow`](crate::resize::grow) it and push again.
    #[error("the lane has to grow to {} bytes first", to.size())]
    Grow {
        /// The size that holds the message.
        to: Geometry,
    },
    /// No lane that both ends allow holds the message: attach it.
    #[error("a message of {len} bytes is above the {limit} bytes of a record in the largest lane")]
    Attach {
        /// The message's length in bytes.
        len: u64,
        /// The longest payload of a record in bytes.
        limit: u64,
    },
    /// The peer has not taken enough yet.
    #[error("the lane is full until the peer takes {missing} bytes more")]
    Full {
        /// Bytes that the peer has to take first.
        missing: u64,
    },
    /// This end has closed its lane.
    #[error("this end has closed its lane")]
    Closed,
    /// The peer's `head` is invalid.
    #[error(transparent)]
    Peer(#[from] PeerFault),
}

/// A move of `tail`: the previous value and the new one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    from: u64,
    to: u64,
}

impl Moved {
    /// Returns whether the move crosses the peer's event index.
    pub(super) fn crosses(self, event_index: u64) -> bool {
        self.from <= event_index && event_index < self.to
    }
}

/// Room for one record at the end of what was written: see [`Lanes::reserve`].
#[derive(Debug)]
#[must_use = "it is written"]
pub struct Reservation<'a> {
    sender: &'a mut Sender,
    /// The record's length in bytes, with its header.
    bytes: u64,
}

impl Reservation<'_> {
    /// Writes the record, whose payload has the length that was reserved. The peer does not see it until [`Lanes::commit`].
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "as of `Lanes::reserve`")]
    pub fn write<O: OwnMemory>(self, own: &O, header: Header, payload: &[u8]) {
        let Self { sender, bytes } = self;
        debug_assert_eq!(record_of(payload.len()), bytes, "of the reserved length");
        let at = sender.ring.offset(sender.written);
        own.write_record(at, header.to_bytes(), payload);
        sender.written += bytes;
        sender.records += 1;
    }
}

/// The writing end of a lane.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) ring: Ring,
    /// Bytes written, published or not. A multiple of `ALIGN`.
    pub(super) written: u64,
    /// The position up to which the peer's event index was checked: the `tail` that it can see.
    published: u64,
    /// The peer's `head`, as last loaded and checked: at most `published`.
    peer_head: u64,
    /// A record that ends after this position loads the peer's `head` first.
    pub(super) load_head_at: u64,
    /// The longest payload of a record in this epoch.
    pub(super) longest: usize,
    /// The position that `head` must cross for the record that did not fit; only after `Full`.
    pub(super) event_index: u64,
    /// Records written.
    records: u64,
    prefetcher: LinePrefetcher,
    pub(super) closed: bool,
    pub(super) resize: Resize,
}

impl Lanes {
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
        if self.reserve(payload.len()).is_none() {
            self.make_room(own, peer, payload.len())?;
        }
        let reserved = Reservation { sender: &mut self.sender, bytes: record_of(payload.len()) };
        reserved.write(own, header, payload);
        Ok(())
    }

    /// Reserves a record with `len` bytes of payload, if it fits without loading the peer's `head`, padding or
    /// growing. `None` is for [`Lanes::push`], which does all that.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "with several callers, LLVM emits one shared, outlined copy otherwise"
    )]
    pub fn reserve(&mut self, len: usize) -> Option<Reservation<'_>> {
        let sender = &mut self.sender;
        if len > sender.longest || sender.closed {
            return None;
        }
        let bytes = record_of(len);
        if sender.written + bytes + SWITCH_RESERVE > sender.load_head_at
            || bytes > sender.ring.room_to_end(sender.written)
        {
            return None;
        }
        Some(Reservation { sender, bytes })
    }

    /// Makes room for a record that has none at once: loads the peer's `head`, and pads.
    #[cold]
    fn make_room<O: OwnMemory, P: PeerMemory>(
        &mut self,
        own: &O,
        peer: &P,
        len: usize,
    ) -> Result<(), PushError> {
        if len > self.sender.longest {
            return Err(self.does_not_fit(peer, len));
        }
        if self.sender.closed {
            return Err(PushError::Closed);
        }
        let bytes = record_of(len);
        let room_to_end = self.sender.ring.room_to_end(self.sender.written);
        if bytes > room_to_end {
            self.sender.pad(own, peer, room_to_end)?;
        }
        self.sender.check_room(peer, bytes)?;
        Ok(())
    }

    /// Returns why a message does not fit the lane as it is.
    #[cold]
    fn does_not_fit<P: PeerMemory>(&mut self, peer: &P, len: usize) -> PushError {
        let most = self.sender.resize.terms.most;
        let bytes = len as u64;
        if self.sender.closed {
            return PushError::Closed;
        }
        if let Err(error) = self.allows(bytes) {
            return error;
        }
        let attach = PushError::Attach { len: bytes, limit: most.max_payload() as u64 };
        match Geometry::for_payload(len).filter(|to| *to <= most) {
            Some(to) if self.sender.resize.offered.is_some_and(|offered| offered.size >= to) => {
                PushError::Grow { to }
            }
            Some(to) => match self.sender.can_offer(peer, to, bytes) {
                Ok(()) => PushError::Grow { to },
                // A lane takes more shared memory than an attachment.
                Err(PushError::TooLarge { .. }) => attach,
                Err(error) => error,
            },
            None => attach,
        }
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
        self.allows(payload.len() as u64)?;
        // Fills the lane up to its end instead of padding, unless the remainder is too short to justify a record.
        let to_end = usize::try_from(self.sender.ring.room_to_end(self.sender.written))
            .unwrap_or(usize::MAX);
        let whole = self.sender.ring.epoch.part();
        let part = if to_end >= whole / 4 { whole.min(to_end - HEADER) } else { whole };
        let end = payload.len().min(sent + part);
        let part = payload.get(sent..end).unwrap_or_default();
        let len = u32::try_from(part.len()).unwrap_or(u32::MAX);
        self.push(own, peer, header.part(len, end < payload.len()), part)?;
        Ok(end)
    }

    /// Writes the Close record. It always fits, because nothing can follow it.
    pub fn push_close<O: OwnMemory>(&mut self, own: &O, reason: CloseReason) {
        if !self.sender.closed {
            self.sender.closed = true;
            let mut header = Header::new(Kind::Close, Status::Ok, 0, 0);
            header.status = (reason as u16).into();
            own.write(self.sender.ring.offset(self.sender.written), &header.to_bytes());
            self.sender.written += ALIGN as u64;
        }
    }

    /// Checks that both ends allow a message of this length in bytes.
    ///
    /// # Errors
    /// [`PushError::TooLarge`].
    pub fn allows(&self, len: u64) -> Result<(), PushError> {
        let limit = self.sender.resize.terms.message;
        if len > limit.bytes {
            return Err(PushError::TooLarge { len, limit: limit.bytes, owner: limit.owner });
        }
        Ok(())
    }

    /// Prefetches for writing a few free lines of the next record, for a waiting end to call between two polls.
    /// Writing a long record then takes a fraction of the time.
    #[inline]
    pub fn prefetch<O: OwnMemory>(&mut self, own: &O) {
        let sender = &mut self.sender;
        let free = sender.peer_head.max(sender.ring.base) + sender.ring.size();
        sender.prefetcher.advance(own, &sender.ring, sender.written, free);
    }

    /// Returns the position of the next pushed record, for comparison with [`Lanes::taken`].
    pub fn position(&self) -> u64 {
        self.sender.written
    }

    /// Returns how far the peer has taken this end's records, according to its `head`.
    ///
    /// # Errors
    /// [`PeerFault`] when `head` is invalid.
    pub fn taken<P: PeerMemory>(&mut self, peer: &P) -> Result<u64, PeerFault> {
        self.sender.refresh_head(peer)?;
        Ok(self.sender.peer_head)
    }

    /// Returns the same as of the last time that `head` was loaded.
    #[inline]
    pub fn seen_taken(&self) -> u64 {
        self.sender.peer_head
    }

    /// Returns whether the record that did not fit would fit now.
    ///
    /// # Errors
    /// [`PeerFault`] when the peer's `head` is invalid.
    pub fn has_room<P: PeerMemory>(&mut self, peer: &P) -> Result<bool, PeerFault> {
        self.sender.refresh_head(peer)?;
        Ok(self.sender.peer_head > self.sender.event_index)
    }

    /// Makes [`Lanes::has_room`] and [`Lanes::arm`] wait until the peer has taken everything before `position`, instead
    /// of for room for a record.
    pub fn await_consumed(&mut self, position: u64) {
        self.sender.event_index = position.saturating_sub(1);
    }

    /// Like [`Lanes::await_consumed`], but has them wait for room for the record that did not fit as well: for what comes first.
    pub fn await_consumed_or_room(&mut self, position: u64) {
        let room = self.sender.event_index.saturating_add(1);
        self.await_consumed(position.min(room));
    }

    /// Checks that an attachment of `bytes` and its record are possible now. Then pass the descriptor and call
    /// [`Lanes::push_attached`].
    ///
    /// # Errors
    /// [`PushError::TooLarge`], [`PushError::Full`] until the peer has taken some, [`PushError::Peer`].
    pub fn can_attach<P: PeerMemory>(&mut self, peer: &P, bytes: u64) -> Result<(), PushError> {
        if self.sender.closed {
            return Err(PushError::Closed);
        }
        self.allows(bytes)?;
        self.sender.refresh_head(peer)?;
        if self.sender.resize.attached.len() >= MAX_ATTACHED {
            if let Some((end, _)) = self.sender.resize.attached.front() {
                let end = *end;
                return Err(self.sender.full(end));
            }
        }
        self.sender.can_share(pages(bytes), bytes)?;
        self.sender.check_room(peer, HEADER as u64)
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
        self.push(own, peer, header, &[])?;
        self.sender.resize.attached.push_back((self.sender.written, pages(bytes)));
        self.sender.resize.stats.attaches += 1;
        Ok(())
    }

    /// Returns the longest message that both ends allow, in bytes.
    pub fn max_message(&self) -> u64 {
        self.sender.resize.terms.message.bytes
    }

    /// Returns the longest payload of a record in the largest lane that both ends allow, in bytes. A longer message
    /// is attached.
    pub fn max_payload(&self) -> usize {
        self.sender.resize.terms.most.max_payload()
    }

    /// Returns the statistics of the own lane.
    pub fn sent(&self) -> LaneStats {
        let sender = &self.sender;
        LaneStats {
            epoch: sender.ring.epoch.number,
            size: sender.ring.size(),
            bytes: sender.written,
            ..sender.resize.stats
        }
    }
}

impl Sender {
    pub(super) fn new(terms: LaneTerms) -> Self {
        Self {
            ring: Ring::first(terms.size),
            written: 0,
            published: 0,
            peer_head: 0,
            load_head_at: step(&terms, terms.size),
            longest: longest(&terms, terms.size),
            event_index: 0,
            records: 0,
            prefetcher: LinePrefetcher::default(),
            closed: false,
            resize: Resize::new(terms),
        }
    }

    /// Pads the lane to its end. The pad counts as written even when the record after it has to wait, so a waiter
    /// never waits for more than half a lane.
    #[cold]
    fn pad<O: OwnMemory, P: PeerMemory>(
        &mut self,
        own: &O,
        peer: &P,
        room: u64,
    ) -> Result<(), PushError> {
        self.check_room(peer, room)?;
        let len = u32::try_from(room).unwrap_or(u32::MAX).saturating_sub(HEADER_U32);
        let header = Header::new(Kind::Pad, Status::Ok, 0, len);
        own.write(self.ring.offset(self.written), &header.to_bytes());
        self.written += room;
        Ok(())
    }

    /// Checks that `len` bytes and the reserve fit after `written`.
    #[inline]
    fn check_room<P: PeerMemory>(&mut self, peer: &P, len: u64) -> Result<(), PushError> {
        let end = self.written + len + SWITCH_RESERVE;
        if end > self.load_head_at { self.load_head(peer, end) } else { Ok(()) }
    }

    /// Loads the peer's `head`: four times per lap, and when the lane seems full.
    #[cold]
    fn load_head<P: PeerMemory>(&mut self, peer: &P, end: u64) -> Result<(), PushError> {
        self.refresh_head(peer)?;
        let size = self.ring.size();
        // Records in an earlier epoch take no space in this one.
        let from = self.peer_head.max(self.ring.base);
        let used = end - from;
        let resize = &mut self.resize;
        resize.stats.high_water = resize.stats.high_water.max(used.min(size));
        resize.peak = resize.peak.max(used);
        resize.depth = resize.depth.max(used);
        let is_read = self.peer_head >= self.ring.base;
        resize.pregrow |= is_read && used >= size / 4 * 3;
        resize.maintenance_due |= resize.pregrow || self.ring.epoch.size > resize.terms.least;
        if used > size {
            resize.met_full(self.records);
            return Err(self.full(end - size));
        }
        self.load_head_at = (from + size).min(end + step(&resize.terms, self.ring.epoch.size));
        Ok(())
    }

    /// Returns `Full` for a record that waits until `head` reaches `needed`.
    fn full(&mut self, needed: u64) -> PushError {
        self.event_index = needed - 1;
        PushError::Full { missing: needed - self.peer_head }
    }

    /// Checks that the agreed limits allow one more epoch of that size now.
    pub(super) fn can_offer<P: PeerMemory>(
        &mut self,
        peer: &P,
        to: Geometry,
        len: u64,
    ) -> Result<(), PushError> {
        if self.closed {
            return Err(PushError::Closed);
        }
        self.refresh_head(peer)?;
        let outstanding = self.resize.left.len() + usize::from(self.resize.offered.is_some());
        match self.resize.left.front() {
            Some(&(end, _)) if outstanding >= MAX_OUTSTANDING => Err(self.full(end)),
            _ => self.can_share(to.size(), len),
        }
    }

    /// Checks that the agreed limits allow `bytes` more of shared memory now.
    fn can_share(&mut self, bytes: u64, len: u64) -> Result<(), PushError> {
        let limit = self.resize.terms.shared;
        let held = PAGE_SIZE as u64 + self.ring.size();
        let passing = self.resize.passing();
        if held + passing + bytes <= limit.bytes {
            return Ok(());
        }
        let ends = [self.resize.left.front(), self.resize.attached.front()];
        match ends.into_iter().flatten().map(|(end, _)| *end).min() {
            Some(end) => Err(self.full(end)),
            None => Err(PushError::TooLarge { len, limit: limit.bytes, owner: limit.owner }),
        }
    }

    /// Returns the size to offer soon: the lane is often full, or was three quarters full.
    pub(super) fn advised(&self) -> Option<Geometry> {
        let size = self.ring.epoch.size;
        let most = self.resize.terms.most;
        let is_small = size < most && size.size() < FULL_LIMIT;
        // A peer that has not reached this epoch does not benefit from the next one.
        let is_read = self.peer_head >= self.ring.base;
        (self.resize.pregrow && is_small && is_read).then(|| size.doubled())
    }

    /// Returns whether one more epoch of that size is possible now. Does not change what a waiter waits for.
    pub(super) fn can_pregrow<P: PeerMemory>(&mut self, peer: &P, size: Geometry) -> bool {
        let event_index = self.event_index;
        let offer = self.can_offer(peer, size, size.max_payload() as u64);
        self.event_index = event_index;
        offer.is_ok()
    }

    /// Loads the peer's `head` and checks it against this end's own positions.
    fn refresh_head<P: PeerMemory>(&mut self, peer: &P) -> Result<(), PeerFault> {
        // Acquire: the peer's copies of consumed records happen before this end overwrites them.
        let now = peer.load(Word::Head, Ordering::Acquire);
        if now == self.peer_head {
            return Ok(());
        }
        if now < self.peer_head {
            return Err(PeerFault::HeadWentBack { seen: self.peer_head, now });
        }
        let published = self.published;
        if now > published {
            return Err(PeerFault::HeadTooFar { head: now, published });
        }
        if now % ALIGN as u64 != 0 {
            return Err(PeerFault::Misaligned { at: now });
        }
        self.peer_head = now;
        self.resize.remove_passed(now);
        Ok(())
    }

    /// Publishes what was written. The caller fences and checks the peer's event index.
    #[inline]
    pub(super) fn publish<O: OwnMemory>(&mut self, own: &O) -> Option<Moved> {
        if self.written == self.published {
            return None;
        }
        // Release: the records' bytes happen before the tail that covers them.
        own.store(Word::Tail, self.written, Ordering::Release);
        let moved = Moved { from: self.published, to: self.written };
        self.published = self.written;
        Some(moved)
    }
}

/// Returns the bytes that a record of `len` payload bytes takes: at most half a gibibyte.
#[inline]
fn record_of(len: usize) -> u64 {
    record_len(u32::try_from(len).unwrap_or(u32::MAX))
}
