use core::fmt;

/// Whether the handler may have run when a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Executed {
    /// The request never reached a handler and never will: it is safe to send it again.
    No,
    /// The request may have reached a handler: send it again only if the service is idempotent.
    Maybe,
}

/// Who has to act for a failure to go away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The caller: its request, its configuration or its deadline.
    Caller,
    /// The process at the other end.
    Peer,
    /// This machine: a limit, a missing kernel feature, a full disk.
    System,
    /// Nobody: the service is not there now, or the caller cancelled.
    Nobody,
}

/// What kind of failure it was, with the same numbers in every language binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u16)]
pub enum ErrorKind {
    /// No provider of the service is there.
    Absent = 1,
    /// The provider refused this client.
    Refused = 2,
    /// The two ends have no protocol version in common.
    Incompatible = 3,
    /// The message is larger than a limit.
    TooLarge = 4,
    /// The lane is full and the caller did not want to wait; or the provider's endpoint is, of clients that wait to be
    /// accepted.
    WouldBlock = 5,
    /// The deadline passed.
    Deadline = 6,
    /// Another thread cancelled.
    Cancelled = 7,
    /// The peer's process ended or its session closed.
    PeerGone = 8,
    /// The peer wrote what an honest peer cannot write; the session is poisoned.
    PeerLied = 9,
    /// The service's handler answered with an error.
    Handler = 10,
    /// A message could not be decoded.
    Malformed = 11,
    /// The operating system refused something.
    System = 12,
    /// The server is stopping.
    Stopping = 13,
    /// The peer closed the session: this end took nothing for too long of what was written for it.
    Unread = 14,
    /// It belongs to the process that this one was forked from: open another one after the fork.
    Forked = 15,
}

impl ErrorKind {
    /// The number that the C and Go bindings use.
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// Who has to act.
    pub const fn fault(self) -> Fault {
        match self {
            Self::Refused
            | Self::TooLarge
            | Self::WouldBlock
            | Self::Deadline
            | Self::Unread
            | Self::Forked => Fault::Caller,
            Self::Incompatible
            | Self::PeerGone
            | Self::PeerLied
            | Self::Handler
            | Self::Malformed => Fault::Peer,
            Self::System => Fault::System,
            Self::Absent | Self::Cancelled | Self::Stopping => Fault::Nobody,
        }
    }
}

/// What the peer did that an honest peer cannot do. The session that meets one is poisoned: it is
/// never used again, and the process and its other sessions go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerFault {
    /// `tail` went back.
    #[error("the peer's tail went back from {seen} to {now}")]
    TailWentBack {
        /// The value seen before.
        seen: u64,
        /// The value seen now.
        now: u64,
    },
    /// `tail` is further from `head` than the lane is large.
    #[error("the peer's tail {tail} is more than its lane of {size} bytes past position {head}")]
    TailTooFar {
        /// The reader's position.
        head: u64,
        /// The tail seen.
        tail: u64,
        /// The lane's size in bytes.
        size: u64,
    },
    /// `head` went back.
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
        /// What this side published.
        published: u64,
    },
    /// A position is not a multiple of the record alignment.
    #[error("position {at} is not a multiple of 16")]
    Misaligned {
        /// The position.
        at: u64,
    },
    /// A record is longer than what was published, or than the room to the lane's end.
    #[error("the record at {at} claims {len} bytes where {room} are there")]
    RecordTooLong {
        /// The record's position.
        at: u64,
        /// The payload's length that the header claims.
        len: u32,
        /// What there is, header included.
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
    /// A record of a kind that this side never receives in its role, or not now.
    #[error("the record at {at} of kind {kind} has no place here")]
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
    /// A response answers nothing that was asked, or answers it twice.
    #[error("a response answers the request {id}, which is not in flight")]
    UnknownId {
        /// The id found.
        id: u64,
    },
    /// A request uses an id that is still in flight or went back.
    #[error("the request id {id} is not above the last one, {last}")]
    ReusedId {
        /// The id found.
        id: u64,
        /// The last id accepted.
        last: u64,
    },
    /// A message is longer than this side said that it takes.
    #[error("the message at {at} has {len} bytes, above the limit of {limit}")]
    MessageTooLong {
        /// Its record's position.
        at: u64,
        /// Its length in bytes.
        len: u64,
        /// The limit that this side declared, in bytes.
        limit: u64,
    },
    /// A switch record that no honest peer writes.
    #[error("the switch record at {at} (epoch {}, {} bytes) has no place here: {why}", *id & 0xffff_ffff, *id >> 32)]
    Switch {
        /// The record's position.
        at: u64,
        /// The epoch as it stands on the wire.
        id: u64,
        /// What was wrong.
        why: &'static str,
    },
    /// The memory that a message on the control socket brought is not as it should be.
    #[error("the peer passed memory for {what} that is not as it should be: {why}")]
    Memory {
        /// What it was for.
        what: &'static str,
        /// What was wrong.
        why: &'static str,
    },
    /// A message on the control socket that has no place now.
    #[error("a control message of {len} bytes with {fds} descriptors has no place here: {why}")]
    Control {
        /// Its length in bytes.
        len: usize,
        /// How many descriptors came with it.
        fds: usize,
        /// What was wrong.
        why: &'static str,
    },
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
