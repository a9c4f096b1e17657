//! The facade and the state machines under it, with real processes, on every system that has a transport.
//!
//! | module | holds |
//! | --- | --- |
//! | `conformance` | what any transport has to do, over the simulator |
//! | `processes` | a server and its clients in processes of their own: calls, errors, death |
//! | `handshake` | peers that break the handshake with bytes alone |
//! | `snapshots` | publishing, watching, caching |
//! | `calls` | what a caller sees: deadlines, cancelling, full lanes, stopping |
//! | `batches` | many requests in one message, many messages in flight |
//! | `resize` | lanes that grow and shrink, messages in memory of their own |
//! | `stats` | what both ends count, and that it is the same |
//! | `regressions` | one test for each bug that was found in use |
//!
//! `tests/linux` holds the rest: hostile peers that need descriptors, and what only a Linux kernel reports.
//!
//! A wait here is a wait for an event. Its limit is [`support::guard`], far away: a test that reaches it hangs. A
//! test sleeps only to show that nothing happens.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "all of this is tests: what cannot be fails them, and payloads are cut from counters"
)]

mod batches;
mod calls;
mod conformance;
mod events;
mod handshake;
mod processes;
mod regressions;
mod resize;
mod snapshots;
mod stats;
mod support;

/// What a child process does.
fn play(role: &str, parent: support::child::Parent) {
    match role.split_once(' ') {
        Some(("exact", seed)) => resize::serve_exactly(parent, seed.parse().unwrap()),
        _ => support::roles::play(role, parent),
    }
}
