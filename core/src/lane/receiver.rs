use super::LINE;
use crate::sync::Ordering;
use crate::wire::{ALIGN, HEADER, Header, Kind, record_len};
use crate::{Geometry, OwnMemory, PeerFault, PeerMemory, Word};

/// A record that was published, its header copied out and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it is; never [`Kind::Pad`].
    pub kind: Kind,
    /// The status field, not yet interpreted.
    pub status: u16,
    /// What it answers, or its own number.
    pub id: u64,
    /// The payload's length in bytes: it lies within what was published.
    pub len: u32,
    /// Where it starts.
    pub(super) at: u64,
}

impl Record {
    /// The record's position in the lane's stream of bytes, for messages about it.
    pub fn at(&self) -> u64 {
        self.at
    }
}

/// The reading end of a lane.
#[derive(Debug)]
pub(super) struct Receiver {
    geometry: Geometry,
    /// Bytes taken.
    head: u64,
    /// The peer's `tail`, as last loaded and checked: at most `geometry.size()` past `head`.
    peer_tail: u64,
    /// The `head` that the peer can see.
    released: u64,
    /// The `head` at which the peer's wish for space was looked at last.
    looked: u64,
}

impl Receiver {
    pub(super) fn new(geometry: Geometry) -> Self {
        Self { geometry, head: 0, peer_tail: 0, released: 0, looked: 0 }
    }

    pub(super) fn seen(&self) -> u64 {
        self.peer_tail
    }

    #[inline]
    pub(super) fn peek<P: PeerMemory>(&mut self, peer: &P) -> Result<Option<Record>, PeerFault> {
        loop {
            if self.head == self.peer_tail && !self.has_more(peer)? {
                return Ok(None);
            }
            let record = self.header(peer)?;
            if record.kind != Kind::Pad {
                return Ok(Some(record));
            }
            self.take(&record);
        }
    }

    /// Has the processor fetch the next record's lines together: the copy of the payload would wait for the
    /// length in the header first.
    #[inline]
    pub(super) fn fetch<P: PeerMemory>(&self, peer: &P) {
        peer.will_read(self.geometry.offset(self.head));
        peer.will_read(self.geometry.offset(self.head + LINE));
    }

    /// Loads the peer's `tail` and checks it against this end's own counts.
    #[inline]
    pub(super) fn has_more<P: PeerMemory>(&mut self, peer: &P) -> Result<bool, PeerFault> {
        // Acquire: the records' bytes happen before the tail that covers them.
        let tail = peer.load(Word::Tail, Ordering::Acquire);
        if tail == self.peer_tail {
            return Ok(false);
        }
        if tail < self.peer_tail {
            return Err(PeerFault::TailWentBack { seen: self.peer_tail, now: tail });
        }
        let size = self.geometry.size();
        if tail - self.head > size {
            return Err(PeerFault::TailTooFar { head: self.head, tail, size });
        }
        if !tail.is_multiple_of(ALIGN as u64) {
            return Err(PeerFault::Misaligned { at: tail });
        }
        self.peer_tail = tail;
        Ok(true)
    }

    /// Copies the header at `head` out, once, and checks the copy.
    #[inline]
    fn header<P: PeerMemory>(&self, peer: &P) -> Result<Record, PeerFault> {
        let at = self.head;
        let mut bytes = [0; HEADER];
        peer.read(self.geometry.offset(at), &mut bytes);
        let header: Header = zerocopy::transmute!(bytes);
        let to_end = self.geometry.room_to_end(at);
        let room = to_end.min(self.peer_tail - at);
        let len = header.len.get();
        if record_len(len) > room {
            return Err(PeerFault::RecordTooLong { at, len, room });
        }
        let Some(kind) = Kind::parse(header.kind) else {
            return Err(PeerFault::UnknownKind { at, kind: header.kind });
        };
        if header.flags != 0 {
            return Err(PeerFault::UnknownFlags { at, flags: header.flags });
        }
        if kind == Kind::Pad && record_len(len) != to_end {
            return Err(PeerFault::Unexpected { at, kind: header.kind });
        }
        Ok(Record { kind, status: header.status.get(), id: header.id.get(), len, at })
    }

    #[inline]
    pub(super) fn copy<P: PeerMemory>(&self, peer: &P, record: &Record, into: &mut [u8]) {
        let len = into.len().min(record.len as usize);
        if let Some(into) = into.get_mut(..len) {
            peer.read(self.geometry.offset(record.at) + HEADER, into);
        }
    }

    #[inline]
    pub(super) fn take(&mut self, record: &Record) {
        self.head = record.at + record_len(record.len);
    }

    /// Gives the room of what was taken back to the peer.
    #[inline]
    pub(super) fn release<O: OwnMemory>(&mut self, own: &O) {
        if self.head != self.released {
            // Release: the copies of what was taken happen before the peer writes there again.
            own.store(Word::Head, self.head, Ordering::Release);
            self.released = self.head;
        }
    }

    /// Whether a quarter of the lane was taken since the peer's wish was looked at. Pads count, which are
    /// taken in passing and given back by the next release.
    #[inline]
    pub(super) fn owes_a_look(&self) -> bool {
        self.head - self.looked >= self.geometry.size() / 4
    }

    /// Looks, after a fence, whether the peer wants to be rung for the room given back.
    #[inline]
    pub(super) fn looked<P: PeerMemory>(&mut self, look: bool, peer: &P) -> bool {
        if !look || self.released == self.looked {
            return false;
        }
        let wish = peer.load(Word::WantSpace, Ordering::Relaxed);
        let crosses = self.looked <= wish && wish < self.released;
        self.looked = self.released;
        crosses
    }
}
