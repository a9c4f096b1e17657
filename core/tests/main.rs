//! Tests of the core through its public API: over the simulator, and over hostile memory.
#![cfg(not(loom))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod batch;
mod broadcast;
mod call;
mod codec;
mod control;
mod counters;
mod death;
mod drive;
mod epochs;
mod handshake;
mod hostile;
mod limits;
mod mailbox;
mod pair;
mod parts;
mod resize;
mod ring;
mod sample;
mod serve;
mod shortage;
mod sim;
mod stall;
mod stats;
mod threads;
