use core::fmt;

/// Whether the handler may have run when a call failed.
///
/// ```
/// use bellwire_core::Executed;
///
/// let may_repeat = |executed, is_idempotent| executed == Executed::No || is_idempotent;
/// assert!(may_repeat(Executed::No, false) && !may_repeat(Executed::Maybe, false));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Executed {
    /// The request never reached a handler and never will: resending it is safe.
    No,
    /// The request may have reached a handler: resend it only if the service is idempotent.
    Maybe,
}

/// Who has to act to fix a failure.
///
/// ```
/// use bellwire_core::Fault;
///
/// let is_for_us = |fault| matches!(fault, Fault::Caller | Fault::System);
/// assert!(is_for_us(Fault::System) && !is_for_us(Fault::Nobody));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The caller: its request, its configuration or its deadline.
    Caller,
    /// The process at the other end.
    Peer,
    /// This machine: a limit, a missing kernel feature, a full disk.
    System,
    /// Nobody: the service is absent now, or the caller cancelled.
    Nobody,
}

/// The kind of failure, with the same numbers in Rust and in C. Go has errors to compare with, without numbers.
///
/// ```
/// use bellwire_core::ErrorKind;
///
/// assert_eq!(ErrorKind::Absent as u16, 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u16)]
pub enum ErrorKind {
    /// No provider of the service listens.
    Absent = 1,
    /// The provider refused this client.
    Refused = 2,
    /// The two ends differ: they have no protocol version in common, or other types of the service.
    Incompatible = 3,
    /// The message exceeds a limit.
    TooLarge = 4,
    /// The lane is full and the caller did not want to wait; the backlog of the provider's endpoint is full; or the provider
    /// declined a request for now, since it is at capacity or has published nothing yet.
    WouldBlock = 5,
    /// The deadline passed.
    Deadline = 6,
    /// Another thread cancelled.
    Cancelled = 7,
    /// The peer's process ended or its session closed.
    PeerGone = 8,
    /// The peer violated the protocol; the session is poisoned.
    ProtocolViolation = 9,
    /// The service's handler answered with an error.
    Handler = 10,
    /// A message could not be decoded.
    Malformed = 11,
    /// A system call failed, or a resource is missing.
    System = 12,
    /// The server is stopping.
    Stopping = 13,
    /// The peer closed the session because this end took nothing from its lane for too long.
    Stalled = 14,
    /// The object belongs to the process that this one was forked from: open a new one after the fork.
    Forked = 15,
}

impl ErrorKind {
    /// Returns the number, which is that of `BW_E_…` in C, too.
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// Returns who has to act.
    pub const fn fault(self) -> Fault {
        match self {
            Self::Refused
            | Self::TooLarge
            | Self::WouldBlock
            | Self::Deadline
            | Self::Stalled
            | Self::Forked => Fault::Caller,
            Self::Incompatible
            | Self::PeerGone
            | Self::ProtocolViolation
            | Self::Handler
            | Self::Malformed => Fault::Peer,
            Self::System => Fault::System,
            Self::Absent | Self::Cancelled | Self::Stopping => Fault::Nobody,
        }
    }
}

/// A protocol violation by the peer. It poisons the session, which is then never used again; the process and its
/// other sessions continue.
///
/// ```
/// use bellwire_core::PeerFault;
///
/// let fault = PeerFault::TailWentBack { seen: 64, now: 32 };
/// assert_eq!(fault.to_string(), "the peer's tail went back from 64 to 32");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerFault {
    /// `tail` went backwards.
    #[error("the peer's tail went back from {seen} to {now}")]
    TailWentBack {
        /// The value seen before.
        seen: u64,
        /// The value seen now.
        now: u64,
    },
    /// `tail` is further from `head` than the lane's size.
    #[error("the peer's tail {tail} is more than its lane of {size} bytes past position {head}")]
    TailTooFar {
        /// The reader's position.
        head: u64,
        /// The tail seen.
        tail: u64,
        /// The lane's size in bytes.
        size: u64,
    },
    /// `head` went backwards.
    #[error("the peer's head went back from {seen} to {now}")]
    HeadWentBack {
        /// The value seen before.
        seen: u64,
        /// The value seen now.
        now: u64,
    },
    /// `head` is past what was published.
    #[error("the peer's head {head} is past the {published} bytes that were published")]
    HeadTooFar {
        /// The head seen.
        head: u64,
        /// The bytes that this side published.
        published: u64,
    },
    /// A position is not a multiple of the record alignment.
    #[error("position {at} is not a multiple of 16")]
    Misaligned {
        /// The position.
        at: u64,
    },
    /// A record is longer than the published bytes, or than the room to the lane's end.
    #[error("the record at {at} has length {len}, but only {room} bytes are available")]
    RecordTooLong {
        /// The record's position.
        at: u64,
        /// The payload's length that the header claims.
        len: u32,
        /// The bytes available, including the header.
        room: u64,
    },
    /// A record's kind is not one of this protocol version.
    #[error("the record at {at} has the unknown kind {kind}")]
    UnknownKind {
        /// The record's position.
        at: u64,
        /// The kind found.
        kind: u8,
    },
    /// A record of a kind that this side does not accept in its role, or not now.
    #[error("the record at {at} of kind {kind} is not allowed here")]
    Unexpected {
        /// The record's position.
        at: u64,
        /// The kind found.
        kind: u8,
    },
    /// Flags or reserved bits that must be zero are not.
    #[error("the record at {at} has the unknown flags {flags:#04x}")]
    UnknownFlags {
        /// The record's position.
        at: u64,
        /// The flags found.
        flags: u8,
    },
    /// A response or a cancellation names a request that is not in flight; a second response to a request does, too.
    #[error("a response or a cancellation names the request {id}, which is not in flight")]
    UnknownId {
        /// The id found.
        id: u64,
    },
    /// A request's id is not above the last one.
    #[error("the request id {id} is not above the last one, {last}")]
    ReusedId {
        /// The id found.
        id: u64,
        /// The last id accepted.
        last: u64,
    },
    /// A message exceeds the limit that this side declared.
    #[error("the message at {at} has {len} bytes, above the limit of {limit}")]
    MessageTooLong {
        /// Its record's position.
        at: u64,
        /// Its length in bytes.
        len: u64,
        /// The limit that this side declared, in bytes.
        limit: u64,
    },
    /// A Switch record that is invalid here.
    #[error("the switch record at {at} (epoch {}, {} bytes) is not allowed here: {why}", *id & 0xffff_ffff, *id >> 32)]
    Switch {
        /// The record's position.
        at: u64,
        /// The epoch in its wire encoding.
        id: u64,
        /// What is invalid.
        why: &'static str,
    },
    /// The memory that a message on the control socket brought is invalid.
    #[error("the memory that the peer passed for {what} is invalid: {why}")]
    Memory {
        /// The purpose of the memory.
        what: &'static str,
        /// What is invalid.
        why: &'static str,
    },
    /// A message on the control socket that is not allowed now.
    #[error("a control message of {len} bytes with {fds} descriptors is not allowed here: {why}")]
    Control {
        /// Its length in bytes.
        len: usize,
        /// How many descriptors came with it.
        fds: usize,
        /// What is invalid.
        why: &'static str,
    },
}

impl PeerFault {
    /// Returns the number of the violation, which is the same in every language, and its name.
    pub const fn code(&self) -> (u16, &'static str) {
        match self {
            Self::TailWentBack { .. } => (1, "TailWentBack"),
            Self::TailTooFar { .. } => (2, "TailTooFar"),
            Self::HeadWentBack { .. } => (3, "HeadWentBack"),
            Self::HeadTooFar { .. } => (4, "HeadTooFar"),
            Self::Misaligned { .. } => (5, "Misaligned"),
            Self::RecordTooLong { .. } => (6, "RecordTooLong"),
            Self::UnknownKind { .. } => (7, "UnknownKind"),
            Self::Unexpected { .. } => (8, "Unexpected"),
            Self::UnknownFlags { .. } => (9, "UnknownFlags"),
            Self::UnknownId { .. } => (10, "UnknownId"),
            Self::ReusedId { .. } => (11, "ReusedId"),
            Self::MessageTooLong { .. } => (12, "MessageTooLong"),
            Self::Switch { .. } => (13, "Switch"),
            Self::Memory { .. } => (14, "Memory"),
            Self::Control { .. } => (15, "Control"),
        }
    }
}

impl fmt::Display for Executed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::No => "the handler did not run",
            Self::Maybe => "the handler may have run",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Caller => "caller",
            Self::Peer => "peer",
            Self::System => "system",
            Self::Nobody => "nobody",
        })
    }
}
