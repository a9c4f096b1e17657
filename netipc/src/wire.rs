//! Headers, the handshake, chunks and batches: what stands in front of a payload.

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
/// The length of a HELLO_ACK with its header, in bytes.
pub const ACK_LEN: usize = HEADER + size_of::<HelloAck>();

/// The longest payloads that either end of ours agrees to, in bytes.
pub(crate) const MAX_REQUEST: u32 = 1 << 20;
pub(crate) const MAX_RESPONSE: u32 = 64 << 20;
/// The payload of an answer that a server has every client have room for, in bytes.
const LEAST_RESPONSE: u32 = 64 << 10;
const VERSION: u16 = 1;
const LAYOUT: u16 = 1;
pub(crate) const REQUEST: u16 = 1;
pub(crate) const RESPONSE: u16 = 2;
const CONTROL: u16 = 3;
const BATCH: u16 = 1;
const HELLO: u16 = 1;
const HELLO_ACK: u16 = 2;
/// `SOCK_SEQPACKET`, the profile that every end has.
const BASELINE: u32 = 1;

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
    version: U16,
    header_len: U16,
    pub(crate) kind: U16,
    flags: U16,
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

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Hello {
    layout: U16,
    flags: U16,
    supported: U32,
    preferred: U32,
    max_request: U32,
    max_request_items: U32,
    max_response: U32,
    max_response_items: U32,
    zero: U32,
    token: U64,
    packet: U32,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct HelloAck {
    layout: U16,
    flags: U16,
    supported: U32,
    common: U32,
    selected: U32,
    max_request: U32,
    max_request_items: U32,
    max_response: U32,
    max_response_items: U32,
    packet: U32,
    zero: U32,
    session: U64,
}

/// Where an item of a batch, or of a table inside a payload, lies.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Entry {
    pub(crate) offset: U32,
    pub(crate) len: U32,
}

const _: () = assert!(size_of::<Header>() == HEADER && size_of::<Chunk>() == HEADER);
const _: () = assert!(size_of::<Hello>() == 44 && size_of::<HelloAck>() == 48);

/// What a server grants, and asks for.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The token that a client must have; `None` admits any.
    pub token: Option<Token>,
    /// The longest payload of a request, in bytes.
    pub max_request: u32,
    /// The payload of an answer that must fit, and the longest at all, in bytes: a client's own wish lies between.
    pub max_response: (u32, u32),
    /// The number of the session.
    pub session: u64,
}

impl Terms {
    /// Returns the terms of a service whose messages take at most `limit` bytes, and whose newest snapshot takes `newest`. A
    /// snapshot may become twice as long before the client has to connect again.
    pub fn new(token: Option<Token>, limit: u64, newest: usize, session: u64) -> Self {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let most = limit.min(MAX_RESPONSE);
        let least = u32::try_from((newest * 2).next_power_of_two()).unwrap_or(u32::MAX);
        let max_response = (least.max(LEAST_RESPONSE).min(most), most);
        Self { token, max_request: limit.min(MAX_REQUEST), max_response, session }
    }
}

pub use crate::token::Token;

/// What both ends agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The longest payload of a request, in bytes.
    pub max_request: u32,
    /// The longest payload of an answer, in bytes.
    pub max_response: u32,
    /// The most items of a batch.
    pub max_items: u32,
    /// The largest datagram, in bytes.
    pub packet: u32,
    /// The number of the session, by the server.
    pub session: u64,
}

/// Returns whether the first datagram of a connection is one of netipc.
pub fn is_netipc(first: &[u8]) -> bool {
    first.get(..4) == Some(&MAGIC.to_ne_bytes())
}

/// Answers a HELLO: what was agreed, or why nothing was, and the datagram to send.
///
/// # Errors
/// The status with which the client is refused, and the datagram that tells it; the connection is to be closed.
pub fn answer_hello(
    datagram: &[u8],
    terms: &Terms,
) -> Result<(Agreed, [u8; ACK_LEN]), (Status, [u8; ACK_LEN])> {
    let id = id_of(datagram);
    match agree(datagram, terms) {
        Ok(agreed) => Ok((agreed, ack(id, Status::Ok, Some(&agreed)))),
        Err(status) => Err((status, ack(id, status, None))),
    }
}

/// Returns the datagram that refuses a client, whatever its HELLO says.
pub fn refuse_hello(datagram: &[u8], status: Status) -> [u8; ACK_LEN] {
    ack(id_of(datagram), status, None)
}

fn id_of(datagram: &[u8]) -> u64 {
    Header::read_from_prefix(datagram).map_or(0, |(header, _)| header.id.get())
}

fn agree(datagram: &[u8], terms: &Terms) -> Result<Agreed, Status> {
    let bad = Status::BadEnvelope;
    let (header, payload) = Header::read_from_prefix(datagram).map_err(|_| bad)?;
    if header.version.get() != VERSION {
        return Err(Status::Incompatible);
    }
    let is_hello = header.kind.get() == CONTROL && header.code.get() == HELLO;
    let is_sound = header.check().is_ok() && header.items.get() <= 1 && header.flags.get() == 0;
    if !is_hello || !is_sound || payload.len() != header.payload_len.get() as usize {
        return Err(bad);
    }
    let hello = Hello::read_from_bytes(payload).map_err(|_| bad)?;
    if hello.layout.get() != LAYOUT {
        return Err(Status::Incompatible);
    }
    if hello.flags.get() != 0 || hello.zero.get() != 0 {
        return Err(bad);
    }
    // One comparison of one word: its time tells nothing.
    if terms.token.is_some_and(|token| token.number() != hello.token.get()) {
        return Err(Status::AuthFailed);
    }
    if hello.supported.get() & BASELINE == 0 {
        return Err(Status::Unsupported);
    }
    if hello.max_request.get() > terms.max_request {
        return Err(Status::LimitExceeded);
    }
    let packet = hello.packet.get().min(MAX_PACKET);
    if packet as usize <= HEADER {
        return Err(Status::Incompatible);
    }
    let (least, most) = terms.max_response;
    Ok(Agreed {
        max_request: hello.max_request.get(),
        max_response: hello.max_response.get().max(least).min(most),
        max_items: hello.max_request_items.get(),
        packet,
        session: terms.session,
    })
}

fn ack(id: u64, status: Status, agreed: Option<&Agreed>) -> [u8; ACK_LEN] {
    let granted = agreed.map(|agreed| HelloAck {
        layout: LAYOUT.into(),
        supported: BASELINE.into(),
        common: BASELINE.into(),
        selected: BASELINE.into(),
        max_request: agreed.max_request.into(),
        max_request_items: agreed.max_items.into(),
        max_response: agreed.max_response.into(),
        max_response_items: agreed.max_items.into(),
        packet: agreed.packet.into(),
        session: agreed.session.into(),
        ..HelloAck::default()
    });
    let granted = granted.unwrap_or(HelloAck { layout: LAYOUT.into(), ..HelloAck::default() });
    let header = Header {
        status: (status as u16).into(),
        ..Header::new(CONTROL, HELLO_ACK, size_of::<HelloAck>(), 1, id)
    };
    let mut bytes = [0; ACK_LEN];
    for (to, from) in bytes.iter_mut().zip(header.as_bytes().iter().chain(granted.as_bytes())) {
        *to = *from;
    }
    bytes
}

/// Returns a HELLO that probes whether an endpoint speaks netipc: any answer says so.
pub fn hello_without_token() -> Vec<u8> {
    Proposal { token: Token::new(0), max_request: 0, max_response: 0 }.encode()
}

/// What a client proposes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proposal {
    pub(crate) token: Token,
    pub(crate) max_request: u32,
    pub(crate) max_response: u32,
}

impl Proposal {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let hello = Hello {
            layout: LAYOUT.into(),
            flags: 0.into(),
            supported: BASELINE.into(),
            preferred: BASELINE.into(),
            max_request: self.max_request.into(),
            max_request_items: 1.into(),
            max_response: self.max_response.into(),
            max_response_items: 1.into(),
            zero: 0.into(),
            token: self.token.number().into(),
            packet: MAX_PACKET.into(),
        };
        let header = Header::new(CONTROL, HELLO, size_of::<Hello>(), 1, 0);
        [header.as_bytes(), hello.as_bytes()].concat()
    }

    /// Reads the server's decision.
    #[cfg(feature = "client")]
    pub(crate) fn read_ack(datagram: &[u8]) -> Result<Result<Agreed, Status>, Violation> {
        let (header, payload) = Header::parse(datagram)?;
        header.expect("kind", header.kind, CONTROL)?;
        header.expect("code", header.code, HELLO_ACK)?;
        let status = header.status()?;
        if status != Status::Ok {
            return Ok(Err(status));
        }
        let len = Violation::Length { len: payload.len(), expected: size_of::<HelloAck>() };
        let ack = HelloAck::read_from_bytes(payload).map_err(|_| len)?;
        header.expect("layout", ack.layout, LAYOUT)?;
        let agreed = Agreed {
            max_request: ack.max_request.get(),
            max_response: ack.max_response.get(),
            max_items: ack.max_request_items.get(),
            packet: ack.packet.get(),
            session: ack.session.get(),
        };
        let (selected, packet) = (ack.selected.get(), agreed.packet);
        if selected != BASELINE {
            return Err(Violation::Field { field: "selected profile", value: selected.into() });
        }
        if packet as usize <= HEADER || packet > MAX_PACKET {
            return Err(Violation::Field { field: "packet size", value: packet.into() });
        }
        Ok(Ok(agreed))
    }
}

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

    fn check(&self) -> Result<(), Violation> {
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
