//! What only a Linux kernel can do to the command.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "all of this is tests; clippy exempts only the functions that are marked so"
)]

mod admit;
mod export;
mod fallbacks;
mod lookup;
mod machine;
mod names;
mod netipc;
#[allow(
    dead_code,
    clippy::cast_possible_truncation,
    reason = "the tests of the library use the rest; what is cut is short"
)]
#[path = "../../../tests/support/netipc_peer.rs"]
mod netipc_peer;
mod sandbox;
mod stat;
#[allow(dead_code, reason = "the tests of all systems use the rest")]
#[path = "../cli/support.rs"]
mod support;
mod top;
