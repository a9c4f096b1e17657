//! Why a call failed, and whether its handler may have run.

use std::sync::Arc;

use bellwire_core::call::SubmitError;
use bellwire_core::drive::CallFailed;
use bellwire_core::lane::PushError;
use bellwire_core::resize::Shortage;
use bellwire_core::wire::{CloseReason, RefuseCode, Status, Versions};
use bellwire_core::{ErrorKind, Executed, Fault, LimitOwner, PeerFault, ServiceName};

use super::ConnectError;
use crate::Malformed;
use crate::transport::{Os, prelude::*};

/// Why a call failed. Each variant reports [who is at fault](CallError::fault) and [whether the handler may have
/// run](CallError::executed).
///
/// The text of each error of this crate includes those of its [sources](std::error::Error::source): print the error alone, and look
/// among the sources for what a program has to tell apart, such as the [`io::Error`](std::io::Error) of a system call.
///
/// ```
/// use bellwire::{CallError, Client, Executed, Fault};
#[doc = include_str!("../doc/increment.txt")]
/// let error = Client::<Increment>::new(&run_dir).call(&41).unwrap_err();
/// assert!(matches!(error, CallError::Absent { .. }));
/// assert_eq!((error.fault(), error.executed()), (Fault::Nobody, Executed::No));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No provider listens now.
    #[error("nobody provides {service:?} now: start its provider, or check the run dir")]
    Absent {
        /// The service.
        service: ServiceName,
    },
    /// The provider refused this client.
    #[error("the provider of {service:?} refused ({code:?}): {reason}")]
    Refused {
        /// The service.
        service: ServiceName,
        /// Why, as a code.
        code: RefuseCode,
        /// Why, as a message for the operator.
        reason: Box<str>,
    },
    /// The two ends have no protocol version in common.
    #[error(
        "the provider speaks protocol versions {}-{}, this end {}-{}: upgrade the older of the two",
        theirs.min, theirs.max, ours.min, ours.max
    )]
    Incompatible {
        /// The versions that this end speaks.
        ours: Versions,
        /// The versions that the provider speaks.
        theirs: Versions,
    },
    /// The session could not be opened for another reason.
    #[error("no session with {service:?}: {source}")]
    Connect {
        /// The service.
        service: ServiceName,
        /// What happened. A client whose retry is not due yet reports the same error again.
        source: Arc<ConnectError>,
    },
    /// The request exceeds a [limit](crate::Limits) of either end. The session stays usable.
    #[error("a request of {len} bytes is above {owner} limit of {limit} bytes")]
    TooLarge {
        /// The request's length in bytes.
        len: u64,
        /// The limit in bytes.
        limit: u64,
        /// Whose limit it is.
        owner: LimitOwner,
    },
    /// The batch has more items than the provider accepts: see
    /// [`ServerConfig::max_batch`](crate::ServerConfig::max_batch). Nothing was sent. The session stays usable.
    #[error(
        "a batch of {items} items is above the provider's limit: split it into batches of at most {limit}"
    )]
    TooManyItems {
        /// The number of items in the batch.
        items: u64,
        /// The number of items that the provider accepts.
        limit: u64,
    },
    /// This system lacks a resource to send the request or to read the answer. The session stays usable.
    #[error("{shortage}: {}; {executed}", Os::hint(shortage.resource))]
    Short {
        /// The missing resource.
        shortage: Shortage,
        /// Whether the handler may have run.
        executed: Executed,
    },
    /// The lane is full, or too many requests are in flight, and the caller did not want to wait.
    #[error(
        "the lane is full or too many requests are in flight: read replies first, or use Backpressure::Wait"
    )]
    WouldBlock,
    /// The deadline passed.
    #[error("the deadline passed; {executed}")]
    Deadline {
        /// Whether the handler may have run.
        executed: Executed,
    },
    /// Another thread cancelled the call.
    #[error("the call was cancelled; {executed}")]
    Cancelled {
        /// Whether the handler may have run.
        executed: Executed,
    },
    /// The provider died, or closed the session without another reason.
    #[error("the provider is gone; {executed}")]
    PeerGone {
        /// Whether the handler may have run.
        executed: Executed,
    },
    /// The provider closed the session for this reason: it is stopping, or this end read nothing for longer than
    /// [`ServerConfig::stall_timeout`](crate::ServerConfig::stall_timeout), or violated the protocol. What was published
    /// before is read first.
    #[error("the provider closed the session, {}; {executed}", why_closed(*reason))]
    Closed {
        /// The provider's reason.
        reason: CloseReason,
        /// Whether the handler may have run.
        executed: Executed,
    },
    /// The provider violated the protocol. The session is poisoned.
    #[error("the provider violated the protocol, the session is closed: {0}")]
    ProtocolViolation(#[from] PeerFault),
    /// The handler answered with an error.
    #[error("the provider's handler failed{}: {reason}", coded(*code))]
    Handler {
        /// The handler's code, if it gave one: see [`HandlerError::with_code`](crate::HandlerError::with_code).
        code: Option<u32>,
        /// The handler's message.
        reason: Box<str>,
    },
    /// The provider did not run the handler, or could not send its answer.
    #[error("the provider did not answer, {}; {}", why_declined(*status), ran(*status))]
    Declined {
        /// The reason.
        status: Status,
    },
    /// The answer could not be decoded.
    #[error(
        "the provider's answer is malformed: {0}; build both ends from the same version of the service; change VERSION when its types change"
    )]
    Malformed(#[from] Malformed),
    /// This process was forked from the one that created the client or session. Nothing was sent.
    #[error(
        "the session belongs to the process that this one was forked from: open the client after the fork, or after becoming \
         a daemon"
    )]
    Forked,
}

impl CallError {
    /// Returns the kind of failure, with the same numbers as in C.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Absent { .. } => ErrorKind::Absent,
            Self::Refused { code: RefuseCode::Schema, .. } | Self::Incompatible { .. } => {
                ErrorKind::Incompatible
            }
            Self::Refused { .. } => ErrorKind::Refused,
            Self::Connect { source, .. } => source.kind(),
            Self::TooLarge { .. } | Self::TooManyItems { .. } => ErrorKind::TooLarge,
            Self::Short { .. } => ErrorKind::System,
            Self::WouldBlock => ErrorKind::WouldBlock,
            Self::Deadline { .. } => ErrorKind::Deadline,
            Self::Cancelled { .. } => ErrorKind::Cancelled,
            Self::PeerGone { .. } | Self::Closed { reason: CloseReason::Normal, .. } => {
                ErrorKind::PeerGone
            }
            Self::Closed { reason: CloseReason::Stalled, .. } => ErrorKind::Stalled,
            Self::Closed { reason: CloseReason::Stopping, .. } => ErrorKind::Stopping,
            Self::Closed { reason: CloseReason::Poisoned, .. } => ErrorKind::ProtocolViolation,
            Self::ProtocolViolation(_) => ErrorKind::ProtocolViolation,
            Self::Handler { .. }
            | Self::Declined { status: Status::Panicked | Status::Failed | Status::Ok } => {
                ErrorKind::Handler
            }
            Self::Declined { status: Status::Stopping } => ErrorKind::Stopping,
            Self::Declined { status: Status::TooLarge } => ErrorKind::TooLarge,
            Self::Declined { status: Status::Short } => ErrorKind::System,
            Self::Declined { status: Status::Cancelled } => ErrorKind::Cancelled,
            Self::Declined { status: Status::Busy | Status::NotYet } => ErrorKind::WouldBlock,
            Self::Declined { status: Status::Malformed } | Self::Malformed(_) => {
                ErrorKind::Malformed
            }
            Self::Forked => ErrorKind::Forked,
        }
    }

    /// Returns who has to act to fix the failure.
    pub fn fault(&self) -> Fault {
        match self {
            // The provider says that this end did it.
            Self::Closed { reason: CloseReason::Poisoned, .. } => Fault::Caller,
            error => error.kind().fault(),
        }
    }

    /// Returns whether the handler may have run.
    pub fn executed(&self) -> Executed {
        match self {
            Self::Absent { .. }
            | Self::Refused { .. }
            | Self::Incompatible { .. }
            | Self::Connect { .. }
            | Self::TooLarge { .. }
            | Self::TooManyItems { .. }
            | Self::WouldBlock
            | Self::Forked => Executed::No,
            Self::Deadline { executed }
            | Self::Cancelled { executed }
            | Self::Short { executed, .. }
            | Self::PeerGone { executed }
            | Self::Closed { executed, .. } => *executed,
            Self::Declined { status } => ran(*status),
            Self::ProtocolViolation(_) | Self::Handler { .. } | Self::Malformed(_) => {
                Executed::Maybe
            }
        }
    }

    /// Returns whether the provider died, or closed the session.
    pub(crate) fn is_provider_gone(&self) -> bool {
        matches!(self, Self::PeerGone { .. } | Self::Closed { .. })
    }

    /// Returns whether every further call on the session fails too.
    pub(crate) fn is_session_fatal(&self) -> bool {
        self.is_provider_gone() || matches!(self, Self::ProtocolViolation(_))
    }
}

/// Describes why a provider closed a session, and what to do.
const fn why_closed(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Normal => "without a reason",
        CloseReason::Poisoned => {
            "because this end violated the protocol: see what the provider reported, and update the older of the two"
        }
        CloseReason::Stopping => "because it is stopping: try again once another one runs",
        CloseReason::Stalled => {
            "because this client stopped reading answers: read them sooner, or raise the provider's stall_timeout"
        }
    }
}

/// Describes why a provider did not answer, and what to do.
const fn why_declined(status: Status) -> &'static str {
    match status {
        Status::Malformed => {
            "since it could not decode the request: build both ends from the same version of the service; change VERSION when its types change"
        }
        Status::Busy => {
            "since it is at capacity: try again later, or raise its max_in_flight or max_memory"
        }
        Status::Stopping => "since it is stopping: try again once another one runs",
        Status::Cancelled => "since the request was cancelled",
        Status::TooLarge => {
            "since the answer is above a limit: raise max_message of both ends, or ask for less"
        }
        Status::Panicked => "since its handler panicked: see what it printed",
        Status::NotYet => "since it has published nothing yet: try again later",
        Status::Short => {
            "since it lacked memory, descriptors, or room in the control socket to send the handler's answer: try again, \
             or raise its limits of memory and open files"
        }
        Status::Ok | Status::Failed => "and did not say why",
    }
}

fn coded(code: Option<u32>) -> String {
    code.map(|code| format!(", code {code}")).unwrap_or_default()
}

const fn ran(status: Status) -> Executed {
    if status.ran() { Executed::Maybe } else { Executed::No }
}

/// Lets `?` propagate the error of one batch item.
impl From<Box<CallError>> for CallError {
    fn from(error: Box<CallError>) -> Self {
        *error
    }
}

impl From<CallFailed> for CallError {
    fn from(failed: CallFailed) -> Self {
        match failed {
            CallFailed::Submit(SubmitError::Push(PushError::TooLarge { len, limit, owner })) => {
                Self::TooLarge { len, limit, owner }
            }
            CallFailed::Submit(SubmitError::Short(shortage)) => {
                Self::Short { shortage, executed: Executed::No }
            }
            CallFailed::Short(shortage) => Self::Short { shortage, executed: Executed::Maybe },
            CallFailed::Submit(SubmitError::Push(PushError::Peer(fault)))
            | CallFailed::Peer(fault) => Self::ProtocolViolation(fault),
            // Only of a session that this end has closed, which is reported before anything is sent.
            CallFailed::Submit(SubmitError::Push(PushError::Closed)) => {
                Self::PeerGone { executed: Executed::No }
            }
            CallFailed::Submit(
                SubmitError::Window
                | SubmitError::Push(
                    PushError::Full { .. } | PushError::Grow { .. } | PushError::Attach { .. },
                ),
            ) => Self::WouldBlock,
            CallFailed::Deadline(executed) => Self::Deadline { executed },
            CallFailed::Cancelled(executed) => Self::Cancelled { executed },
            CallFailed::PeerGone(executed) | CallFailed::Closed(CloseReason::Normal, executed) => {
                Self::PeerGone { executed }
            }
            CallFailed::Closed(reason, executed) => Self::Closed { reason, executed },
        }
    }
}
