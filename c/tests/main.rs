#![allow(clippy::unwrap_used, clippy::panic, reason = "what fails has to fail the test")]
//! The header is what the crate says, and C and C++ programs work with the library.

mod header;
mod kill;
mod programs;
mod users;
mod wire;
