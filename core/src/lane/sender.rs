use super::epoch::{
    BUSY, DEEP, Epoch, LARGE_LANE, LaneStats, LaneTerms, MOST_ATTACHED, MOST_OUTSTANDING, Ring,
    STREAM_LANE, WORTH_LARGE,
};
use super::prefetch::LinePrefetcher;
use super::sizing::{FULL_LIMIT, FULL_SHARE, Resize, longest, pages, quarter, step};
use crate::sync::Ordering;
use crate::wire::{
    ALIGN, CloseReason, HEADER, HEADER_U32, Header, Kind, PAGE_SIZE, SWITCH_RESERVE, Status,
    record_len,
};
use crate::{Geometry, Instant, OwnMemory, PeerFault, PeerMemory, Whose, Word};
use core::time::Duration;

/// Why a record was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// The message is longer than a limit.
    #[error("a message of {len} bytes is above {whose} limit of {limit} bytes")]
    TooLarge {
        /// The message's length in bytes.
        len: u64,
        /// The limit in bytes.
        limit: u64,
        /// Whose limit it is.
        whose: Whose,
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

/// The writing end of a lane.
#[derive(Debug)]
pub(super) struct Sender {
    ring: Ring,
    /// Bytes written, published or not. A multiple of `ALIGN`.
    written: u64,
    /// The position up to which the peer's event index was checked: the `tail` that it can see.
    published: u64,
    /// The peer's `head`, as last loaded and checked: at most `published`.
    peer_head: u64,
    /// A record that ends after this position loads the peer's `head` first.
    look_at: u64,
    /// The longest payload of a record in this epoch.
    longest: usize,
    /// The position that `head` must cross for the record that did not fit; only after `Full`.
    event_index: u64,
    /// Records written.
    records: u64,
    prefetcher: LinePrefetcher,
    closed: bool,
    resize: Resize,
}

impl Sender {
    pub(super) fn new(terms: LaneTerms) -> Self {
        Self {
            ring: Ring::first(terms.size),
            written: 0,
            published: 0,
            peer_head: 0,
            look_at: step(&terms, terms.size),
            longest: longest(&terms, terms.size),
            event_index: 0,
            records: 0,
            prefetcher: LinePrefetcher::default(),
            closed: false,
            resize: Resize::new(terms),
        }
    }

    pub(super) fn terms(&self) -> &LaneTerms {
        &self.resize.terms
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.ring.epoch
    }

    pub(super) fn position(&self) -> u64 {
        self.written
    }

    pub(super) fn peer_head(&self) -> u64 {
        self.peer_head
    }

    pub(super) fn stats(&self) -> LaneStats {
        LaneStats {
            epoch: self.ring.epoch.number,
            size: self.ring.size(),
            bytes: self.written,
            ..self.resize.stats
        }
    }

    #[inline]
    pub(super) fn push<O: OwnMemory, P: PeerMemory>(
        &mut self,
        own: &O,
        peer: &P,
        header: Header,
        payload: &[u8],
    ) -> Result<(), PushError> {
        if self.try_push(own, header, payload) {
            return Ok(());
        }
        if payload.len() > self.longest {
            return Err(self.does_not_fit(peer, payload.len()));
        }
        if self.closed {
            return Err(PushError::Closed);
        }
        let record = record_of(payload);
        let room_to_end = self.ring.room_to_end(self.written);
        if record > room_to_end {
            self.pad(own, peer, room_to_end)?;
        }
        self.reserve(peer, record)?;
        self.write(own, header, payload, record);
        Ok(())
    }

    /// Writes a record that fits before the next pad without loading the peer's `head`. Returns false, and writes
    /// nothing, for any other.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "also called by the slow path; otherwise LLVM emits one shared, outlined copy"
    )]
    pub(super) fn try_push<O: OwnMemory>(
        &mut self,
        own: &O,
        header: Header,
        payload: &[u8],
    ) -> bool {
        if payload.len() > self.longest || self.closed {
            return false;
        }
        let record = record_of(payload);
        let is_room = self.written + record + SWITCH_RESERVE <= self.look_at
            && record <= self.ring.room_to_end(self.written);
        if is_room {
            self.write(own, header, payload, record);
        }
        is_room
    }

    #[inline]
    fn write<O: OwnMemory>(&mut self, own: &O, header: Header, payload: &[u8], record: u64) {
        let at = self.ring.offset(self.written);
        own.write_record(at, header.to_bytes(), payload);
        self.written += record;
        self.records += 1;
    }

    /// See [`super::Lanes::prefetch`].
    #[inline]
    pub(super) fn prefetch<O: OwnMemory>(&mut self, own: &O) {
        let free = self.peer_head.max(self.ring.base) + self.ring.size();
        self.prefetcher.advance(own, &self.ring, self.written, free);
    }

    /// Writes the next part of a message.
    pub(super) fn push_part<O: OwnMemory, P: PeerMemory>(
        &mut self,
        own: &O,
        peer: &P,
        header: Header,
        payload: &[u8],
        sent: usize,
    ) -> Result<usize, PushError> {
        self.allows(payload.len() as u64)?;
        // Fills the lane up to its end instead of padding, unless the remainder is too short to justify a record.
        let to_end = usize::try_from(self.ring.room_to_end(self.written)).unwrap_or(usize::MAX);
        let whole = self.ring.epoch.part();
        let part = if to_end >= whole / 4 { whole.min(to_end - HEADER) } else { whole };
        let end = payload.len().min(sent + part);
        let part = payload.get(sent..end).unwrap_or_default();
        let len = u32::try_from(part.len()).unwrap_or(u32::MAX);
        self.push(own, peer, header.part(len, end < payload.len()), part)?;
        Ok(end)
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
        self.reserve(peer, room)?;
        let len = u32::try_from(room).unwrap_or(u32::MAX).saturating_sub(HEADER_U32);
        let header = Header::new(Kind::Pad, Status::Ok, 0, len);
        own.write(self.ring.offset(self.written), &header.to_bytes());
        self.written += room;
        Ok(())
    }

    /// The reserve holds the Close record: 16 bytes always fit before the lane's end.
    pub(super) fn push_close<O: OwnMemory>(&mut self, own: &O, reason: CloseReason) {
        if !self.closed {
            self.closed = true;
            let mut header = Header::new(Kind::Close, Status::Ok, 0, 0);
            header.status = (reason as u16).into();
            own.write(self.ring.offset(self.written), &header.to_bytes());
            self.written += ALIGN as u64;
        }
    }

    /// Checks that `len` bytes and the reserve fit after `written`.
    #[inline]
    fn reserve<P: PeerMemory>(&mut self, peer: &P, len: u64) -> Result<(), PushError> {
        let end = self.written + len + SWITCH_RESERVE;
        if end > self.look_at { self.look(peer, end) } else { Ok(()) }
    }

    /// Loads the peer's `head`: four times per lap, and when the lane seems full.
    #[cold]
    fn look<P: PeerMemory>(&mut self, peer: &P, end: u64) -> Result<(), PushError> {
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
        resize.foreseen |= is_read && used >= size / 4 * 3;
        resize.maintenance_due |= resize.foreseen || self.ring.epoch.size > resize.terms.least;
        if used > size {
            resize.met_full(self.records);
            return Err(self.full(end - size));
        }
        self.look_at = (from + size).min(end + step(&resize.terms, self.ring.epoch.size));
        Ok(())
    }

    /// Returns `Full` for a record that waits until `head` reaches `needed`.
    fn full(&mut self, needed: u64) -> PushError {
        self.event_index = needed - 1;
        PushError::Full { missing: needed - self.peer_head }
    }

    /// Checks that both ends allow a message of this length.
    pub(super) fn allows(&self, len: u64) -> Result<(), PushError> {
        let limit = self.resize.terms.message;
        if len > limit.bytes {
            return Err(PushError::TooLarge { len, limit: limit.bytes, whose: limit.whose });
        }
        Ok(())
    }

    /// Returns why a message does not fit the lane as it is.
    #[cold]
    fn does_not_fit<P: PeerMemory>(&mut self, peer: &P, len: usize) -> PushError {
        let most = self.resize.terms.most;
        let bytes = len as u64;
        if self.closed {
            return PushError::Closed;
        }
        if let Err(error) = self.allows(bytes) {
            return error;
        }
        let attach = PushError::Attach { len: bytes, limit: most.max_payload() as u64 };
        match Geometry::for_payload(len).filter(|to| *to <= most) {
            Some(to) if self.resize.offered.is_some_and(|offered| offered.size >= to) => {
                PushError::Grow { to }
            }
            Some(to) => match self.can_offer(peer, to, bytes) {
                Ok(()) => PushError::Grow { to },
                // A lane takes more shared memory than an attachment.
                Err(PushError::TooLarge { .. }) => attach,
                Err(error) => error,
            },
            None => attach,
        }
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
            Some(&(end, _)) if outstanding >= MOST_OUTSTANDING => Err(self.full(end)),
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
            None => Err(PushError::TooLarge { len, limit: limit.bytes, whose: limit.whose }),
        }
    }

    /// Checks that an attachment of `bytes` and its record are possible now.
    pub(super) fn can_attach<P: PeerMemory>(
        &mut self,
        peer: &P,
        bytes: u64,
    ) -> Result<(), PushError> {
        if self.closed {
            return Err(PushError::Closed);
        }
        self.allows(bytes)?;
        self.refresh_head(peer)?;
        if self.resize.attached.len() >= MOST_ATTACHED {
            if let Some((end, _)) = self.resize.attached.front() {
                let end = *end;
                return Err(self.full(end));
            }
        }
        self.can_share(pages(bytes), bytes)?;
        self.reserve(peer, HEADER as u64)
    }

    /// Writes the record of a passed attachment, after [`Sender::can_attach`].
    pub(super) fn push_attached<O: OwnMemory, P: PeerMemory>(
        &mut self,
        own: &O,
        peer: &P,
        header: Header,
        bytes: u64,
    ) -> Result<(), PushError> {
        self.push(own, peer, header, &[])?;
        self.resize.attached.push_back((self.written, pages(bytes)));
        self.resize.stats.attaches += 1;
        Ok(())
    }

    /// Returns the epoch that was passed to the peer but is not in use yet.
    pub(super) fn offered(&self) -> Option<Epoch> {
        self.resize.offered
    }

    /// Records that the memory of `epoch` was passed to the peer.
    pub(super) fn offer(&mut self, epoch: Epoch) {
        self.resize.offered = Some(epoch);
        self.resize.foreseen = false;
    }

    /// Writes the Switch record, which always fits, and enters the offered epoch: everything after it goes to that
    /// memory. Returns `None` when no epoch is offered.
    pub(super) fn switch<O: OwnMemory>(&mut self, own: &O) -> Option<Epoch> {
        if self.closed {
            return None;
        }
        let next = self.resize.offered.take()?;
        let header = Header::new(Kind::Switch, Status::Ok, next.to_wire(), 0);
        own.write(self.ring.offset(self.written), &header.to_bytes());
        self.written += HEADER as u64;
        self.resize.left.push_back((self.written, self.ring.size()));
        self.resize.restart(None);
        let (before, after) = (self.ring.epoch.size, next.size);
        self.resize.stats.grows += u64::from(after > before);
        self.resize.stats.shrinks += u64::from(after < before);
        self.ring = Ring { epoch: next, base: self.written };
        self.look_at = self.written + step(&self.resize.terms, next.size);
        self.longest = longest(&self.resize.terms, next.size);
        Some(next)
    }

    /// Returns the size to offer soon: the lane is often full, or was three quarters full.
    pub(super) fn advised(&self) -> Option<Geometry> {
        let size = self.ring.epoch.size;
        let most = self.resize.terms.most;
        let is_small = size < most && size.size() < FULL_LIMIT;
        // A peer that has not reached this epoch does not benefit from the next one.
        let is_read = self.peer_head >= self.ring.base;
        (self.resize.foreseen && is_small && is_read).then(|| size.doubled())
    }

    /// Returns whether maintenance that is not urgent is due; true until the next load of `head`.
    #[inline]
    pub(super) fn take_maintenance(&mut self) -> bool {
        self.resize.maintenance_due && core::mem::take(&mut self.resize.maintenance_due)
    }

    /// Returns the epoch to offer early, if that is possible now.
    pub(super) fn wants_pregrow<P: PeerMemory>(&mut self, peer: &P) -> Option<Epoch> {
        if self.resize.offered.is_some() {
            return None;
        }
        let size = self.advised()?;
        self.can_offer_unasked(peer, size).then(|| self.ring.epoch.next(size))
    }

    /// Returns whether one more epoch of that size is possible now. Does not change what a waiter waits for.
    fn can_offer_unasked<P: PeerMemory>(&mut self, peer: &P, size: Geometry) -> bool {
        let event_index = self.event_index;
        let offer = self.can_offer(peer, size, size.max_payload() as u64);
        self.event_index = event_index;
        offer.is_ok()
    }

    /// Returns the size that a grown lane should have because it is deep and busy, if that is possible now. A busy
    /// lane is not idle, however little of it is in use.
    pub(super) fn wanted_for_pace<P: PeerMemory>(
        &mut self,
        peer: &P,
        now: Instant,
    ) -> Option<Geometry> {
        let size = self.ring.epoch.size;
        let (since, from) = *self.resize.pace.get_or_insert((now, self.written));
        if self.written - from < WORTH_LARGE {
            return None;
        }
        self.resize.pace = Some((now, self.written));
        let depth = core::mem::take(&mut self.resize.depth);
        if depth <= DEEP || now.since(since) >= BUSY {
            return None;
        }
        self.resize.since = Some(now);
        let wanted = LARGE_LANE.min(self.resize.terms.most);
        let is_possible = size < wanted
            && (self.resize.offered.is_some() || self.can_offer_unasked(peer, wanted));
        is_possible.then_some(wanted)
    }

    /// Returns the size to grow to instead of waiting for room, if any.
    pub(super) fn should_grow(&self) -> Option<Geometry> {
        let advised = self.advised()?;
        let is_often = self.resize.full.count_ones() >= FULL_SHARE;
        (is_often || self.resize.offered.is_some_and(|offered| offered.size >= advised))
            .then_some(advised)
    }

    /// Returns the size that the lane should have for a message in parts, if it is smaller.
    pub(super) fn wanted_for_parts(&self) -> Option<Geometry> {
        let size = self.ring.epoch.size;
        let is_worth = size >= STREAM_LANE && self.written - self.ring.base >= WORTH_LARGE;
        let wanted = if is_worth { LARGE_LANE } else { STREAM_LANE };
        let wanted = wanted.min(self.resize.terms.most);
        (size < wanted).then_some(wanted)
    }

    /// Returns the next larger size within the agreed limits.
    pub(super) fn next_size(&self) -> Option<Geometry> {
        let size = self.ring.epoch.size;
        (size < self.resize.terms.most).then(|| size.doubled())
    }

    /// Returns whether the lane is larger than its idle size.
    pub(super) fn is_grown(&self) -> bool {
        self.ring.epoch.size > self.resize.terms.least
    }

    /// Returns whether the lane has used less than a quarter of its ring for `span`.
    pub(super) fn is_idle(&mut self, now: Instant, span: Duration) -> bool {
        let resize = &mut self.resize;
        if self.ring.epoch.size <= resize.terms.least {
            return false;
        }
        if resize.peak >= quarter(self.ring.epoch.size) {
            resize.restart(Some(now));
        }
        now.since(*resize.since.get_or_insert(now)) >= span
    }

    /// Loads the peer's `head` and checks it against this end's own positions.
    pub(super) fn refresh_head<P: PeerMemory>(&mut self, peer: &P) -> Result<(), PeerFault> {
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
        self.resize.settle(now);
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

    /// See [`super::Lanes::await_taken`].
    pub(super) fn await_taken(&mut self, position: u64) {
        self.event_index = position.saturating_sub(1);
    }

    /// Returns the position that the peer's `head` must cross for the record that did not fit.
    pub(super) fn event_index(&self) -> u64 {
        self.event_index
    }

    /// Returns whether the record that did not fit would fit now.
    pub(super) fn has_room<P: PeerMemory>(&mut self, peer: &P) -> Result<bool, PeerFault> {
        self.refresh_head(peer)?;
        Ok(self.peer_head > self.event_index)
    }
}

/// Returns the bytes that a record of `len` payload bytes takes: at most half a gibibyte.
#[inline]
fn record_of(payload: &[u8]) -> u64 {
    record_len(u32::try_from(payload.len()).unwrap_or(u32::MAX))
}
