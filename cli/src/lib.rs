//! What the command and the harnesses share: exit codes and failures, output for people and programs, and how a long command
//! is ended.
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    clippy::missing_errors_doc,
    clippy::must_use_candidate,
    reason = "between programs of this repository"
)]

pub mod exit;
pub mod out;
pub mod stop;
