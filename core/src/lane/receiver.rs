//! The peer's lane: what [`Lanes`] does to read it.

use super::LINE;
use super::Lanes;
use super::epoch::{Epoch, LaneStats, LaneTerms, MAX_OUTSTANDING, Ring};
use crate::sync::Ordering;
use crate::wire::{ALIGN, BATCH, HEADER, Header, Kind, MORE, Status, record_len};
use crate::{OwnMemory, PeerFault, PeerMemory, Word};

/// A published record whose header was copied and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The kind of record; never [`Kind::Pad`].
    pub kind: Kind,
    /// The uninterpreted status field.
    pub status: u16,
    /// The id of the message: its own or, for an answer, the request's.
    pub id: u64,
    /// The payload's length in bytes; all of it is published.
    pub len: u32,
    /// Whether the message continues in another record.
    pub more: bool,
    /// Whether the request is a batch.
    pub batch: bool,
    /// The position of the header.
    pub(super) at: u64,
}

impl Record {
    /// Returns the record's position in the byte stream of the lane, for diagnostics.
    pub fn at(&self) -> u64 {
        self.at
    }
}

/// How far ahead of `head` to prefetch, in bytes, where more is published.
const FETCHED: u64 = 4 * LINE;

/// The reading end of a lane.
#[derive(Debug)]
pub(super) struct Receiver {
    ring: Ring,
    terms: LaneTerms,
    /// Bytes consumed.
    pub(super) head: u64,
    /// The peer's `tail`, as last loaded and checked: at most `reach` after `head`.
    pub(super) peer_tail: u64,
    /// How far `tail` can be ahead: this epoch plus all later ones that the peer may have entered.
    reach: u64,
    /// A copied header that is not a plain message, with its position: left for the slow path, so that no byte is
    /// read twice.
    left: Option<(u64, Header)>,
    /// An invalid `tail`, kept for the slow path to report: nothing is read after a protocol violation.
    invalid_tail: Option<u64>,
    /// The `head` that the peer can see.
    released: u64,
    /// The `head` at which the peer's event index for space was last checked.
    checked: u64,
    /// The `head` from which it must be checked again.
    check_from: u64,
    stats: LaneStats,
}

/// A complete, plain message that is next in the peer's lane: what its header says, which is checked. It can be taken or left
/// once.
#[derive(Debug)]
#[must_use = "it is taken or left"]
pub struct Plain {
    kind: Kind,
    id: u64,
    len: u32,
    /// Where its record begins in the lane.
    at: usize,
}

impl Plain {
    /// Returns the request's number.
    #[inline]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the length of the payload in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether it has no payload.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Lanes {
    /// Returns the next published record of the peer's lane, which stays there until [`Lanes::take`].
    ///
    /// # Errors
    /// [`PeerFault`] when the peer's words or the record's header are invalid.
    pub fn peek<P: PeerMemory>(&mut self, peer: &P) -> Result<Option<Record>, PeerFault> {
        loop {
            if self.receiver.head == self.receiver.peer_tail && !self.receiver.has_more(peer)? {
                return Ok(None);
            }
            let record = self.receiver.header(peer)?;
            if record.kind != Kind::Pad {
                return Ok(Some(record));
            }
            self.take(&record);
        }
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
        let receiver = &mut self.receiver;
        if receiver.head == receiver.peer_tail {
            if receiver.invalid_tail.is_some() {
                return None;
            }
            // Acquire: as in `has_more`.
            let tail = peer.load(Word::Tail, Ordering::Acquire);
            if !receiver.advance(tail) {
                receiver.invalid_tail = (tail != receiver.peer_tail).then_some(tail);
                return None;
            }
            receiver.fetch(peer);
            if receiver.peer_tail - receiver.head > 2 * LINE {
                receiver.fetch_more(peer);
            }
        }
        if receiver.left.is_some_and(|(at, _)| at == receiver.head) {
            return None;
        }
        let at = receiver.ring.offset(receiver.head);
        let words @ [low, id] = peer.read_header(at);
        let header = Header::from_words(words);
        let len = header.len.get();
        let room = (receiver.ring.size() - at as u64).min(receiver.peer_tail - receiver.head);
        // Behind the length there is nothing but the kind: no flags, and status 0, which is Ok.
        let is_plain = low >> 32 == kind as u64
            && record_len(len) <= room
            && u64::from(len) <= receiver.terms.message.bytes;
        if is_plain {
            return Some(Plain { kind, id, len, at });
        }
        receiver.left = Some((receiver.head, header));
        None
    }

    /// Copies the payload of a plain message into `into`, which has its length, and stores `head` before the caller acts
    /// on it, as [`Lanes::take_before_acting`] does.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "also called by the slow path; otherwise LLVM emits one shared, outlined copy"
    )]
    #[allow(clippy::needless_pass_by_value, reason = "it is taken or left once")]
    pub fn take_plain<O: OwnMemory, P: PeerMemory>(
        &mut self,
        own: &O,
        peer: &P,
        plain: Plain,
        into: &mut [u8],
    ) {
        debug_assert_eq!(into.len(), plain.len(), "the payload is taken whole");
        peer.read(plain.at + HEADER, into);
        self.receiver.head += record_len(plain.len);
        let next = self.receiver.head + FETCHED;
        if next < self.receiver.peer_tail {
            peer.will_read(self.receiver.ring.offset(next));
        }
        self.receiver.release(own);
    }

    /// Leaves a plain message for [`Lanes::peek`].
    #[inline]
    #[allow(clippy::needless_pass_by_value, reason = "it is taken or left once")]
    pub fn leave_plain(&mut self, plain: Plain) {
        let receiver = &mut self.receiver;
        receiver.left =
            Some((receiver.head, Header::new(plain.kind, Status::Ok, plain.id, plain.len)));
    }

    /// Copies the start of a record's payload: as many bytes as `into` holds, at most the record's length.
    pub fn copy<P: PeerMemory>(&self, peer: &P, record: &Record, into: &mut [u8]) {
        let len = into.len().min(record.len as usize);
        if let Some(into) = into.get_mut(..len) {
            peer.read(self.receiver.ring.offset(record.at) + HEADER, into);
        }
    }

    /// Consumes a record. The next commit returns its space to the peer.
    pub fn take(&mut self, record: &Record) {
        self.receiver.head = record.at + record_len(record.len);
        if record.kind == Kind::Attach {
            // The peer may wait until one of its few attachments is taken.
            self.receiver.check_from = 0;
            self.receiver.stats.attaches += 1;
        }
    }

    /// Consumes a record and publishes that before the caller acts on it: after a crash, `head` tells the peer
    /// whether a handler can have received the request.
    pub fn take_before_acting<O: OwnMemory>(&mut self, own: &O, record: &Record) {
        self.take(record);
        self.receiver.release(own);
    }

    /// Loads and checks the peer's `tail` but leaves the records, for a caller that takes none now. What was
    /// published counts as seen.
    ///
    /// # Errors
    /// [`PeerFault`].
    pub fn load_tail<P: PeerMemory>(&mut self, peer: &P) -> Result<(), PeerFault> {
        self.receiver.has_more(peer).map(|_| ())
    }

    /// Returns whether records of the peer, or a protocol violation, were seen but not taken.
    pub fn has_unread(&self) -> bool {
        self.receiver.head < self.receiver.peer_tail || self.receiver.invalid_tail.is_some()
    }

    /// Returns whether the next [`Lanes::commit`] would check for a peer that waits for space: a quarter of the lane was
    /// consumed since the last check, or an epoch or an attachment was released. An end that only receives must commit
    /// when this is true. Pads count: they are skipped in passing and released with the next record.
    #[inline]
    pub fn wake_check_due(&self) -> bool {
        self.receiver.head >= self.receiver.check_from
    }

    /// Returns the longest message that this end accepts, in bytes.
    pub fn max_received(&self) -> u64 {
        self.receiver.terms.message.bytes
    }

    /// Returns the epoch that a Switch record of the peer announces.
    ///
    /// # Errors
    /// [`PeerFault::Switch`] when it is invalid.
    pub fn announced(&self, record: &Record) -> Result<Epoch, PeerFault> {
        let terms = &self.receiver.terms;
        let fault = |why| PeerFault::Switch { at: record.at, id: record.id, why };
        let epoch = Epoch::from_wire(record.id).ok_or_else(|| fault("its size is no lane's"))?;
        if epoch != self.receiver.ring.epoch.next(epoch.size) {
            return Err(fault("its epoch is not the next one"));
        }
        if epoch.size < terms.least {
            return Err(fault("it is smaller than the least that was agreed"));
        }
        if epoch.size > terms.most {
            return Err(fault("it is larger than the limit"));
        }
        Ok(epoch)
    }

    /// Consumes a Switch record: the peer's lane goes on in `epoch`, whose memory is mapped.
    pub fn follow<O: OwnMemory>(&mut self, own: &O, record: &Record, epoch: Epoch) {
        self.take(record);
        let receiver = &mut self.receiver;
        let (before, after) = (receiver.ring.epoch.size, epoch.size);
        receiver.stats.grows += u64::from(after > before);
        receiver.stats.shrinks += u64::from(after < before);
        receiver.ring = Ring { epoch, base: receiver.head };
        receiver.reach = reach(&receiver.terms, &receiver.ring);
        // The peer may be waiting for exactly this.
        receiver.check_from = 0;
        receiver.release(own);
    }

    /// Returns the statistics of the peer's lane.
    pub fn received(&self) -> LaneStats {
        let receiver = &self.receiver;
        LaneStats {
            epoch: receiver.ring.epoch.number,
            size: receiver.ring.size(),
            bytes: receiver.head,
            ..receiver.stats
        }
    }
}

impl Receiver {
    pub(super) fn new(terms: LaneTerms) -> Self {
        let ring = Ring::first(terms.size);
        Self {
            ring,
            terms,
            head: 0,
            peer_tail: 0,
            reach: reach(&terms, &ring),
            left: None,
            invalid_tail: None,
            released: 0,
            checked: 0,
            check_from: ring.size() / 4,
            stats: LaneStats::default(),
        }
    }

    /// Prefetches the lines of the next record together; otherwise the copy of the payload waits for the length in
    /// the header first.
    #[inline]
    pub(super) fn fetch<P: PeerMemory>(&self, peer: &P) {
        peer.will_read(self.ring.offset(self.head));
        peer.will_read(self.ring.offset(self.head + LINE));
    }

    /// Loads the peer's `tail` and checks it against this end's own positions.
    #[inline]
    pub(super) fn has_more<P: PeerMemory>(&mut self, peer: &P) -> Result<bool, PeerFault> {
        // Acquire: the records' bytes happen before the tail that covers them.
        let tail = self.invalid_tail.unwrap_or_else(|| peer.load(Word::Tail, Ordering::Acquire));
        match tail == self.peer_tail {
            true => Ok(false),
            false if self.advance(tail) => Ok(true),
            false => Err(self.tail_fault(tail)),
        }
    }

    /// Records a `tail` that a correct peer can have stored. Returns false for any other.
    #[inline]
    fn advance(&mut self, tail: u64) -> bool {
        let ahead = tail.wrapping_sub(self.head);
        let is_valid = tail > self.peer_tail && ahead <= self.reach && tail % ALIGN as u64 == 0;
        if is_valid {
            self.peer_tail = tail;
            self.stats.high_water = self.stats.high_water.max(ahead);
        }
        is_valid
    }

    /// Returns what is invalid about this `tail`.
    #[cold]
    fn tail_fault(&self, tail: u64) -> PeerFault {
        if tail < self.peer_tail {
            PeerFault::TailWentBack { seen: self.peer_tail, now: tail }
        } else if tail - self.head > self.reach {
            PeerFault::TailTooFar { head: self.head, tail, size: self.reach }
        } else {
            PeerFault::Misaligned { at: tail }
        }
    }

    /// Copies the header at `head`.
    #[inline]
    fn read_header<P: PeerMemory>(&self, peer: &P) -> Header {
        Header::from_words(peer.read_header(self.ring.offset(self.head)))
    }

    /// Prefetches the lines of the records after the next together, instead of one miss per line.
    fn fetch_more<P: PeerMemory>(&self, peer: &P) {
        let mut at = self.head + 2 * LINE;
        let end = self.peer_tail.min(self.head + FETCHED + LINE);
        while at < end {
            peer.will_read(self.ring.offset(at));
            at += LINE;
        }
    }

    /// Copies the header at `head` once, and checks the copy.
    #[inline]
    fn header<P: PeerMemory>(&self, peer: &P) -> Result<Record, PeerFault> {
        let at = self.head;
        let header = match self.left {
            Some((left, header)) if left == at => header,
            _ => self.read_header(peer),
        };
        let to_end = self.ring.room_to_end(at);
        let room = to_end.min(self.peer_tail - at);
        let len = header.len.get();
        if record_len(len) > room {
            return Err(PeerFault::RecordTooLong { at, len, room });
        }
        let Some(kind) = Kind::parse(header.kind) else {
            return Err(PeerFault::UnknownKind { at, kind: header.kind });
        };
        let flags = header.flags;
        if flags & !flags_of(kind) != 0 {
            return Err(PeerFault::UnknownFlags { at, flags });
        }
        let (more, batch) = (flags & MORE != 0, flags & BATCH != 0);
        let (status, id) = (header.status.get(), header.id.get());
        let record = Record { kind, status, id, len, more, batch, at };
        let out_of_place = match kind {
            Kind::Request | Kind::Response => {
                let limit = self.terms.message.bytes;
                if u64::from(len) > limit {
                    return Err(PeerFault::MessageTooLong { at, len: len.into(), limit });
                }
                // Otherwise a message might never end.
                more && len == 0
            }
            // A record that does not fit before the lane's end is shorter than half of it. So pads are never adjacent,
            // and the record between two of them counts.
            Kind::Pad => record_len(len) != to_end || 2 * to_end >= self.ring.size(),
            Kind::Switch | Kind::Attach | Kind::Cancel | Kind::Close | Kind::Trim => len != 0,
        };
        if out_of_place {
            return Err(PeerFault::Unexpected { at, kind: header.kind });
        }
        Ok(record)
    }

    /// Returns the space of consumed records to the peer.
    #[inline]
    pub(super) fn release<O: OwnMemory>(&mut self, own: &O) {
        if self.head != self.released {
            // Release: the copies of consumed records happen before the peer overwrites them.
            own.store(Word::Head, self.head, Ordering::Release);
            self.released = self.head;
        }
    }

    /// Checks, after a fence, whether the peer wants a ring for the space returned.
    #[inline]
    pub(super) fn peer_wants_space<P: PeerMemory>(&mut self, check: bool, peer: &P) -> bool {
        if !check || self.released == self.checked {
            return false;
        }
        let event_index = peer.load(Word::WantSpace, Ordering::Relaxed);
        let crosses = self.checked <= event_index && event_index < self.released;
        self.checked = self.released;
        self.check_from = self.checked + self.ring.size() / 4;
        crosses
    }
}

/// Returns the flags that a record of this kind may have.
#[inline]
const fn flags_of(kind: Kind) -> u8 {
    match kind {
        Kind::Request => MORE | BATCH,
        Kind::Response => MORE,
        Kind::Attach | Kind::Pad | Kind::Switch | Kind::Cancel | Kind::Close | Kind::Trim => 0,
    }
}

/// A lane of fixed size has no other epochs.
fn reach(terms: &LaneTerms, ring: &Ring) -> u64 {
    let others = if terms.least == terms.most { 0 } else { terms.most.size() };
    ring.size() + others * MAX_OUTSTANDING as u64
}
