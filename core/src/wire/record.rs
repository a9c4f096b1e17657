use core::mem::size_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned, try_transmute,
};

/// Records start at multiples of this many bytes. With 16, a header always fits before the lane's end.
pub const ALIGN: usize = 16;
/// A record header's size in bytes.
pub const HEADER: usize = 16;
/// [`HEADER`] with the type of a record's length.
pub(crate) const HEADER_U32: u32 = 16;
/// Room reserved in every lane for its last record, a Close or a Switch record: more than either needs.
pub const SWITCH_RESERVE: u64 = 32;

/// The flag of a request or response that continues in the next record of the same kind and id.
pub const MORE: u8 = 0x02;
/// The flag of a request that is a [batch](crate::batch), in each of its parts. Its answer is one too, if it is Ok.
pub const BATCH: u8 = 0x04;

/// The id of a request that is one-way, and gets no answer. It may be sent in parts, as a batch, or attached, like any other.
pub const ONE_WAY: u64 = 0;

/// A record's header in a lane.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    /// The payload's length in bytes, without header and padding.
    pub len: U32,
    /// A [`Kind`].
    pub kind: u8,
    /// [`MORE`] and [`BATCH`], or 0.
    pub flags: u8,
    /// A [`Status`]; 0 in requests.
    pub status: U16,
    /// The id of the request or, in a response, of the request that it answers. Request ids increase from 1; one-way
    /// requests have the id [`ONE_WAY`], 0.
    pub id: U64,
}

const _: () =
    assert!(size_of::<Header>() == HEADER && HEADER == ALIGN && HEADER_U32 as usize == HEADER);

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A request; the payload is the service's.
    Request = 1,
    /// A response; the payload is the service's, or a reason in UTF-8 when the status is not [`Status::Ok`].
    Response = 2,
    /// Padding: the rest of the lane up to its end.
    Pad = 3,
    /// The lane continues in another epoch: `id` holds its number (low half) and its size in bytes (high half). No
    /// payload.
    Switch = 4,
    /// A request from a client, or a response from a server, whose payload is a memfd on the control socket.
    Attach = 5,
    /// The requester no longer wants the answer to `id`.
    Cancel = 6,
    /// The owner of the lane sends nothing more.
    Close = 7,
    /// From a client: large messages are over, free what memory can be freed. A server answers with the same kind
    /// when it has done so.
    Trim = 8,
}

/// How a request ended.
///
/// ```
/// use bellwire_core::wire::Status;
///
/// assert_eq!(Status::parse(2), Some(Status::Malformed));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromBytes)]
#[repr(u16)]
pub enum Status {
    /// The payload is the answer.
    Ok = 0,
    /// The handler failed; the payload is its reason. It ran.
    Failed = 1,
    /// The request could not be decoded; the handler did not run.
    Malformed = 2,
    /// The server is at capacity; the handler did not run.
    Busy = 3,
    /// The server is stopping; the handler did not run.
    Stopping = 4,
    /// The requester cancelled before the handler ran.
    Cancelled = 5,
    /// The answer is larger than a limit; the handler ran.
    TooLarge = 6,
    /// The handler panicked, so it ran in part.
    Panicked = 7,
    /// There is no answer yet: no snapshot was published.
    NotYet = 8,
    /// The handler ran, but the server lacked memory or descriptors to send its answer.
    Short = 9,
}

impl Kind {
    /// Parses a peer's kind. Every record that is taken has one: a derived check takes four instructions more.
    pub const fn parse(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Request,
            2 => Self::Response,
            3 => Self::Pad,
            4 => Self::Switch,
            5 => Self::Attach,
            6 => Self::Cancel,
            7 => Self::Close,
            8 => Self::Trim,
            _ => return None,
        })
    }
}

impl Status {
    /// Parses a peer's status.
    pub fn parse(code: u16) -> Option<Self> {
        try_transmute!(code).ok()
    }

    /// Returns whether a handler ran, or may have run, when a response has this status.
    pub const fn ran(self) -> bool {
        matches!(self, Self::Ok | Self::Failed | Self::TooLarge | Self::Panicked | Self::Short)
    }
}

impl Header {
    /// Assembles the header's bytes in registers. Copying them from the struct would wait for its fields to leave the
    /// store buffer one by one.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER] {
        let kind = u64::from(self.kind) << 32 | u64::from(self.flags) << 40;
        let low = u64::from(self.len.get()) | kind | u64::from(self.status.get()) << 48;
        (u128::from(low) | u128::from(self.id.get()) << 64).to_le_bytes()
    }

    /// Takes a header apart that was read as two little-endian words.
    #[inline]
    pub fn from_words([low, id]: [u64; 2]) -> Self {
        let [a, b, c, d, kind, flags, e, f] = low.to_le_bytes();
        let (len, status) = (U32::from_bytes([a, b, c, d]), U16::from_bytes([e, f]));
        Self { len, kind, flags, status, id: id.into() }
    }

    /// Returns the header of one part of a message: the last one unless `more`.
    #[must_use]
    pub fn part(mut self, len: u32, more: bool) -> Self {
        self.len = len.into();
        self.flags = (self.flags & !MORE) | if more { MORE } else { 0 };
        self
    }

    /// Returns the header of a request that is a batch.
    #[must_use]
    pub fn batch(mut self) -> Self {
        self.flags |= BATCH;
        self
    }

    /// Creates a header as its sender writes it.
    pub fn new(kind: Kind, status: Status, id: u64, len: u32) -> Self {
        Self {
            len: len.into(),
            kind: kind as u8,
            flags: 0,
            status: (status as u16).into(),
            id: id.into(),
        }
    }
}

/// Returns the bytes that a record with this payload takes in a lane: header, payload, padding.
pub const fn record_len(payload: u32) -> u64 {
    HEADER as u64 + (payload as u64).next_multiple_of(ALIGN as u64)
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    #[test]
    fn bytes_put_together_in_registers_are_those_of_the_struct() {
        let mut header =
            Header::new(Kind::Attach, Status::TooLarge, 0x0102_0304_0506_0708, 0x1122_3344);
        header.flags = 0x99;
        assert_eq!(header.to_bytes(), header.as_bytes());
    }
}
