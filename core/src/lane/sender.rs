use super::LINE;
use crate::sync::Ordering;
use crate::wire::{
    ALIGN, CloseReason, HEADER, HEADER_U32, Header, Kind, SWITCH_RESERVE, Status, record_len,
};
use crate::{Geometry, OwnMemory, PeerFault, PeerMemory, Word};

/// Why a record was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// The payload is larger than a record of this lane can be.
    #[error(
        "a payload of {len} bytes is above the {limit} bytes that a record of this lane can carry"
    )]
    TooLarge {
        /// The payload's length in bytes.
        len: usize,
        /// The largest payload in bytes.
        limit: usize,
    },
    /// The peer has not taken enough yet.
    #[error("the lane is full until the peer takes {missing} bytes more")]
    Full {
        /// Bytes that the peer has to take first.
        missing: u64,
    },
    /// The lane was closed by its own end.
    #[error("this end has closed its lane")]
    Closed,
    /// The peer's `head` is a lie.
    #[error(transparent)]
    Peer(#[from] PeerFault),
}

/// A move of `tail`: what was published before, and now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    from: u64,
    to: u64,
}

impl Moved {
    /// Whether the move passes the position that the peer wished to be rung at.
    pub(super) fn crosses(self, wish: u64) -> bool {
        self.from <= wish && wish < self.to
    }
}

/// The writing end of a lane.
#[derive(Debug)]
pub(super) struct Sender {
    geometry: Geometry,
    /// Bytes written, published or not. A multiple of `ALIGN`.
    written: u64,
    /// The `tail` that the peer can see.
    published: u64,
    /// The peer's `head`, as last loaded and checked: at most `published`.
    peer_head: u64,
    /// The position that `head` must pass for the record that did not fit; only after `Full`.
    wish: u64,
    closed: bool,
}

impl Sender {
    pub(super) fn new(geometry: Geometry) -> Self {
        Self { geometry, written: 0, published: 0, peer_head: 0, wish: 0, closed: false }
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(super) fn position(&self) -> u64 {
        self.written
    }

    pub(super) fn peer_head(&self) -> u64 {
        self.peer_head
    }

    #[inline]
    pub(super) fn push<O: OwnMemory, P: PeerMemory>(
        &mut self,
        own: &O,
        peer: &P,
        header: Header,
        payload: &[u8],
    ) -> Result<(), PushError> {
        let limit = self.geometry.max_payload();
        let too_large = PushError::TooLarge { len: payload.len(), limit };
        if payload.len() > limit {
            return Err(too_large);
        }
        if self.closed {
            return Err(PushError::Closed);
        }
        let record = record_len(u32::try_from(payload.len()).map_err(|_| too_large)?);
        let room_to_end = self.geometry.room_to_end(self.written);
        if record > room_to_end {
            self.pad(own, peer, room_to_end)?;
        }
        self.reserve(peer, record)?;
        let at = self.geometry.offset(self.written);
        own.write(at, &header.to_bytes());
        own.write(at + HEADER, payload);
        self.written += record;
        Ok(())
    }

    /// Fills the lane up to its end. It counts as written even when the record after it has to wait: so a
    /// waiter never waits for more than half a lane.
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
        own.write(self.geometry.offset(self.written), &header.to_bytes());
        self.written += room;
        Ok(())
    }

    /// The reserve holds the bye: 16 bytes always fit before the lane's end.
    pub(super) fn push_bye<O: OwnMemory>(&mut self, own: &O, reason: CloseReason) {
        if !self.closed {
            self.closed = true;
            let mut header = Header::new(Kind::Bye, Status::Ok, 0, 0);
            header.status = (reason as u16).into();
            own.write(self.geometry.offset(self.written), &header.to_bytes());
            self.written += ALIGN as u64;
        }
    }

    /// Checks that `len` bytes and the reserve fit behind what was written.
    #[inline]
    fn reserve<P: PeerMemory>(&mut self, peer: &P, len: u64) -> Result<(), PushError> {
        let end = self.written + len + SWITCH_RESERVE;
        if end - self.peer_head > self.geometry.size() {
            self.refresh_head(peer)?;
            if end - self.peer_head > self.geometry.size() {
                let needed = end - self.geometry.size();
                self.wish = needed - 1;
                return Err(PushError::Full { missing: needed - self.peer_head });
            }
        }
        Ok(())
    }

    /// Loads the peer's `head` and checks that it is true to this end's own counts.
    pub(super) fn refresh_head<P: PeerMemory>(&mut self, peer: &P) -> Result<(), PeerFault> {
        // Acquire: the peer's copies of what it took happen before this end writes there again.
        let now = peer.load(Word::Head, Ordering::Acquire);
        if now == self.peer_head {
            return Ok(());
        }
        if now < self.peer_head {
            return Err(PeerFault::HeadWentBack { seen: self.peer_head, now });
        }
        if now > self.published {
            return Err(PeerFault::HeadTooFar { head: now, published: self.published });
        }
        if !now.is_multiple_of(ALIGN as u64) {
            return Err(PeerFault::Misaligned { at: now });
        }
        self.peer_head = now;
        Ok(())
    }

    /// Makes what was written visible. The caller fences and looks at the peer's wish.
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

    /// Has the processor take the lines of the next record away from the peer's processor while nobody waits for
    /// them, instead of when the record is written.
    #[inline]
    pub(super) fn prepare<O: OwnMemory>(&self, own: &O) {
        own.will_write(self.geometry.offset(self.written));
        own.will_write(self.geometry.offset(self.written + LINE));
    }

    /// The position that the peer's `head` must pass for the record that did not fit.
    pub(super) fn wish(&self) -> u64 {
        self.wish
    }

    /// Whether the record that did not fit would fit now.
    pub(super) fn has_room<P: PeerMemory>(&mut self, peer: &P) -> Result<bool, PeerFault> {
        self.refresh_head(peer)?;
        Ok(self.peer_head > self.wish)
    }
}
