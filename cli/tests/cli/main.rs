//! The command as its users meet it: the real binary, in processes of its own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "all of this is tests; clippy exempts only the functions that are marked so"
)]

mod call;
mod cgroups;
mod demo;
mod doctor;
mod help;
mod lookup;
mod ls;
mod ping;
mod programs;
mod provide;
mod stat;
mod support;
mod watch;
