//! Why messages and memory are not passed or taken. Each system has some of these reasons.

use std::io;

use bellwire_core::PeerFault;
use bellwire_core::control::ReceiveOutcome;
use bellwire_core::resize::{FollowError, Resource, Shortage};
use bellwire_core::wire::MAX_CONTROL;

use super::Platform;
use crate::{OverQuota, Received};

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError<P: Platform> {
    /// The peer has not read earlier messages yet.
    #[error("the control channel is full: wait until the peer has read, then send again")]
    WouldBlock,
    /// Too many descriptors of this user are in flight (`ETOOMANYREFS`), on Linux.
    #[error(
        "too many descriptors are in flight: wait for peers to receive them, or raise RLIMIT_NOFILE"
    )]
    TooManyInFlight,
    /// The peer closed its end.
    #[error("the peer closed the control channel: connect again")]
    Gone,
    /// The message is longer than allowed, on Windows.
    #[error("{len} bytes exceed the limit of 512 of a message")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// The message has more descriptors or handles than one message can carry.
    #[error("{count} objects are more than the {max} that one message can carry")]
    TooManyObjects {
        /// How many there were.
        count: usize,
        /// How many may be.
        max: usize,
    },
    /// This end is the server and has not opened the client's process, on Windows.
    #[error("handles cannot be sent before the client's process is opened: see Channel::reach")]
    NoReach,
    /// A handle could not be duplicated, here or into the client's table, on Windows.
    #[error("cannot hand a handle over: {source}")]
    Handle {
        /// The error from the system.
        source: P::Error,
    },
    /// The system refused.
    #[error("cannot send on the control channel: {source}")]
    System {
        /// The error from the system.
        source: P::Error,
    },
}

/// Why no message was received. The objects of a refused message went to the reaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError<P: Platform> {
    /// There is no message now.
    #[error("no control message is there: wait until one has arrived")]
    WouldBlock,
    /// The peer closed its end, and all its messages were received.
    #[error("the peer closed the control channel: connect again")]
    Closed,
    /// The message is longer than the protocol allows.
    #[error("the peer sent a control message of more than {room} bytes")]
    TooLong {
        /// The maximum length in bytes.
        room: usize,
    },
    /// The message is shorter than it announces, on Windows.
    #[error("the peer sent a control message that is cut off")]
    TooShort,
    /// The message carries more descriptors or handles than allowed.
    #[error("the peer sent {count} objects, expected at most {max}")]
    TooManyObjects {
        /// How many came.
        count: usize,
        /// How many may.
        max: usize,
    },
    /// The peer's number cannot be a handle, on Windows.
    #[error("the peer sent an invalid handle")]
    NoHandle,
    /// The client's number is not one of its handles, or this server may not take it, on Windows.
    #[error("the peer sent a handle that cannot be taken: {source}")]
    Handle {
        /// The error from the system.
        source: P::Error,
    },
    /// This process has no room for another descriptor or handle. On Windows the message is kept: receive it again. On Linux the
    /// descriptors were lost in transit (`MSG_CTRUNC`), unless the message was left in the socket.
    #[error(
        "there is no room for what the peer sent: {source}; {}",
        P::hint(Resource::Descriptors)
    )]
    Short {
        /// The error from the system.
        source: P::Error,
    },
    /// The system refused.
    #[error("cannot receive on the control channel: {source}")]
    System {
        /// The error from the system.
        source: P::Error,
    },
}

/// Why memory for a region or a snapshot could not be created. The fault is this system's, or the caller's if it asked for
/// too much.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError<P: Platform> {
    /// There is no descriptor for it: `memfd_create(2)` failed.
    #[error("cannot create shared memory: {source}; {}", P::hint(Resource::Descriptors))]
    Create {
        /// The error from the system.
        source: P::Error,
    },
    /// The size exceeds `RLIMIT_FSIZE`, and the kernel would kill the process with SIGXFSZ.
    #[error(
        "{size} bytes are past the file size limit of {limit} (RLIMIT_FSIZE): raise it or ask for less"
    )]
    FileLimit {
        /// The requested size in bytes.
        size: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The pages could not be allocated.
    #[error(
        "cannot allocate {size} bytes of shared memory: {source}; ask for less, or {}",
        P::hint(Resource::Memory)
    )]
    Allocate {
        /// The requested size in bytes.
        size: u64,
        /// The error from the system.
        source: P::Error,
    },
    /// The memory could not be mapped.
    #[error("cannot map {size} bytes: {source}; {}", P::hint(Resource::Maps))]
    Map {
        /// The requested size in bytes.
        size: u64,
        /// The error from the system.
        source: P::Error,
    },
    /// The peers of a user already hold as much memory of this process as they may.
    #[error(transparent)]
    Quota(#[from] OverQuota),
    /// The right to write could not be given up. On Linux `EBUSY` means that the memory is mapped for writing elsewhere, or that
    /// its pages were pinned for over a second.
    #[error("cannot seal shared memory: {source}; on Linux, 5.10 or newer is needed")]
    Seal {
        /// The error from the system.
        source: P::Error,
    },
}

/// Why a peer's memory was not mapped, or its event not taken. The peer is at fault unless noted otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError<P: Platform> {
    /// It is something else: not a memfd but a pipe, a socket or a file on disk; or not a section. No other call was made on it.
    #[error("the peer sent what is not shared memory: {source}")]
    NotMemory {
        /// The error from the system: on Linux, from `F_GET_SEALS`.
        source: P::Error,
    },
    /// A seal is missing, so the peer or a third process could still change or shrink it.
    #[error(
        "the peer's memfd holds the seals {held:#x} and lacks {missing:#x}: it must seal before sending"
    )]
    Seals {
        /// The `F_SEAL_` bits it holds.
        held: u32,
        /// The `F_SEAL_` bits that it lacks.
        missing: u32,
    },
    /// It is not a regular file, on Linux.
    #[error("the peer sent a descriptor of something that is not a regular file")]
    NotRegular,
    /// A file or an image backs it, on Windows: a read could fail or wait for a device.
    #[error("the peer sent a section of a file: it must be one of the paging file")]
    FileBacked,
    /// It has unusual memory attributes, on Windows: guarded or not cached.
    #[error("the peer sent a section of special memory")]
    Special,
    /// Its size differs from the announced one.
    #[error("the peer's memory has {found} bytes where {expected} were announced")]
    Size {
        /// The actual size in bytes; on Windows, in whole pages.
        found: u64,
        /// The announced size in bytes.
        expected: u64,
    },
    /// Pages are missing, on Linux. Reading them would charge them to this process.
    #[error(
        "the peer's memory has {allocated} of its {size} bytes allocated: it must allocate all"
    )]
    Sparse {
        /// Bytes allocated.
        allocated: u64,
        /// Its size in bytes.
        size: u64,
    },
    /// Pages at its start have no memory, on Windows, which does not tell how many others have some. Reading them would crash
    /// this process.
    #[error("the first {size} bytes of the peer's memory are not committed: it must commit all")]
    Uncommitted {
        /// How many bytes are not, from the start.
        size: u64,
    },
    /// It uses hugetlbfs pages, a scarce resource of this machine.
    #[error("the peer's memfd lies on huge pages, which are not accepted")]
    HugePages,
    /// An eventfd was expected.
    #[error("the peer sent a descriptor that is not an eventfd")]
    NotEventfd,
    /// The descriptor or handle does not grant the right to read; or, on Linux, it is read-only where the kernel (before Linux
    /// 6.5), a sandbox or the file's mode does not let this side query its pages.
    #[error("the peer's memory cannot be read or examined through what it sent")]
    Unreadable,
    /// This system refused to examine or map it.
    #[error(
        "the peer's memory cannot be examined or mapped: {source}; {}",
        P::hint(Resource::Maps)
    )]
    System {
        /// The error from the system.
        source: P::Error,
    },
}

impl<P: Platform> SendError<P> {
    /// Returns what this system lacked. `None` if the peer is gone: nobody will read later messages either, and the next wait
    /// reports it.
    pub fn shortage(&self) -> Option<Shortage> {
        Some(match *self {
            Self::Gone => return None,
            Self::WouldBlock => short::<P>(Resource::ControlSocket, 0, None),
            Self::TooManyInFlight => short::<P>(Resource::InFlight, 0, None),
            Self::Handle { source } => short::<P>(Resource::Descriptors, 0, Some(source)),
            Self::System { source } => P::shortage(source),
            Self::TooLong { .. } | Self::TooManyObjects { .. } | Self::NoReach => {
                short::<P>(Resource::Other, 0, None)
            }
        })
    }
}

impl<P: Platform> ReceiveError<P> {
    /// Returns whether this system is at fault rather than the peer.
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::Short { .. } | Self::System { .. })
    }

    /// Returns what a session makes of a message, or of the reason why there is none.
    ///
    /// # Errors
    /// [`FollowError`]: the peer sent what is not allowed, or this process lacks a resource.
    pub fn outcome(
        received: Result<Received<P::Owned>, Self>,
    ) -> Result<ReceiveOutcome<P::Owned>, FollowError> {
        let violation = |fds, why| Err(PeerFault::Control { len: MAX_CONTROL, fds, why }.into());
        match received {
            Ok(received) => {
                let len = received.len;
                Ok(ReceiveOutcome::Message { len, memory: received.into_objects().collect() })
            }
            Err(Self::WouldBlock) => Ok(ReceiveOutcome::Nothing),
            Err(Self::Closed) => Ok(ReceiveOutcome::End),
            Err(Self::TooManyObjects { count, .. }) => Ok(ReceiveOutcome::TooMany { count }),
            Err(Self::TooLong { .. }) => Ok(ReceiveOutcome::TooLong),
            Err(Self::TooShort) => violation(0, "it is cut off"),
            Err(Self::NoHandle | Self::Handle { .. }) => violation(1, "it names an invalid handle"),
            Err(Self::Short { source }) => {
                Err(short::<P>(Resource::Descriptors, 0, Some(source)).into())
            }
            Err(Self::System { source }) => Err(P::shortage(source).into()),
        }
    }
}

impl<P: Platform> RegionError<P> {
    /// Returns the resource that this system lacked for memory of `bytes`.
    pub fn shortage(&self, bytes: u64) -> Shortage {
        match *self {
            Self::Create { source } | Self::Seal { source } => {
                Shortage { bytes, ..P::shortage(source) }
            }
            Self::FileLimit { .. } => short::<P>(Resource::Memory, bytes, None),
            Self::Allocate { source, .. } => match P::shortage(source) {
                lack @ Shortage { resource: Resource::Descriptors, .. } => {
                    Shortage { bytes, ..lack }
                }
                _ => short::<P>(Resource::Memory, bytes, Some(source)),
            },
            Self::Quota(_) => short::<P>(Resource::Quota, bytes, None),
            Self::Map { source, .. } => short::<P>(Resource::Maps, bytes, Some(source)),
        }
    }
}

impl<P: Platform> VerifyError<P> {
    /// Returns what a session makes of it, for which the peer passed `bytes` of memory for `what`.
    pub fn refusal(self, what: &'static str, bytes: u64) -> FollowError {
        let why = match self {
            Self::System { source } => {
                return short::<P>(Resource::Maps, bytes, Some(source)).into();
            }
            Self::NotMemory { .. } => "it is not shared memory",
            Self::Seals { .. } => "a seal is missing",
            Self::NotRegular => "it is not a regular file",
            Self::FileBacked => "it is a section of a file",
            Self::Special => "it is special memory",
            Self::Size { .. } => "it has another size than announced",
            Self::Sparse { .. } | Self::Uncommitted { .. } => "its pages are not allocated",
            Self::HugePages => "it lies on huge pages",
            Self::NotEventfd => "it is not an eventfd",
            Self::Unreadable => "it cannot be read",
        };
        PeerFault::Memory { what, why }.into()
    }
}

fn short<P: Platform>(resource: Resource, bytes: u64, source: Option<P::Error>) -> Shortage {
    let code = source.and_then(|source| Into::<io::Error>::into(source).raw_os_error());
    Shortage { resource, bytes, code: code.unwrap_or(0) }
}
