//! The fuzz targets: one function for each, which takes the input and returns, or panics.
//!
//! Each takes arbitrary bytes, handles them as this library handles a peer's bytes, and panics if a guarantee is broken.
//! `cargo xtask fuzz` runs them under libFuzzer, and `tests/replay.rs` runs the seeds through them on any toolchain.
//! `fuzz/README.md` says how.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a target reports a finding by a panic"
)]

pub mod batch;
pub mod broadcast;
#[cfg(feature = "facade")]
pub mod codec;
pub mod consumer;
pub mod control;
pub mod handshake;
pub mod mailbox;
#[cfg(feature = "facade")]
pub mod message;
#[cfg(feature = "facade")]
pub mod netipc;
pub mod observe;
pub mod page;
pub mod record;
#[cfg(feature = "facade")]
pub mod report;
mod rules;
mod script;
#[cfg(feature = "facade")]
pub mod seeds;
#[cfg(feature = "facade")]
pub mod snapshot;

/// A target: its name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets, sorted by name.
pub const TARGETS: &[Target] = &[
    ("batch", batch::run),
    ("broadcast", broadcast::run),
    #[cfg(feature = "facade")]
    ("codec", codec::run),
    ("consumer", consumer::run),
    ("control", control::run),
    ("handshake", handshake::run),
    ("mailbox", mailbox::run),
    #[cfg(feature = "facade")]
    ("message", message::run),
    #[cfg(feature = "facade")]
    ("netipc", netipc::run),
    ("observe", observe::run),
    ("page", page::run),
    ("record", record::run),
    #[cfg(feature = "facade")]
    ("report", report::run),
    #[cfg(feature = "facade")]
    ("snapshot", snapshot::run),
];

/// Defines the program of a target: a libFuzzer target if built for fuzzing, or else a program that runs the given files.
#[macro_export]
macro_rules! target {
    ($run:path) => {
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|input: &[u8]| $run(input));

        #[cfg(not(fuzzing))]
        fn main() -> std::io::Result<()> {
            for file in std::env::args_os().skip(1) {
                $run(&std::fs::read(file)?);
            }
            Ok(())
        }
    };
}
