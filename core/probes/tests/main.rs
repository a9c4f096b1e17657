//! The probes as a linker left them, and as a kernel finds them.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod attach;
mod built;
mod elf;
mod notes;
mod perf;
