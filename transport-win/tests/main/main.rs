//! The transport against a real system, one module for each of its files.
#![cfg(windows)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "all of this is tests; clippy exempts only the functions that are marked so"
)]

mod child;
mod conformance;
mod death;
mod doorbell;
mod endpoint;
mod exchange;
mod handles;
mod hostile;
mod link;
mod pass;
mod peer;
mod platform;
mod poll;
mod reaper;
mod region;
mod resize;
mod session;
mod snapshot;
mod support;
