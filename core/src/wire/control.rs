use alloc::boxed::Box;
use core::mem::size_of;
use core::ops::RangeInclusive;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::lane::Epoch;
use crate::{Geometry, Limits, NameError, ServiceName};

/// The protocol versions that this build speaks.
pub const PROTOCOL: Versions = Versions { min: 1, max: 1 };
/// The largest control message, in bytes.
pub const MAX_CONTROL: usize = 512;
/// The first four bytes of every control message.
const MAGIC: [u8; 4] = *b"BWC1";
/// The longest sentence in a REFUSE, in bytes.
const MAX_REASON: usize = 256;

/// A range of protocol versions, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Versions {
    /// The oldest.
    pub min: u16,
    /// The newest.
    pub max: u16,
}

/// What wakes a parked peer. The waiter chooses; its page's `doorbell` word says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Doorbell {
    /// A futex on the word of the ringer's page that moved.
    Futex = 1,
    /// The waiter's eventfd, passed in the handshake.
    Eventfd = 2,
    /// One byte on the control socket.
    Socket = 3,
}

/// The kind of a control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum ControlKind {
    /// Client to server, first.
    Hello = 1,
    /// Server to client: come in, here is my memory.
    Welcome = 2,
    /// Server to client: stay out, and why.
    Refuse = 3,
    /// Client to server: here is my memory.
    Attach = 4,
    /// Server to client: your memory is as it should be; data may flow.
    Ready = 5,
    /// Either way, later: the memfd of an attach record.
    Attachment = 6,
    /// Either way, later: a doorbell of kind [`Doorbell::Socket`].
    Ring = 7,
    /// Either way, later: the memfd in which a lane goes on.
    Lane = 8,
}

/// Why a server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u16)]
pub enum RefuseCode {
    /// No protocol version in common; the message carries the server's.
    Incompatible = 1,
    /// The peer's user is not admitted.
    Credentials = 2,
    /// The token is another one.
    Token = 3,
    /// Another service, or another method of it, is served here.
    Service = 4,
    /// A quota is used up.
    Quota = 5,
    /// The server is stopping.
    Stopping = 6,
    /// The client broke the protocol, or its memory is not as it should be.
    Protocol = 7,
    /// The server lacks a resource, for instance descriptors.
    Resources = 8,
}

/// HELLO: the client's first message. No descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The versions that the client speaks.
    pub versions: Versions,
    /// Feature bits; none are defined in version 1.
    pub features: u64,
    /// The service asked for.
    pub service: ServiceName,
    /// The method number that the client will call.
    pub method: u32,
    /// First 16 bytes of SHA-256 of the invocation id; zeroes when there is none.
    pub token: [u8; 16],
    /// The size of the client's lane.
    pub lane: Geometry,
    /// The size below which the client's lane never goes.
    pub least_lane: Geometry,
    /// What the client puts up with.
    pub limits: Limits,
    /// The doorbell that the client wants to be rung by.
    pub doorbell: Doorbell,
    /// Whether the client may be handed an eventfd to ring the server with.
    pub rings_eventfd: bool,
}

/// WELCOME: the server admits the client. Descriptors: page, lane, board, and its eventfd when
/// [`Welcome::doorbell`] is [`Doorbell::Eventfd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version that both will speak.
    pub version: u16,
    /// Feature bits that both have.
    pub features: u64,
    /// The session's number, unique within the server's process.
    pub session: u64,
    /// The size of the server's lane.
    pub lane: Geometry,
    /// The size below which the server's lane never goes.
    pub least_lane: Geometry,
    /// What the server puts up with.
    pub limits: Limits,
    /// The doorbell that the server wants to be rung by.
    pub doorbell: Doorbell,
}

/// REFUSE: the server does not admit the client. No descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refuse {
    /// Why.
    pub code: RefuseCode,
    /// The versions that the server speaks.
    pub versions: Versions,
    reason: Box<str>,
}

/// ATTACH: the client's memory. Descriptors: page, lane, and its eventfd when it asked to be rung by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attach {
    /// The session's number, as in WELCOME.
    pub session: u64,
}

/// READY: the server has mapped the client's memory. No descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The session's number.
    pub session: u64,
}

/// ATTACHMENT: the memfd of the attach record that follows in the lane. One descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The request that it is, or answers.
    pub id: u64,
    /// The generation of a snapshot; 0 for any other message.
    pub generation: u64,
    /// Its length in bytes; the memfd is that, rounded up to whole pages.
    pub len: u64,
}

/// A control message, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// See [`Hello`].
    Hello(Hello),
    /// See [`Welcome`].
    Welcome(Welcome),
    /// See [`Refuse`].
    Refuse(Refuse),
    /// See [`Attach`].
    Attach(Attach),
    /// See [`Ready`].
    Ready(Ready),
    /// See [`Attachment`].
    Attachment(Attachment),
    /// One ring of the doorbell.
    Ring,
    /// LANE: the memfd of this epoch of the sender's lane; the switch record follows, at once or later. One
    /// descriptor.
    Lane(Epoch),
}

/// Why bytes are not a control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The message is shorter or longer than its kind is.
    #[error("the control message has {len} bytes where {expected} belong")]
    Length {
        /// The length found.
        len: usize,
        /// The length of that kind.
        expected: usize,
    },
    /// The first four bytes are not those of a control message.
    #[error("the control message does not start with \"BWC1\": this is not a Bellwire peer")]
    Magic,
    /// The kind is not known.
    #[error("the control message has the unknown kind {kind}")]
    Kind {
        /// The kind found.
        kind: u16,
    },
    /// A field holds a value that it cannot have.
    #[error("the control message has an invalid {field}")]
    Field {
        /// The field.
        field: &'static str,
    },
    /// The service's name is none.
    #[error("the control message names no valid service: {0}")]
    Name(NameError),
    /// A common version cannot be found in HELLO, so that the rest was not read.
    #[error("the peer speaks protocol versions {} to {}", .0.min, .0.max)]
    Version(Versions),
}

impl Versions {
    /// The newest version that both ranges hold.
    pub fn common(self, other: Self) -> Option<u16> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }

    /// The range.
    pub fn range(self) -> RangeInclusive<u16> {
        self.min..=self.max
    }
}

impl Doorbell {
    /// Parses a peer's doorbell word.
    pub const fn parse(code: u32) -> Option<Self> {
        Some(match code {
            1 => Self::Futex,
            2 => Self::Eventfd,
            3 => Self::Socket,
            _ => return None,
        })
    }
}

impl RefuseCode {
    const fn parse(code: u16) -> Option<Self> {
        Some(match code {
            1 => Self::Incompatible,
            2 => Self::Credentials,
            3 => Self::Token,
            4 => Self::Service,
            5 => Self::Quota,
            6 => Self::Stopping,
            7 => Self::Protocol,
            8 => Self::Resources,
            _ => return None,
        })
    }
}

impl Refuse {
    /// A refusal with a sentence for the operator, cut to 255 bytes.
    pub fn new(code: RefuseCode, reason: &str) -> Self {
        let mut cut = reason.len().min(MAX_REASON - 1);
        while !reason.is_char_boundary(cut) {
            cut -= 1;
        }
        let reason = reason.get(..cut).unwrap_or("").into();
        Self { code, versions: PROTOCOL, reason }
    }

    /// The sentence for the operator; what is not UTF-8 or not printable was refused when parsing.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

// The layouts. Each begins with the same eight bytes, so that any version can tell what it was sent.

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Prefix {
    magic: [u8; 4],
    kind: U16,
    fds: U16,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawLimits {
    least_lane: U32,
    max_lane: U32,
    max_message: U64,
    max_shared: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHello {
    prefix: Prefix,
    // The versions stand at the same place in every version of HELLO.
    min: U16,
    max: U16,
    method: U32,
    features: U64,
    service: [u8; 64],
    token: [u8; 16],
    lane: U32,
    doorbell: U32,
    rings_eventfd: U32,
    limits: RawLimits,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawWelcome {
    prefix: Prefix,
    version: U16,
    reserved: U16,
    lane: U32,
    features: U64,
    session: U64,
    doorbell: U32,
    reserved_too: U32,
    limits: RawLimits,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRefuse {
    prefix: Prefix,
    code: U16,
    min: U16,
    max: U16,
    reason_len: U16,
    reason: [u8; MAX_REASON],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSession {
    prefix: Prefix,
    session: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAttachment {
    prefix: Prefix,
    id: U64,
    generation: U64,
    len: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawLane {
    prefix: Prefix,
    number: U32,
    size: U32,
}

const _: () = {
    assert!(size_of::<RawHello>() == 140);
    assert!(size_of::<RawWelcome>() == 64);
    assert!(size_of::<RawRefuse>() == 272);
    assert!(size_of::<RawSession>() == 16);
    assert!(size_of::<RawAttachment>() == 32);
    assert!(size_of::<RawLane>() == 16);
};

impl Message {
    /// The message's kind.
    pub const fn kind(&self) -> ControlKind {
        match self {
            Self::Hello(_) => ControlKind::Hello,
            Self::Welcome(_) => ControlKind::Welcome,
            Self::Refuse(_) => ControlKind::Refuse,
            Self::Attach(_) => ControlKind::Attach,
            Self::Ready(_) => ControlKind::Ready,
            Self::Attachment(_) => ControlKind::Attachment,
            Self::Ring => ControlKind::Ring,
            Self::Lane(_) => ControlKind::Lane,
        }
    }

    /// Writes the message, to be sent with `fds` descriptors, and returns its length in bytes.
    pub fn encode(&self, fds: u16, into: &mut [u8; MAX_CONTROL]) -> usize {
        let prefix = Prefix { magic: MAGIC, kind: (self.kind() as u16).into(), fds: fds.into() };
        match self {
            Self::Hello(m) => put(
                into,
                &RawHello {
                    prefix,
                    min: m.versions.min.into(),
                    max: m.versions.max.into(),
                    method: m.method.into(),
                    features: m.features.into(),
                    service: m.service.to_field(),
                    token: m.token,
                    lane: lane_field(m.lane),
                    doorbell: (m.doorbell as u32).into(),
                    rings_eventfd: u32::from(m.rings_eventfd).into(),
                    limits: RawLimits::new(m.least_lane, &m.limits),
                },
            ),
            Self::Welcome(m) => put(
                into,
                &RawWelcome {
                    prefix,
                    version: m.version.into(),
                    reserved: 0.into(),
                    lane: lane_field(m.lane),
                    features: m.features.into(),
                    session: m.session.into(),
                    doorbell: (m.doorbell as u32).into(),
                    reserved_too: 0.into(),
                    limits: RawLimits::new(m.least_lane, &m.limits),
                },
            ),
            Self::Refuse(m) => put(
                into,
                &RawRefuse {
                    prefix,
                    code: (m.code as u16).into(),
                    min: m.versions.min.into(),
                    max: m.versions.max.into(),
                    reason_len: u16::try_from(m.reason.len()).unwrap_or(u16::MAX).into(),
                    reason: reason_field(&m.reason),
                },
            ),
            Self::Attach(Attach { session }) | Self::Ready(Ready { session }) => {
                put(into, &RawSession { prefix, session: (*session).into() })
            }
            Self::Attachment(m) => put(
                into,
                &RawAttachment {
                    prefix,
                    id: m.id.into(),
                    generation: m.generation.into(),
                    len: m.len.into(),
                },
            ),
            Self::Ring => put(into, &prefix),
            Self::Lane(epoch) => put(
                into,
                &RawLane { prefix, number: epoch.number.into(), size: lane_field(epoch.size) },
            ),
        }
    }

    /// Parses a message that came with `fds` descriptors.
    ///
    /// # Errors
    /// [`ControlError`] says what is wrong; nothing of a malformed message is used. A HELLO of a foreign
    /// version is [`ControlError::Version`], whatever follows the version fields.
    pub fn parse(bytes: &[u8], fds: usize) -> Result<Self, ControlError> {
        let short = ControlError::Length { len: bytes.len(), expected: size_of::<Prefix>() };
        let (prefix, _) = Prefix::read_from_prefix(bytes).map_err(|_| short)?;
        if prefix.magic != MAGIC {
            return Err(ControlError::Magic);
        }
        if usize::from(prefix.fds.get()) != fds {
            return Err(ControlError::Field { field: "descriptor count" });
        }
        match prefix.kind.get() {
            1 => Hello::parse(bytes).map(Self::Hello),
            2 => Welcome::parse(bytes).map(Self::Welcome),
            3 => Refuse::parse(bytes).map(Self::Refuse),
            4 => Ok(Self::Attach(Attach { session: take::<RawSession>(bytes)?.session.get() })),
            5 => Ok(Self::Ready(Ready { session: take::<RawSession>(bytes)?.session.get() })),
            6 => Attachment::parse(bytes).map(Self::Attachment),
            7 => take::<Prefix>(bytes).map(|_| Self::Ring),
            8 => parse_lane(bytes).map(Self::Lane),
            kind => Err(ControlError::Kind { kind }),
        }
    }
}

impl Hello {
    fn parse(bytes: &[u8]) -> Result<Self, ControlError> {
        let field = |at: usize| {
            let two = bytes.get(at..at + 2).and_then(|b| <[u8; 2]>::try_from(b).ok());
            two.map(u16::from_le_bytes)
                .ok_or(ControlError::Length { len: bytes.len(), expected: at + 2 })
        };
        let versions = Versions { min: field(8)?, max: field(10)? };
        if versions.min > versions.max {
            return Err(ControlError::Field { field: "version range" });
        }
        if PROTOCOL.common(versions).is_none() {
            return Err(ControlError::Version(versions));
        }
        let raw = take::<RawHello>(bytes)?;
        let lane = lane(raw.lane)?;
        let (least_lane, limits) = raw.limits.parse(lane)?;
        Ok(Self {
            versions,
            features: raw.features.get(),
            service: ServiceName::from_field(&raw.service).map_err(ControlError::Name)?,
            method: raw.method.get(),
            token: raw.token,
            lane,
            least_lane,
            limits,
            doorbell: doorbell(raw.doorbell)?,
            rings_eventfd: flag(raw.rings_eventfd, "eventfd flag")?,
        })
    }
}

impl Welcome {
    fn parse(bytes: &[u8]) -> Result<Self, ControlError> {
        let raw = take::<RawWelcome>(bytes)?;
        if raw.reserved.get() != 0 || raw.reserved_too.get() != 0 {
            return Err(ControlError::Field { field: "reserved field" });
        }
        let lane = lane(raw.lane)?;
        let (least_lane, limits) = raw.limits.parse(lane)?;
        Ok(Self {
            version: raw.version.get(),
            features: raw.features.get(),
            session: raw.session.get(),
            lane,
            least_lane,
            limits,
            doorbell: doorbell(raw.doorbell)?,
        })
    }
}

impl Refuse {
    fn parse(bytes: &[u8]) -> Result<Self, ControlError> {
        let raw = take::<RawRefuse>(bytes)?;
        let code =
            RefuseCode::parse(raw.code.get()).ok_or(ControlError::Field { field: "code" })?;
        let bad_reason = ControlError::Field { field: "reason" };
        let text = raw.reason.get(..usize::from(raw.reason_len.get())).ok_or(bad_reason)?;
        let text = core::str::from_utf8(text).map_err(|_| bad_reason)?;
        // It is shown on operators' terminals: no control characters.
        if text.chars().any(char::is_control) {
            return Err(bad_reason);
        }
        let versions = Versions { min: raw.min.get(), max: raw.max.get() };
        Ok(Self { code, versions, reason: text.into() })
    }
}

impl RawLimits {
    fn new(least_lane: Geometry, limits: &Limits) -> Self {
        Self {
            least_lane: lane_field(least_lane),
            max_lane: lane_field(limits.max_lane),
            max_message: limits.max_message.into(),
            max_shared: limits.max_shared_bytes_per_session.into(),
        }
    }

    /// The least size of a lane that opens with `size`, and the limits.
    fn parse(&self, size: Geometry) -> Result<(Geometry, Limits), ControlError> {
        let field = |field| ControlError::Field { field };
        let least = Geometry::new(self.least_lane.get().into());
        let least = least.ok().filter(|least| *least <= size).ok_or(field("least lane size"))?;
        let max_lane =
            Geometry::new(self.max_lane.get().into()).map_err(|_| field("lane limit"))?;
        let limits = Limits {
            max_message: self.max_message.get(),
            max_lane,
            max_shared_bytes_per_session: self.max_shared.get(),
        };
        if limits.max_shared_bytes_per_session < Limits::MIN_SHARED {
            return Err(field("shared memory limit"));
        }
        Ok((least, limits))
    }
}

fn parse_lane(bytes: &[u8]) -> Result<Epoch, ControlError> {
    let raw = take::<RawLane>(bytes)?;
    Ok(Epoch { number: raw.number.get(), size: lane(raw.size)? })
}

impl Attachment {
    fn parse(bytes: &[u8]) -> Result<Self, ControlError> {
        let raw = take::<RawAttachment>(bytes)?;
        Ok(Self { id: raw.id.get(), generation: raw.generation.get(), len: raw.len.get() })
    }
}

fn put<T: IntoBytes + Immutable>(into: &mut [u8; MAX_CONTROL], raw: &T) -> usize {
    let bytes = raw.as_bytes();
    for (to, from) in into.iter_mut().zip(bytes) {
        *to = *from;
    }
    bytes.len()
}

fn take<T: FromBytes>(bytes: &[u8]) -> Result<T, ControlError> {
    let error = ControlError::Length { len: bytes.len(), expected: size_of::<T>() };
    T::read_from_bytes(bytes).map_err(|_| error)
}

fn reason_field(reason: &str) -> [u8; MAX_REASON] {
    let mut field = [0; MAX_REASON];
    for (to, from) in field.iter_mut().zip(reason.bytes()) {
        *to = from;
    }
    field
}

fn lane_field(lane: Geometry) -> U32 {
    u32::try_from(lane.size()).unwrap_or(Geometry::MAX).into()
}

fn lane(field: U32) -> Result<Geometry, ControlError> {
    Geometry::new(field.get().into()).map_err(|_| ControlError::Field { field: "lane size" })
}

fn doorbell(field: U32) -> Result<Doorbell, ControlError> {
    Doorbell::parse(field.get()).ok_or(ControlError::Field { field: "doorbell" })
}

fn flag(field: U32, name: &'static str) -> Result<bool, ControlError> {
    match field.get() {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(ControlError::Field { field: name }),
    }
}
