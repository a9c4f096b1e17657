//! Headers, chunks and batches: what stands in front of a payload. The handshake is [`handshake`](crate::handshake).

use bellwire_core::wire::{Refuse, RefuseCode};
use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first four bytes of a message: `CPIN` on a little-endian machine.
pub const MAGIC: u32 = 0x4e49_5043;
/// The first four bytes of a chunk after the first.
pub const CHUNK_MAGIC: u32 = 0x4e43_484b;
/// The length of either header, in bytes.
pub const HEADER: usize = 32;
/// The largest datagram that this end sends or accepts, in bytes.
pub const MAX_PACKET: u32 = 65_536;

pub(crate) const VERSION: u16 = 1;
pub(crate) const REQUEST: u16 = 1;
pub(crate) const RESPONSE: u16 = 2;
pub(crate) const CONTROL: u16 = 3;
const BATCH: u16 = 1;

/// What a message says of the exchange itself, never of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
#[repr(u16)]
pub enum Status {
    /// The payload counts.
    #[error("ok")]
    Ok = 0,
    /// A header or a payload breaks the protocol.
    #[error("a malformed message")]
    BadEnvelope = 1,
    /// The token is not the provider's.
    #[error("the token differs: start both from the same NETDATA_INVOCATION_ID")]
    AuthFailed = 2,
    /// The versions or the limits do not fit.
    #[error("an incompatible version or packet size")]
    Incompatible = 3,
    /// The provider does not have this profile or method.
    #[error("a profile or method that the provider does not have")]
    Unsupported = 4,
    /// A payload is larger than was agreed.
    #[error("it exceeds the negotiated limits: connect again, with larger ones")]
    LimitExceeded = 5,
    /// The handler failed.
    #[error("the provider failed")]
    Internal = 6,
}

/// What a client of netipc is told that was refused for this reason.
impl From<RefuseCode> for Status {
    fn from(code: RefuseCode) -> Self {
        match code {
            RefuseCode::Credentials | RefuseCode::Token => Self::AuthFailed,
            RefuseCode::Protocol => Self::BadEnvelope,
            RefuseCode::Incompatible => Self::Unsupported,
            _ => Self::Internal,
        }
    }
}

/// Why a client was refused whose HELLO was answered with this status, for the provider's operator.
impl From<Status> for Refuse {
    fn from(status: Status) -> Self {
        let code = match status {
            Status::AuthFailed => RefuseCode::Token,
            Status::BadEnvelope => RefuseCode::Protocol,
            Status::LimitExceeded => RefuseCode::Quota,
            _ => RefuseCode::Incompatible,
        };
        match status {
            Status::Unsupported => Self::new(
                code,
                "it speaks netipc, or a profile of it, that this endpoint does not serve: have it speak Bellwire, or \
                 set ServerConfig::netipc (bellwire provide --netipc)",
            ),
            status => Self::new(code, &format!("its HELLO of netipc has {status}")),
        }
    }
}

/// Bytes that break the protocol: the peer is at fault, and the session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A datagram is too short for its header.
    #[error("a datagram of {len} bytes has no header")]
    NoHeader {
        /// Its length in bytes.
        len: usize,
    },
    /// A field of a header has a value that it cannot have.
    #[error("{field} is {value:#x}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A message has another length than it announced.
    #[error("a datagram brings {len} bytes of a payload where {expected} are missing")]
    Length {
        /// The payload's bytes in the datagram.
        len: usize,
        /// How many were to come, at most.
        expected: usize,
    },
    /// A payload is longer than was agreed.
    #[error("a payload of {len} bytes, where {limit} were agreed")]
    TooLong {
        /// Its length in bytes.
        len: u32,
        /// The limit.
        limit: u32,
    },
    /// A batch has more items than were agreed.
    #[error("a batch of {count} items, where {limit} were agreed")]
    TooMany {
        /// How many items.
        count: u32,
        /// The limit.
        limit: u32,
    },
    /// A request came before the answer to the one before it was sent. Only a caller's mistake leads here.
    #[error("a datagram while a request is answered")]
    Busy,
}

/// A payload that does not have the layout of its method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}, at byte {at} of a payload of {len}")]
pub struct Malformed {
    /// Where, in bytes from the payload's start.
    pub at: usize,
    /// The payload's length in bytes.
    pub len: usize,
    /// What is wrong.
    pub why: &'static str,
}

/// The header of a message.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    magic: U32,
    pub(crate) version: U16,
    header_len: U16,
    pub(crate) kind: U16,
    pub(crate) flags: U16,
    pub(crate) code: U16,
    pub(crate) status: U16,
    pub(crate) payload_len: U32,
    pub(crate) items: U32,
    pub(crate) id: U64,
}

/// The header of a chunk after the first.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Chunk {
    magic: U32,
    version: U16,
    flags: U16,
    id: U64,
    total: U32,
    index: U32,
    count: U32,
    len: U32,
}

/// Where an item of a batch, or of a table inside a payload, lies.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Entry {
    pub(crate) offset: U32,
    pub(crate) len: U32,
}

const _: () = assert!(size_of::<Header>() == HEADER && size_of::<Chunk>() == HEADER);

impl Header {
    pub(crate) fn new(kind: u16, code: u16, payload: usize, items: u32, id: u64) -> Self {
        Self {
            magic: MAGIC.into(),
            version: VERSION.into(),
            header_len: 32.into(),
            kind: kind.into(),
            flags: 0.into(),
            code: code.into(),
            status: 0.into(),
            payload_len: u32::try_from(payload).unwrap_or(u32::MAX).into(),
            items: items.into(),
            id: id.into(),
        }
    }

    pub(crate) fn with_status(self, status: Status) -> Self {
        Self { status: (status as u16).into(), ..self }
    }

    pub(crate) fn with_batch(self, is_batch: bool) -> Self {
        Self { flags: if is_batch { BATCH } else { 0 }.into(), ..self }
    }

    /// Returns whether a directory of items is in front of them.
    pub(crate) fn is_batch(&self) -> bool {
        self.flags.get() == BATCH && self.items.get() > 1
    }

    /// Splits the header off a datagram, and checks the fields that are the same in all messages.
    pub(crate) fn parse(datagram: &[u8]) -> Result<(Self, &[u8]), Violation> {
        let no_header = Violation::NoHeader { len: datagram.len() };
        let (header, payload) = Self::read_from_prefix(datagram).map_err(|_| no_header)?;
        header.check()?;
        Ok((header, payload))
    }

    pub(crate) fn check(&self) -> Result<(), Violation> {
        if self.magic.get() != MAGIC {
            return Err(Violation::Field { field: "magic", value: self.magic.get().into() });
        }
        self.expect("version", self.version, VERSION)?;
        self.expect("header length", self.header_len, 32)?;
        self.expect("flags", U16::new(self.flags.get() & !BATCH), 0)
    }

    pub(crate) fn expect(
        &self,
        field: &'static str,
        value: U16,
        only: u16,
    ) -> Result<(), Violation> {
        let value = value.get();
        if value == only { Ok(()) } else { Err(Violation::Field { field, value: value.into() }) }
    }

    #[cfg(feature = "client")]
    pub(crate) fn status(&self) -> Result<Status, Violation> {
        Ok(match self.status.get() {
            0 => Status::Ok,
            1 => Status::BadEnvelope,
            2 => Status::AuthFailed,
            3 => Status::Incompatible,
            4 => Status::Unsupported,
            5 => Status::LimitExceeded,
            6 => Status::Internal,
            value => return Err(Violation::Field { field: "status", value: value.into() }),
        })
    }
}

/// A message that arrives in one datagram or in several.
#[derive(Debug)]
pub(crate) struct Arriving {
    pub(crate) header: Header,
    payload: Vec<u8>,
    total: usize,
    /// The number of the next chunk, and how many there are.
    next: u32,
    count: Option<u32>,
}

impl Arriving {
    /// Begins with the first datagram, whose header was checked. Memory is only taken for what has come.
    pub(crate) fn begin(header: Header, payload: &[u8], packet: u32) -> Result<Self, Violation> {
        let total = header.payload_len.get() as usize;
        // As much of the payload as fits comes with the header.
        let expected = total.min(packet as usize - HEADER);
        if payload.len() != expected {
            return Err(Violation::Length { len: payload.len(), expected });
        }
        Ok(Self { header, payload: payload.to_vec(), total, next: 1, count: None })
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.payload.len() == self.total
    }

    pub(crate) fn held(&self) -> usize {
        self.payload.len()
    }

    pub(crate) fn into_payload(self) -> Vec<u8> {
        self.payload
    }

    /// Appends a chunk.
    pub(crate) fn chunk(&mut self, datagram: &[u8]) -> Result<(), Violation> {
        let no_header = Violation::NoHeader { len: datagram.len() };
        let (chunk, bytes) = Chunk::read_from_prefix(datagram).map_err(|_| no_header)?;
        let (total, count) = (self.total + HEADER, self.count.unwrap_or(chunk.count.get()));
        let fields = [
            ("magic of a chunk", u64::from(chunk.magic.get()), u64::from(CHUNK_MAGIC)),
            ("version of a chunk", chunk.version.get().into(), VERSION.into()),
            ("flags of a chunk", chunk.flags.get().into(), 0),
            ("id of a chunk", chunk.id.get(), self.header.id.get()),
            ("total of a chunk", chunk.total.get().into(), total as u64),
            ("index of a chunk", chunk.index.get().into(), self.next.into()),
            ("count of a chunk", chunk.count.get().into(), count.into()),
            ("length of a chunk", chunk.len.get().into(), bytes.len() as u64),
        ];
        if let Some((field, value, _)) = fields.into_iter().find(|(_, is, must)| is != must) {
            return Err(Violation::Field { field, value });
        }
        if self.next >= count {
            return Err(Violation::Field { field: "count of chunks", value: count.into() });
        }
        let missing = self.total - self.payload.len();
        let is_last = bytes.len() == missing;
        // Nothing else is as long as the last chunk's bytes, and no chunk is empty.
        if bytes.is_empty() || bytes.len() > missing || is_last != (self.next + 1 == count) {
            return Err(Violation::Length { len: bytes.len(), expected: missing });
        }
        self.payload.extend_from_slice(bytes);
        (self.next, self.count) = (self.next + 1, Some(count));
        Ok(())
    }
}

/// A message on its way out, datagram by datagram.
#[derive(Debug)]
pub(crate) struct Leaving<P> {
    header: Header,
    payload: P,
    packet: u32,
    /// Datagrams sent.
    sent: u32,
}

impl<P: AsRef<[u8]>> Leaving<P> {
    pub(crate) fn new(header: Header, payload: P, packet: u32) -> Self {
        Self { header, payload, packet, sent: 0 }
    }

    fn room(&self) -> usize {
        self.packet as usize - HEADER
    }

    fn count(&self) -> u32 {
        let datagrams = self.payload.as_ref().len().div_ceil(self.room()).max(1);
        u32::try_from(datagrams).unwrap_or(u32::MAX)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.sent >= self.count()
    }

    /// Writes the next datagram to `into`.
    pub(crate) fn datagram(&self, into: &mut Vec<u8>) {
        into.clear();
        let payload = self.payload.as_ref();
        let start = self.sent as usize * self.room();
        let end = payload.len().min(start + self.room());
        let bytes = payload.get(start..end).unwrap_or_default();
        if self.sent == 0 {
            into.extend_from_slice(self.header.as_bytes());
        } else {
            let total = u32::try_from(payload.len() + HEADER).unwrap_or(u32::MAX);
            let chunk = Chunk {
                magic: CHUNK_MAGIC.into(),
                version: VERSION.into(),
                flags: 0.into(),
                id: self.header.id,
                total: total.into(),
                index: self.sent.into(),
                count: self.count().into(),
                len: u32::try_from(bytes.len()).unwrap_or(u32::MAX).into(),
            };
            into.extend_from_slice(chunk.as_bytes());
        }
        into.extend_from_slice(bytes);
    }

    /// Notes that the datagram was sent.
    pub(crate) fn advance(&mut self) {
        self.sent += 1;
    }
}
