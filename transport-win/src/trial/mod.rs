//! What a trial does to a process, and what it asks of it. Windows stops no process by any documented call: nothing of it
//! is possible here.

pub mod plain;
mod usage;

use std::io;
use std::process::{Command, ExitStatus};

pub use usage::{Usage, usage};

/// What a process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Descriptors, or handles.
    pub descriptors: u64,
    /// Threads.
    pub threads: u64,
    /// Different sections that are mapped.
    pub memfds: u64,
    /// Resident memory in bytes, shared memory included.
    pub rss: u64,
}

/// Whether processes can be stopped and looked at here.
pub const IS_POSSIBLE: bool = false;

/// No program.
pub const PROGRAM: &str = "";

/// No program takes the place of another here: always [`io::ErrorKind::Unsupported`].
pub fn exec(_: &mut Command) -> io::Error {
    io::ErrorKind::Unsupported.into()
}

/// Stops all threads of a process.
///
/// # Errors
/// Always: [`io::ErrorKind::Unsupported`].
pub fn stop(_: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Lets a stopped process go on.
///
/// # Errors
/// Always: [`io::ErrorKind::Unsupported`].
pub fn go_on(_: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Whether every thread of the process is stopped.
pub fn is_stopped(_: u32) -> bool {
    false
}

/// Whether somebody killed it, which does not show here.
pub fn was_killed(_: ExitStatus) -> bool {
    false
}

/// Keeps interruptions from the processes that this one starts.
pub fn keep_signals_off(_: &mut Command) {}

/// Lets this process end with the one that started it.
pub fn end_with_parent() {}

/// What the process holds now.
///
/// # Errors
/// Always: [`io::ErrorKind::Unsupported`].
pub fn holdings(_: u32) -> io::Result<Holdings> {
    Err(io::ErrorKind::Unsupported.into())
}
