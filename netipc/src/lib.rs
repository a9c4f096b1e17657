//! netipc, the protocol of Netdata's plugin-ipc, as its public documents specify it: enough of it that a provider of Bellwire
//! serves the plugins that still speak it, and that a consumer reads a provider that still does.
//!
//! | module | holds |
//! | --- | --- |
//! | [`handshake`] | what a client proposes, and what the server decides |
//! | [`wire`] | headers, chunks, batches |
//! | [`server`] | one client's session, without I/O: datagrams in, datagrams out; what all clients of a service share |
//! | [`method`] | how a service's snapshots and calls are translated |
//! | [`snapshot`], [`lookup`] | the payloads of the three services |
//! | [`Client`] | a reader (feature `client`) |
//!
//! Only the baseline profile is spoken, `SOCK_SEQPACKET`; a client that prefers shared memory gets it, too, since a server
//! decides. `docs/migrating-from-netipc.md` says what a translation keeps. Numbers are in the machine's byte order.
#![forbid(unsafe_code)]

mod bytes;
#[cfg(feature = "client")]
mod client;
pub mod handshake;
pub mod lookup;
pub mod method;
pub mod server;
pub mod snapshot;
mod token;
pub mod wire;

#[cfg(test)]
mod tests;

#[cfg(feature = "client")]
pub use client::{Client, ClientConfig, ClientError};
pub use token::Token;
pub use wire::{Malformed, Status, Violation};
