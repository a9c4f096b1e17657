//! A second implementation of the rules of `docs/wire.md` about record headers: what the code must find.

use bellwire_core::PeerFault;
use bellwire_core::wire::Kind;

/// A valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Valid {
    pub(crate) kind: Kind,
    pub(crate) more: bool,
    pub(crate) batch: bool,
    pub(crate) status: u16,
    pub(crate) id: u64,
    pub(crate) len: u32,
}

/// The position of a header, and the limits that apply there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) at: u64,
    /// The bytes from there to the published tail.
    pub(crate) published: u64,
    /// The bytes from there to the end of the lane.
    pub(crate) to_end: u64,
    /// The lane's size.
    pub(crate) size: u64,
    /// The maximum length of a message.
    pub(crate) limit: u64,
}

impl Valid {
    /// The size of the record in its lane, in bytes.
    pub(crate) fn size(&self) -> u64 {
        16 + u64::from(self.len).next_multiple_of(16)
    }
}

/// Rule 3 of a reader.
pub(crate) fn header(bytes: &[u8; 16], place: Place) -> Result<Valid, PeerFault> {
    let Place { at, published, to_end, size, limit } = place;
    let len = u32::from_le_bytes(*bytes[0..].first_chunk().unwrap());
    let (code, flags) = (bytes[4], bytes[5]);
    let status = u16::from_le_bytes(*bytes[6..].first_chunk().unwrap());
    let id = u64::from_le_bytes(*bytes[8..].first_chunk().unwrap());
    let room = published.min(to_end);
    if 16 + u64::from(len).next_multiple_of(16) > room {
        return Err(PeerFault::RecordTooLong { at, len, room });
    }
    let Some(kind) = Kind::parse(code) else {
        return Err(PeerFault::UnknownKind { at, kind: code });
    };
    let is_message = matches!(kind, Kind::Request | Kind::Response);
    let (more, batch) = (flags & 2 != 0, flags & 4 != 0);
    let misplaced = (more && !is_message) || (batch && kind != Kind::Request);
    if flags > 7 || flags & 1 != 0 || misplaced {
        return Err(PeerFault::UnknownFlags { at, flags });
    }
    let valid = Valid { kind, more, batch, status, id, len };
    if is_message && u64::from(len) > limit {
        return Err(PeerFault::MessageTooLong { at, len: len.into(), limit });
    }
    let fits = match kind {
        Kind::Request | Kind::Response => len > 0 || !valid.more,
        Kind::Pad => valid.size() == to_end && to_end < size / 2,
        _ => len == 0,
    };
    if fits { Ok(valid) } else { Err(PeerFault::Unexpected { at, kind: code }) }
}

/// Rule 1 of a reader, for a tail that has changed.
pub(crate) fn tail(now: u64, seen: u64, head: u64, reach: u64) -> Result<u64, PeerFault> {
    if now < seen {
        return Err(PeerFault::TailWentBack { seen, now });
    }
    if now - head > reach {
        return Err(PeerFault::TailTooFar { head, tail: now, size: reach });
    }
    if now.is_multiple_of(16) { Ok(now) } else { Err(PeerFault::Misaligned { at: now }) }
}

/// The rule of a sender about the peer's head.
pub(crate) fn head(now: u64, seen: u64, published: u64) -> Result<u64, PeerFault> {
    if now < seen {
        return Err(PeerFault::HeadWentBack { seen, now });
    }
    if now > published {
        return Err(PeerFault::HeadTooFar { head: now, published });
    }
    if now.is_multiple_of(16) { Ok(now) } else { Err(PeerFault::Misaligned { at: now }) }
}
