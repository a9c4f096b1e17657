//! The transport against a real kernel, one module for each of its files.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "all of this is tests; clippy exempts only the functions that are marked so"
)]

mod child;
mod doorbell;
mod endpoint;
mod fuse;
mod life;
mod link;
mod links;
mod pass;
mod platform;
mod poll;
mod reaper;
mod region;
mod snapshot;
mod support;
