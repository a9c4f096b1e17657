//! Starts, stops and inspects processes for the command and the harnesses.

#[cfg(target_os = "linux")]
#[path = "linux/mod.rs"]
mod system;
#[cfg(windows)]
#[path = "windows/mod.rs"]
mod system;

pub mod scratch;

pub use system::*;
