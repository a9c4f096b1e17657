//! Ratios of the hot paths to the machine's own cost, for `ci/budget`: `cargo bench -- [gate [NAME]]`.
//!
//! Each other end is a real process, pinned to the second processor. `bellwire bench` measures everything else.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    missing_docs,
    reason = "a bench that cannot go on says so by panicking"
)]

mod gate;
mod provider;

use std::process::ExitCode;

use bellwire_floor as floor;

fn main() -> ExitCode {
    if let Some(code) = floor::peer_main(&[(provider::ROLE, provider::serve)]) {
        return code;
    }
    let cpus = floor::Cpus::pick().expect("no processor to pin to");
    cpus.pin_client().expect("cannot pin to a processor");
    // cargo adds an option of its own.
    let name = std::env::args().skip(1).find(|word| !word.starts_with('-') && word != "gate");
    gate::run(cpus, name.as_deref());
    ExitCode::SUCCESS
}
