//! What both ends of a service agree on, and services that are known only at run time.

use std::convert::Infallible;

use bellwire_core::wire::STATS_VERSION;
use bellwire_core::{ErrorKind, Executed, ServiceName};

use crate::{CallError, Client, Event, Payload, Service, Snapshot};

/// What a client and a provider agree on when they open a session, besides the bytes of their messages.
///
/// A [`Service`] or a [`Snapshot`] has it in constants. A program that learns its services at run time, such as a bridge, a
/// tool, or a library for another language, makes one and uses [`Dynamic`].
///
/// ```
/// use bellwire::Contract;
#[doc = include_str!("doc/increment.txt")]
/// let known = Contract::of::<Increment>();
/// let made = Contract::new("increment".parse()?).schema(Increment::SCHEMA);
/// assert_eq!(known, made);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contract {
    pub(crate) service: ServiceName,
    pub(crate) version: u32,
    pub(crate) schema: u64,
    pub(crate) is_idempotent: bool,
}

/// A service, a snapshot, or an event, that is known only at run time: its messages are bytes.
///
/// ```
/// use bellwire::{Client, Contract, Dynamic, Payload, RunDir, Server};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let run_dir = RunDir::new(dir.path());
/// let reverse = Contract::new("reverse".parse()?).version(3);
///
/// let mut builder = Server::builder(&run_dir);
/// builder.serve_dynamic(reverse, |_, request| {
///     Ok(Payload::build(request.len(), |answer| {
///         answer.copy_from_slice(&request);
///         answer.reverse();
///     })?)
/// })?;
/// let server = builder.start()?;
///
/// let mut client = Client::<Dynamic>::with_contract(&run_dir, reverse, Default::default());
/// assert_eq!(client.connect()?.raw().call(b"abc")?, b"cba");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Dynamic {}

impl Contract {
    /// Creates the contract of a service with version 1, no fingerprint of its types, and requests that must not run twice.
    pub fn new(service: ServiceName) -> Self {
        Self { service, version: 1, schema: 0, is_idempotent: false }
    }

    /// Returns the contract of a service whose types are known.
    pub fn of<S: Service>() -> Self {
        Self {
            service: Client::<S>::SERVICE,
            version: S::VERSION,
            schema: S::SCHEMA,
            is_idempotent: S::IDEMPOTENT,
        }
    }

    pub(crate) fn of_snapshot<T: Snapshot>() -> Self {
        let service = const { ServiceName::constant(T::NAME) };
        Self { service, version: T::VERSION, schema: T::SCHEMA, is_idempotent: true }
    }

    pub(crate) fn of_event<E: Event>() -> Self {
        let service = const { ServiceName::constant(E::NAME) };
        Self { service, version: E::VERSION, schema: E::SCHEMA, is_idempotent: true }
    }

    /// Sets the [version](Service::VERSION).
    ///
    /// # Panics
    /// If it is 2³² − 1, which asks any server for its counters.
    #[must_use]
    pub fn version(self, version: u32) -> Self {
        assert!(version != STATS_VERSION, "this version asks any server for its counters");
        Self { version, ..self }
    }

    /// Sets the [fingerprint of the types](Service::SCHEMA).
    #[must_use]
    pub fn schema(self, schema: u64) -> Self {
        Self { schema, ..self }
    }

    /// Sets whether [a request may run twice](Service::IDEMPOTENT).
    #[must_use]
    pub fn idempotent(self, is_idempotent: bool) -> Self {
        Self { is_idempotent, ..self }
    }

    /// Returns whether a request that failed so may be sent to the provider's successor.
    pub(crate) fn may_repeat(&self, error: &CallError) -> bool {
        // After a protocol violation, do not retry with this provider or its successor.
        let is_violation = error.kind() == ErrorKind::ProtocolViolation;
        !is_violation && (error.executed() == Executed::No || self.is_idempotent)
    }

    /// Returns the service's name.
    pub fn service(&self) -> ServiceName {
        self.service
    }
}

impl Service for Dynamic {
    const NAME: &'static str = "dynamic";
    type Request = Payload;
    type Response = Payload;
}

impl Event for Dynamic {
    const NAME: &'static str = "dynamic";
    type Message = Vec<u8>;
}

impl Snapshot for Dynamic {
    const NAME: &'static str = "dynamic";
    type Index = ();
    type Error = Infallible;

    fn validate(_: &[u8]) -> Result<(), Infallible> {
        Ok(())
    }
}
