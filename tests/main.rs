//! The facade and the machines under it, against a real kernel, real processes and hostile peers.
//!
//! | module | holds |
//! | --- | --- |
//! | `conformance` | what any transport has to do, over the simulator and over memfds |
//! | `processes` | a server and its clients in processes of their own: calls, death, what a session costs |
//! | `handshake` | hostile clients and hostile servers before a session is open |
//! | `hostile` | hostile peers on an open session |
//! | `admission` | who is not let in, who does not own a name, and what nobody can write |
//! | `limits` | what a process lacks, and what interrupts it |
//! | `lies` | tables of bad inputs, each by name |
//! | `snapshots` | publishing, watching, caching |
//! | `calls` | what a caller sees: deadlines, cancelling, retries, stopping, event loops |
//! | `resize` | lanes that grow and shrink, messages in memfds of their own, and what happens when they cannot |
//! | `regressions` | one test for each fault that was found in use |
//!
//! A wait here is a wait for an event. What limits it is [`support::guard`], far away: a test that meets it
//! hangs. Nothing sleeps but where a test has to show that nothing happens.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "all of this is tests: what cannot be fails them, and payloads are cut from counters"
)]

mod admission;
mod calls;
mod conformance;
mod handshake;
mod hostile;
mod lies;
mod limits;
mod processes;
mod regressions;
mod resize;
mod snapshots;
mod support;
