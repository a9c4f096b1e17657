//! Checks whether this machine has what Bellwire's transport needs, as `bellwire doctor` does.
//!
//! It tries each feature of the kernel instead of guessing from a version number, looks for limits that are too low, and
//! changes nothing.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A program that ends by itself, to see how the end of a process shows.
//! let mut ends = std::process::Command::new("cargo");
//! ends.arg("--version");
//! for check in bellwire_doctor::checks("/run/bellwire".as_ref(), &mut ends) {
//!     println!("{}: {}, {}", check.name, check.outcome.as_str(), check.detail);
//! }
//! # Ok(())
//! # }
//! ```

mod check;
#[cfg(not(windows))]
mod linux;
#[cfg(windows)]
mod windows;

pub use check::{Check, CheckResult, Finding, Group, Outcome, chain};
#[cfg(not(windows))]
pub use linux::{account, checks, group_named, shared_memory, system, user_named};
#[cfg(windows)]
pub use windows::{account, checks, group_named, shared_memory, system, user_named};
