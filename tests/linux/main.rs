//! What only a Linux kernel shows: hostile peers with descriptors of all kinds, what a session costs, what happens at
//! the limits of a process. `tests/main.rs` holds what every system has.
//!
//! | module | holds |
//! | --- | --- |
//! | `conformance` | what any transport has to do, over memfds |
//! | `handshake` | hostile clients and hostile servers before a session is open |
//! | `hostile` | hostile peers on an open session |
//! | `asynchronous` | tasks of a tokio runtime on one session (feature `tokio`) |
//! | `backends` | the same server with epoll and with io_uring |
//! | `admission` | clients that are not admitted, names that are not owned, memory that no peer can write |
//! | `limits` | shortages and interruptions of a process |
//! | `errors` | what a program finds among the sources of an error |
//! | `observe` | sessions seen from outside |
//! | `netipc` | clients that speak netipc, honest and hostile (feature `netipc`) |
//! | `misbehaving` | tables of what no correct peer sends, each row a test by its name |
//! | `snapshots` | seals on what is published |
//! | `events` | subscribers in event loops, and publishers that are killed or misbehave |
//! | `calls` | retries, event loops, and a provider that never answers |
//! | `resize` | hostile lanes and attachments, memory that is released, memory that cannot be had |
//! | `departed` | requests of a client that has departed |
//! | `processes` | what a session costs |
//! | `scale` | many sessions: what they cost together, whether one starves another, a thousand at a provider's restart |
#![allow(
    clippy::incompatible_msrv,
    reason = "only the library promises to build with an old compiler"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "all of this is tests: what cannot be fails them, and payloads are cut from counters"
)]

mod admission;
#[cfg(feature = "tokio")]
mod asynchronous;
mod backends;
mod calls;
mod conformance;
mod departed;
mod errors;
mod events;
mod handshake;
mod hostile;
mod limits;
mod misbehaving;
#[cfg(feature = "netipc")]
mod netipc;
mod observe;
mod processes;
mod resize;
mod scale;
mod snapshots;
mod support;

use support::roles::play;
