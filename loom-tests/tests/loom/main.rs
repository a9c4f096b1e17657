//! Exhaustive interleavings, each within the bound that the test states. See the crate's documentation.
#![cfg(loom)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod broadcast;
mod calls;
mod cancel;
mod data;
mod resize;
mod ring;
mod shutdown;
mod space;
