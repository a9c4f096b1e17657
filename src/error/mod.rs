//! Why sessions, servers and publishers fail, and who has to act.

mod call;

use std::error::Error;
use std::{io, iter};

use bellwire_core::wire::{RefuseCode, Versions};
use bellwire_core::{ErrorKind, Fault, ServiceName};

use crate::transport::endpoint::BindError;
use crate::transport::{Os, prelude::*};

pub use call::CallError;

/// Why a session could not be opened.
///
/// ```
/// use bellwire::{ClientConfig, ConnectError, probe};
#[doc = include_str!("../doc/increment.txt")]
/// let nobody = probe(&run_dir, "increment".parse()?, 0, &ClientConfig::default()).unwrap_err();
/// assert!(matches!(nobody, ConnectError::Absent));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No process listens at the endpoint.
    #[error("no provider is running")]
    Absent,
    /// The provider's backlog of connections is full. A client that connects retries with growing intervals.
    #[error(
        "too many clients wait for the provider: try again, or raise its backlog and net.core.somaxconn"
    )]
    Busy,
    /// The provider refused.
    #[error("refused ({code:?}): {reason}")]
    Refused {
        /// Why, as a code.
        code: RefuseCode,
        /// Why, as a message for the operator.
        reason: Box<str>,
    },
    /// The two ends have no protocol version in common.
    #[error("protocol versions {}-{} there, {}-{} here", theirs.min, theirs.max, ours.min, ours.max)]
    Incompatible {
        /// The versions that this end speaks.
        ours: Versions,
        /// The versions that the provider speaks.
        theirs: Versions,
    },
    /// The listener is not trusted: it is another user's process, or not Bellwire.
    #[error("the process listening there is not a trusted provider: {source}")]
    Impostor {
        /// The reason.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The provider violated the handshake, or its memory is invalid.
    #[error("the provider violated the handshake: {source}")]
    Protocol {
        /// The reason.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The provider did not answer in time.
    #[error("the provider did not answer in time")]
    Deadline,
    /// The provider closed the connection during the handshake.
    #[error("the provider closed the connection during the handshake")]
    Closed,
    /// A system call failed.
    #[error("{doing}: {source}")]
    System {
        /// What was attempted.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl ConnectError {
    /// Returns whether a provider listened that has ended since, or is about to.
    pub(crate) fn is_provider_leaving(&self) -> bool {
        matches!(self, Self::Closed | Self::Refused { code: RefuseCode::Stopping, .. })
    }

    /// Returns the kind of failure.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Absent => ErrorKind::Absent,
            Self::Busy => ErrorKind::WouldBlock,
            Self::Refused { code: RefuseCode::Schema, .. } | Self::Incompatible { .. } => {
                ErrorKind::Incompatible
            }
            Self::Refused { .. } | Self::Impostor { .. } => ErrorKind::Refused,
            Self::Protocol { .. } => ErrorKind::ProtocolViolation,
            Self::Deadline => ErrorKind::Deadline,
            Self::Closed => ErrorKind::PeerGone,
            Self::System { .. } => ErrorKind::System,
        }
    }

    /// Returns who has to act to fix the failure.
    pub fn fault(&self) -> Fault {
        self.kind().fault()
    }
}

/// Why a server could not start or serve.
///
/// ```
/// use bellwire::ServeError;
#[doc = include_str!("../doc/increment_served.txt")]
/// let mut other = Server::builder(&run_dir);
/// let taken = other.serve::<Increment>(|_, number| Ok(number + 1)).unwrap_err();
/// assert!(matches!(taken, ServeError::Taken { service } if service.as_str() == "increment"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The service's name is invalid, or this builder serves it already.
    #[error("{name:?} cannot be served: {why}")]
    Name {
        /// The name.
        name: String,
        /// The reason.
        why: String,
    },
    /// Another process, or another server of this one, owns the name.
    #[error(
        "{service:?} is provided in this run dir already: stop that provider, or use another run dir"
    )]
    Taken {
        /// The service.
        service: ServiceName,
    },
    /// This process was forked from the owner of the name, which still has it.
    #[error(
        "the name was taken by the process that this one was forked from: take it after the fork, or after becoming a daemon"
    )]
    Forked,
    /// A socket that the service manager handed over cannot be served at.
    #[error("cannot serve at a socket that was handed over: {source}")]
    Inherited {
        /// The reason, and what to do.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The endpoint could not be created.
    #[error("cannot open the endpoint of {service:?}: {source}")]
    Endpoint {
        /// The service.
        service: ServiceName,
        /// The reason, and what to do.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A system call failed.
    #[error("{doing}: {source}")]
    System {
        /// What was attempted.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl ServeError {
    /// Returns the kind of failure: [`ErrorKind::Refused`] for a name that is invalid or taken.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Name { .. } | Self::Taken { .. } => ErrorKind::Refused,
            Self::Forked => ErrorKind::Forked,
            Self::Inherited { .. } | Self::Endpoint { .. } | Self::System { .. } => {
                ErrorKind::System
            }
        }
    }

    /// Returns who has to act to fix the failure.
    pub fn fault(&self) -> Fault {
        self.kind().fault()
    }

    /// Returns the error of a service whose name could not be taken.
    pub(crate) fn unbound(service: ServiceName, error: BindError) -> Self {
        match error {
            BindError::Taken { .. } => Self::Taken { service },
            error => Self::Endpoint { service, source: of_transport(error).into() },
        }
    }
}

/// Why a snapshot or an event was not published. Readers see what was published before.
///
/// ```
/// use bellwire::PublishError;
#[doc = include_str!("../doc/temperature.txt")]
/// # struct Blob;
/// # impl Event for Blob {
/// #     const NAME: &'static str = "blob";
/// #     type Message = Vec<u8>;
/// # }
/// # let mut builder = Server::builder(&run_dir);
/// let blobs = builder.events::<Blob>(1 << 20)?;
/// let error = blobs.send(&vec![0; 1 << 30]).unwrap_err();
/// assert!(matches!(error, PublishError::TooLarge { .. }));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// Its memory could not be allocated or sealed.
    #[error("cannot make shared memory for {len} bytes: {source}")]
    System {
        /// Its length in bytes.
        len: usize,
        /// The system's error.
        source: io::Error,
    },
    /// The event is longer than the largest broadcast ring takes.
    #[error("an event of {len} bytes is above the limit of {max}: publish it as a snapshot")]
    TooLarge {
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        max: u64,
    },
    /// This process was forked from the one that serves; it cannot publish.
    #[error("the publisher belongs to the process that this one was forked from")]
    Forked,
}

impl PublishError {
    /// Returns the kind of failure.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::System { .. } => ErrorKind::System,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::Forked => ErrorKind::Forked,
        }
    }

    /// Returns who has to act to fix the failure.
    pub fn fault(&self) -> Fault {
        self.kind().fault()
    }
}

/// A transport's error above the system's own, which is an [`io::Error`] here: each transport has another type for it.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct OfTransport {
    text: String,
    source: io::Error,
}

/// Returns a transport's error with the kind of the system's own, if that is among its sources.
pub(crate) fn of_transport(error: impl Error + Send + Sync + 'static) -> io::Error {
    let mut sources = iter::successors(error.source(), |&error| error.source());
    match sources.find_map(|source| source.downcast_ref::<<Os as Platform>::Error>()) {
        Some(source) => {
            let (text, source) = (error.to_string(), io::Error::from(*source));
            io::Error::new(source.kind(), OfTransport { text, source })
        }
        None => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use bellwire_core::Executed;
    use bellwire_core::resize::{Resource, Shortage};
    use bellwire_core::wire::{CloseReason, Status};

    use super::*;
    use crate::{Malformed, RefreshError, SubscribeError};

    #[test]
    fn a_missing_answer_is_reported_with_advice_and_the_state_of_the_call() {
        let told = |status| CallError::Declined { status }.to_string();
        for (status, to_do, executed) in [
            (Status::Malformed, "the same version", Executed::No),
            (Status::Busy, "max_in_flight", Executed::No),
            (Status::Stopping, "try again", Executed::No),
            (Status::TooLarge, "max_message", Executed::Maybe),
            (Status::Panicked, "what it printed", Executed::Maybe),
            (Status::NotYet, "try again", Executed::No),
            (Status::Short, "open files", Executed::Maybe),
        ] {
            let told = told(status);
            assert!(told.contains(to_do) && told.ends_with(&executed.to_string()), "{told}");
        }
    }

    #[test]
    fn each_error_has_a_kind_and_names_who_is_at_fault() {
        let executed = Executed::Maybe;
        let stopping = || CallError::Closed { reason: CloseReason::Stopping, executed };
        // The provider reports a violation by this end.
        let poisoned = || CallError::Closed { reason: CloseReason::Poisoned, executed };
        let malformed = || Malformed::new(0, 8, "not a number");
        let name = ServeError::Name { name: "a b".into(), why: "it has a space".into() };
        let system = PublishError::System { len: 8, source: io::Error::other("full") };
        let refresh = [
            RefreshError::Malformed { generation: 1, source: malformed() },
            stopping().into(),
            poisoned().into(),
        ];
        let subscribe = [
            SubscribeError::Malformed { sequence: 1, source: malformed() },
            stopping().into(),
            poisoned().into(),
        ];
        let expected = [
            (ErrorKind::Malformed, Fault::Peer),
            (ErrorKind::Stopping, Fault::Nobody),
            (ErrorKind::ProtocolViolation, Fault::Caller),
        ];
        assert_eq!(refresh.map(|error| (error.kind(), error.fault())), expected);
        assert_eq!(subscribe.map(|error| (error.kind(), error.fault())), expected);
        assert_eq!((name.kind(), name.fault()), (ErrorKind::Refused, Fault::Caller));
        assert_eq!((system.kind(), system.fault()), (ErrorKind::System, Fault::System));
        let closed = ConnectError::Closed;
        assert_eq!((closed.kind(), closed.fault()), (ErrorKind::PeerGone, Fault::Peer));
    }

    #[test]
    fn a_shortage_names_the_resource_the_hint_and_whether_the_call_ran() {
        let shortage = Shortage { resource: Resource::Memory, bytes: 4096, code: 12 };
        let told = CallError::Short { shortage, executed: Executed::No }.to_string();
        for part in
            ["memory", "4096 bytes", "(os error 12)", "free memory", &Executed::No.to_string()]
        {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}
