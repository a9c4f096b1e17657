//! The handshake: HELLO, in which a client proposes, and HELLO_ACK, in which the server decides.

use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Status;
#[cfg(feature = "client")]
use crate::Violation;
use crate::token::Token;
use crate::wire::{CONTROL, HEADER, Header, MAGIC, MAX_PACKET, VERSION};

/// The length of a HELLO_ACK with its header, in bytes.
pub const ACK_LEN: usize = HEADER + size_of::<HelloAck>();

/// The longest payloads that either end of ours agrees to, in bytes.
pub(crate) const MAX_REQUEST: u32 = 1 << 20;
pub(crate) const MAX_RESPONSE: u32 = 64 << 20;
/// The payload of an answer that a server has every client have room for, in bytes.
const LEAST_RESPONSE: u32 = 64 << 10;
const LAYOUT: u16 = 1;
const HELLO: u16 = 1;
const HELLO_ACK: u16 = 2;
/// `SOCK_SEQPACKET`, the profile that every end has.
const BASELINE: u32 = 1;

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
    let mut header = Header::new(CONTROL, HELLO_ACK, size_of::<HelloAck>(), 1, id);
    header.status = (status as u16).into();
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
