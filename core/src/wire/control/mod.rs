mod layout;

use alloc::boxed::Box;
use core::ops::RangeInclusive;

use zerocopy::{TryFromBytes, try_transmute};

use crate::lane::Epoch;
use crate::{Geometry, Limits, NameError, ServiceName};

/// The protocol versions that this build speaks.
pub const PROTOCOL: Versions = Versions { min: 1, max: 1 };
/// The largest control message, in bytes.
pub const MAX_CONTROL: usize = 512;
/// The longest sentence in a REFUSE, in bytes.
const MAX_REASON: usize = 256;

/// An inclusive range of protocol versions.
///
/// ```
/// use bellwire_core::wire::Versions;
///
/// let (ours, theirs) = (Versions { min: 1, max: 1 }, Versions { min: 2, max: 3 });
/// assert!(ours.max < theirs.min, "none in common");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Versions {
    /// The oldest.
    pub min: u16,
    /// The newest.
    pub max: u16,
}

/// What wakes a parked peer. The waiter chooses it; its page's `doorbell` word names it.
///
/// ```
/// use bellwire_core::wire::Doorbell;
///
/// assert_eq!(Doorbell::default(), Doorbell::Futex);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, TryFromBytes)]
#[repr(u32)]
pub enum Doorbell {
    /// A futex on the word of the ringer's page that moved.
    #[default]
    Futex = 1,
    /// The waiter's eventfd, passed in the handshake.
    Eventfd = 2,
    /// One byte on the control socket.
    Socket = 3,
}

/// The version of a service that requests a server's counters from any endpoint, instead of calling its service.
pub const STATS_VERSION: u32 = u32::MAX;

/// The kind of a control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum ControlKind {
    /// Client to server, first.
    Hello = 1,
    /// Server to client: admitted, with the server's memory.
    Welcome = 2,
    /// Server to client: not admitted, with the reason.
    Refuse = 3,
    /// Client to server: the client's memory.
    Join = 4,
    /// Server to client: the client's memory is valid; data may flow.
    Ready = 5,
    /// Either direction, later: the memfd of an Attach record.
    Attachment = 6,
    /// Either direction, later: a doorbell of kind [`Doorbell::Socket`].
    Ring = 7,
    /// Either direction, later: the memfd in which a lane continues.
    Lane = 8,
}

/// Why a server refuses.
///
/// ```
/// use bellwire_core::wire::RefuseCode;
///
/// assert_eq!(RefuseCode::Token as u16, 3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromBytes)]
#[non_exhaustive]
#[repr(u16)]
pub enum RefuseCode {
    /// No protocol version in common; the message carries the server's.
    Incompatible = 1,
    /// The peer's user is not admitted.
    Credentials = 2,
    /// The token differs.
    Token = 3,
    /// This endpoint serves another service, or another version of it.
    Service = 4,
    /// A quota is exhausted.
    Quota = 5,
    /// The server is stopping.
    Stopping = 6,
    /// The client violated the protocol, or its memory is invalid.
    Protocol = 7,
    /// The server lacks a resource, for instance descriptors.
    Resources = 8,
    /// The service's types differ: see [`Hello::schema`].
    Schema = 9,
}

/// HELLO: the client's first message. No descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The versions that the client speaks.
    pub versions: Versions,
    /// Feature bits; none are defined in version 1.
    pub features: u64,
    /// The requested service.
    pub service: ServiceName,
    /// The version of the service's types.
    pub service_version: u32,
    /// The value of `BELLWIRE_TOKEN` (32 hexadecimal digits) as bytes, the first byte first; zeroes when there is
    /// none.
    pub token: [u8; 16],
    /// The size of the client's lane.
    pub lane: Geometry,
    /// The minimum size of the client's lane.
    pub least_lane: Geometry,
    /// The client's limits.
    pub limits: Limits,
    /// The client's doorbell.
    pub doorbell: Doorbell,
    /// Whether the client can receive an eventfd to ring the server with.
    pub rings_eventfd: bool,
    /// A fingerprint of the service's types, as the client knows them; 0 if it has none.
    pub schema: u64,
}

/// WELCOME: the server admits the client. Descriptors: page, lane, board, and its eventfd when
/// [`Welcome::doorbell`] is [`Doorbell::Eventfd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The protocol version of the session.
    pub version: u16,
    /// The feature bits that both ends have.
    pub features: u64,
    /// The session's number, unique within the server's process.
    pub session: u64,
    /// The size of the server's lane.
    pub lane: Geometry,
    /// The minimum size of the server's lane.
    pub least_lane: Geometry,
    /// The server's limits.
    pub limits: Limits,
    /// The server's doorbell.
    pub doorbell: Doorbell,
    /// The most items that the server accepts in one [batch](crate::batch).
    pub max_batch: u32,
    /// A fingerprint of the service's types, as the server knows them; 0 if it has none.
    pub schema: u64,
}

/// REFUSE: the server does not admit the client. No descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refuse {
    /// The reason, as a code.
    pub code: RefuseCode,
    /// The versions that the server speaks.
    pub versions: Versions,
    reason: Box<str>,
}

/// JOIN: the client's memory. Descriptors: page, lane, and its eventfd when that is its doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// The session's number, as in WELCOME.
    pub session: u64,
}

/// READY: the server has mapped the client's memory. No descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The session's number.
    pub session: u64,
}

/// ATTACHMENT: the memfd of the Attach record that follows in the lane. One descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The id of the request, or of the request that it answers.
    pub id: u64,
    /// The generation of a snapshot; 0 for any other message.
    pub generation: u64,
    /// The length in bytes; the memfd's size is this, rounded up to whole pages.
    pub len: u64,
}

/// A parsed control message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// See [`Hello`].
    Hello(Hello),
    /// See [`Welcome`].
    Welcome(Welcome),
    /// See [`Refuse`].
    Refuse(Refuse),
    /// See [`Join`].
    Join(Join),
    /// See [`Ready`].
    Ready(Ready),
    /// See [`Attachment`].
    Attachment(Attachment),
    /// One ring of the doorbell.
    Ring,
    /// LANE: the memfd of this epoch of the sender's lane; the Switch record follows, immediately or later. One
    /// descriptor.
    Lane(Epoch),
}

/// Why bytes are not a control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The message has the wrong length for its kind.
    #[error("the control message has {len} bytes, expected {expected}")]
    Length {
        /// The length found.
        len: usize,
        /// The length of that kind.
        expected: usize,
    },
    /// The first four bytes are not those of a control message.
    #[error("the control message does not start with \"BWC1\": this is not a Bellwire peer")]
    Magic,
    /// The kind is unknown.
    #[error("the control message has the unknown kind {kind}")]
    Kind {
        /// The kind found.
        kind: u16,
    },
    /// A field holds an invalid value.
    #[error("the control message has an invalid {field}")]
    Field {
        /// The field.
        field: &'static str,
    },
    /// The service's name is invalid.
    #[error("the control message has an invalid service name: {0}")]
    Name(NameError),
    /// HELLO has no common version, so the rest was not read.
    #[error("the peer speaks protocol versions {} to {}", .0.min, .0.max)]
    Version(Versions),
}

impl Versions {
    /// Returns the newest version in both ranges.
    pub fn common(self, other: Self) -> Option<u16> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }

    /// Returns the range.
    pub fn range(self) -> RangeInclusive<u16> {
        self.min..=self.max
    }
}

impl Doorbell {
    /// Parses a peer's doorbell word.
    pub fn parse(code: u32) -> Option<Self> {
        try_transmute!(code).ok()
    }
}

impl Refuse {
    /// Creates a refusal with a sentence for the operator, cut to 255 bytes.
    pub fn new(code: RefuseCode, reason: &str) -> Self {
        let mut cut = reason.len().min(MAX_REASON - 1);
        while !reason.is_char_boundary(cut) {
            cut -= 1;
        }
        let reason = reason.get(..cut).unwrap_or("").into();
        Self { code, versions: PROTOCOL, reason }
    }

    /// Returns the sentence for the operator; parsing rejects text that is not UTF-8 or not printable.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl Message {
    /// Returns the message's kind.
    pub const fn kind(&self) -> ControlKind {
        match self {
            Self::Hello(_) => ControlKind::Hello,
            Self::Welcome(_) => ControlKind::Welcome,
            Self::Refuse(_) => ControlKind::Refuse,
            Self::Join(_) => ControlKind::Join,
            Self::Ready(_) => ControlKind::Ready,
            Self::Attachment(_) => ControlKind::Attachment,
            Self::Ring => ControlKind::Ring,
            Self::Lane(_) => ControlKind::Lane,
        }
    }
}
