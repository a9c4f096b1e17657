//! Calls, snapshots and events between the processes of one machine, over shared memory that only its owner can write: on
//! Linux, and on Windows within the limits in `docs/windows.md`.
//!
//! ```text
//!  a client                                          a provider
//! ┌───────────────┐   control socket, descriptors   ┌───────────────┐
//! │ page, lane ───┼────────────────────────────────►│ maps them     │
//! │ maps them     │◄────────────────────────────────┼─── page, lane │
//! │ parked        │◄──────────── doorbell ─────────►│ parked        │
//! │ SnapshotCache │◄────────────────────────────────┼─── board      │
//! │               │◄────────────────────────────────┼─── snapshot   │
//! └───────────────┘                                 └───────────────┘
//! ```
//!
//! A [`Service`] is a name and one kind of request. A provider serves it with a [`Server`]; a [`Client`]
//! finds it by its name in a [`RunDir`], opens a [`Session`] and calls. A [`Snapshot`] is a service whose
//! answer is memory: a [`Publisher`] publishes generations of it, a [`SnapshotCache`] maps the newest.
//!
//! | to | use |
//! | --- | --- |
//! | call a provider, even if it is absent, late or restarted | [`Client::call`] |
//! | check a provider without blocking | [`Client::refresh`] |
//! | wait for a provider that is not there yet | [`Client::wait_available`] |
//! | send what needs no answer | [`Session::post`] |
//! | keep many requests in flight | [`Session::submit`], [`Session::try_reply`], [`Session::wait_reply`] |
//! | send many requests from one call | [`Session::call_many`], [`Client::call_batch`] |
//! | keep many batches in flight | [`Session::submit_batch`], [`Session::try_batch`], [`Session::wait_batch`] |
//! | use a service that is known only at run time | [`Dynamic`], [`Contract`] |
//! | send bytes that are already encoded | [`Client::raw`], [`Session::raw`] |
//! | choose what happens when the lane is full | [`Backpressure`] |
//! | wait in an event loop | [`Session::arm`], [`Session::pollable`] |
//! | send bytes, few or many, from one call site | [`Payload`] |
//! | free the memory that large messages needed | [`Session::trim`] |
//! | list services and their providers | [`RunDir::endpoints`], [`probe`] |
//! | read metrics | [`Session::stats`], [`Server::stats`], [`StatsClient`] |
//! | stop a wait from another thread | [`Client::canceller`], [`Session::canceller`] |
//! | serve | [`ServerBuilder::serve`], [`ServerBuilder::serve_batches`], [`ServerBuilder::start`] |
//! | serve with futures (feature `tokio`) | `ServerBuilder::serve_async` |
//! | notice that the client no longer waits for the answer | [`Caller::is_abandoned`] |
//! | publish a snapshot for many readers | [`ServerBuilder::publish`], [`Publisher::publish_with`] |
//! | learn which clients violated the protocol, stalled or were refused | [`Server::incidents`] |
//! | read a snapshot | [`SnapshotCache::refresh`], [`SnapshotCache::refresh_within`], [`SnapshotCache::wait_for_change`] |
//! | publish every change to many readers | [`ServerBuilder::events`], [`EventPublisher::send`] |
//! | receive every change | [`Subscriber::next`], [`Subscriber::try_next`], [`Subscriber::pollable`] |
//! | do all of it in tasks of a runtime (feature `tokio`) | `AsyncClient`, `AsyncSnapshotCache`, `AsyncSubscriber` |
//! | make a message of a struct (feature `derive`) | `#[derive(Message)]`, [`Layout`] |
//!
//! ```
//! use bellwire::{Client, RunDir, Server, Service};
//!
//! struct Increment;
//! impl Service for Increment {
//!     const NAME: &'static str = "increment";
//!     type Request = u64;
//!     type Response = u64;
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let run_dir = RunDir::new(dir.path());
//! let mut builder = Server::builder(&run_dir);
//! builder.serve::<Increment>(|_, number| Ok(number + 1))?;
//! let server = builder.start()?;
//!
//! let mut client = Client::<Increment>::new(&run_dir);
//! assert_eq!(client.call(&41)?, 42);
//! # server.stop();
//! # Ok(())
//! # }
//! ```
//!
//! Every error reports [who has to act](CallError::fault), one of a call also [whether the handler may have
//! run](CallError::executed).
//!
//! `README.md` lists when not to use Bellwire and its limits, `docs/architecture.md` the structure of the code,
//! `docs/wire.md` the wire format, `docs/threat-model.md` the threat model.
#![forbid(unsafe_code)]

// The examples of these pages run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
#[cfg(doctest)]
#[doc = include_str!("../docs/wire.md")]
struct Wire;
#[cfg(doctest)]
#[doc = include_str!("../docs/services.md")]
struct Services;

#[cfg(feature = "tokio")]
pub mod asynchronous;
mod backoff;
mod board;
mod broadcast;
mod cache;
mod client;
mod config;
mod connect;
mod contract;
mod control;
mod error;
mod event;
mod learned;
mod lookup;
mod message;
#[cfg(feature = "netipc")]
pub mod netipc;
mod payload;
mod probe;
mod publication;
mod publisher;
mod reason;
mod report;
mod run_dir;
mod server;
mod service;
mod session;
mod stats;
mod subscriber;
mod token;
mod trace;
mod transport;

pub use bellwire_core::call::Ticket;
pub use bellwire_core::lane::LaneStats;
pub use bellwire_core::resize::{Resource, Shortage};
pub use bellwire_core::wire::{CloseReason, Doorbell, Latency, RefuseCode, Status, Versions};
pub use bellwire_core::{
    Backend, BackendStatus, ErrorKind, Executed, Fault, Geometry, LimitOwner, Limits, NameError,
    PeerFault, ServiceName, SpinPolicy,
};
pub use bellwire_layout::{self as layout, Layout, Malformed, schema, schema_of};

#[cfg(feature = "tokio")]
pub use asynchronous::{
    AsyncClient, AsyncSession, AsyncSnapshotCache, AsyncSubscriber, RawAsyncSession,
};
/// Makes a struct, or an enum without fields, a message of fixed layout.
///
/// A field is a number, a bool, an array, an `Option`, a tuple, a `String`, a `Vec`, or another such type. An enum has its
/// number in `#[repr(u8)]`, `u16`, `u32`, `u64` or one of the signed ones.
///
/// ```
/// #[derive(bellwire::Message)]
/// struct Disk {
///     reads: u64,
///     state: State,
///     name: String,
/// }
///
/// #[derive(bellwire::Message)]
/// #[repr(u8)]
/// enum State {
///     Idle,
///     Busy,
/// }
///
/// # use bellwire::Message;
/// let mut bytes = Vec::new();
/// Disk { reads: 7, state: State::Busy, name: "sda".into() }.encode(&mut bytes);
/// assert_eq!(bytes, [&7_u64.to_le_bytes()[..], &[1, 0, 0, 0], &[3, 0, 0, 0], b"sda"].concat());
/// ```
///
/// Recursive types are rejected, since a peer could send a message of any depth:
///
/// ```compile_fail
/// #[derive(bellwire::Message)]
/// struct Tree {
///     children: Vec<Tree>,
/// }
/// ```
///
/// Lists of values without bytes are rejected, since a peer could announce any number of them:
///
/// ```compile_fail
/// #[derive(bellwire::Message)]
/// struct Nothings {
///     nothings: Vec<()>,
/// }
/// # <Nothings as bellwire::Message>::decode(&[]);
/// ```
#[cfg(feature = "derive")]
pub use bellwire_derive::Message;
/// Makes a unit struct a service. Its fingerprint is that of its types, if they have one.
///
/// ```
/// #[derive(bellwire::Service)]
/// #[service(name = "increment", request = u64, response = u64, idempotent)]
/// struct Increment;
///
/// # use bellwire::Service;
/// assert_eq!(Increment::NAME, "increment");
/// assert_eq!(Increment::VERSION, 1);
/// assert_eq!(Increment::SCHEMA, bellwire::schema("u64 -> u64"));
/// assert!(Increment::IDEMPOTENT);
/// ```
///
/// | key | is |
/// | --- | --- |
/// | `name = "…"` | `Service::NAME` |
/// | `request = T`, `response = T` | the types; without one, `()` |
/// | `version = 2` | `Service::VERSION`; without it, 1 |
/// | `schema = …` | `Service::SCHEMA`, in place of that of the types |
/// | `idempotent` | `Service::IDEMPOTENT` |
#[cfg(feature = "derive")]
pub use bellwire_derive::Service;
pub use cache::{CurrentSnapshot, RefreshError, Refreshed, SnapshotCache};
pub use client::{Canceller, Client, ProviderState, RawClient};
pub use config::{Backoff, ClientConfig, LaneConfig, ServerConfig};
pub use contract::{Contract, Dynamic};
pub use error::{CallError, ConnectError, PublishError, ServeError};
pub use event::{Event, EventPublisher};
pub use lookup::Lookup;
pub use message::Message;
pub use payload::Payload;
pub use probe::{Probe, SessionTerms, probe};
pub use publisher::{Publisher, Snapshot};
pub use report::{ServerReport, StatsClient};
pub use run_dir::RunDir;
pub use server::{
    BatchAnswers, Caller, Incident, IncidentCause, IncidentCounts, IncidentKind, Server,
    ServerBuilder, UserIncidents,
};
pub use service::{HandlerError, Service};
pub use session::{Answered, Backpressure, BatchReplies, RawSession, Session, WithBackpressure};
pub use stats::{ServerStats, ServiceStats, SessionStats};
pub use subscriber::{Delivery, StartAt, SubscribeError, Subscriber};
pub use token::{Token, TokenError};
pub use transport::admission::Admission;
pub use transport::endpoint::{EndpointInfo, ListError, Liveness};
pub use transport::peer::{Group, User};
