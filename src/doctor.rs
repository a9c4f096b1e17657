//! Checks what this machine provides of what Bellwire needs (feature `doctor`).
//!
//! The checks are those of the platform's transport. `bellwire doctor` prints them.
//!
//! ```no_run
//! use bellwire::doctor;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A program that ends by itself, to see how the end of a process shows.
//! let mut ends = std::process::Command::new("cargo");
//! ends.arg("--version");
//! let run_dir = bellwire::RunDir::from_environment();
//! for check in doctor::checks(run_dir.path(), &mut ends) {
//!     println!("{}: {}, {}", check.name, check.outcome.as_str(), check.detail);
//! }
//! # Ok(())
//! # }
//! ```

pub use crate::transport::doctor::{
    account, checks, group_named, shared_memory, system, user_named,
};
pub use bellwire_core::doctor::{Check, Finding, Group, Outcome, Tried};
