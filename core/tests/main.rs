//! Tests of the core through its public face: over the simulator, and over memory that lies.
#![cfg(not(loom))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod call;
mod codec;
mod drive;
mod handshake;
mod hostile;
mod liar;
mod ring;
mod serve;
mod sim;
