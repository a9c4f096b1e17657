//! What only a Linux kernel can do to the command.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "all of this is tests; clippy exempts only the functions that are marked so"
)]

mod admit;
mod bench;
mod export;
mod lookup;
mod sandbox;
mod stat;
#[allow(dead_code, reason = "the tests of all systems use the rest")]
#[path = "../cli/support.rs"]
mod support;
mod top;
