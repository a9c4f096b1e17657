//! Windows has no documented call that stops a process, so none of it is
//! possible here.

pub mod plain;
mod usage;

use std::io;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use crate::{Holdings, Ran};
pub use usage::usage;

/// Whether processes can be stopped and inspected here.
pub const IS_POSSIBLE: bool = false;

/// No program.
pub const PROGRAM: &str = "";

/// Replaces this program by another one, which is not possible on Windows: always [`io::ErrorKind::Unsupported`].
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

/// Resumes a stopped process.
///
/// # Errors
/// Always: [`io::ErrorKind::Unsupported`].
pub fn go_on(_: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns whether every thread of the process is stopped.
pub fn is_stopped(_: u32) -> bool {
    false
}

/// Returns whether the process was killed, which Windows does not show.
pub fn was_killed(_: ExitStatus) -> bool {
    false
}

/// Ends commands with a time limit, which cannot be run on Windows.
#[derive(Debug)]
pub struct Interrupt;

impl Interrupt {
    /// Creates one.
    ///
    /// # Errors
    /// None.
    pub fn new() -> io::Result<Self> {
        Ok(Self)
    }

    /// Does nothing.
    pub fn end(&self) {}
}

/// Runs a command with a time limit.
///
/// # Errors
/// Always: [`io::ErrorKind::Unsupported`].
pub fn run_within(_: &mut Command, _: Duration, _: usize, _: &Interrupt) -> io::Result<Ran> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Shields the processes that this one starts from interrupts.
pub fn keep_signals_off(_: &mut Command) {}

/// Makes this process end with its parent.
pub fn end_with_parent() {}

/// Returns the resources that the process holds now.
///
/// # Errors
/// Always: [`io::ErrorKind::Unsupported`].
pub fn holdings(_: u32) -> io::Result<Holdings> {
    Err(io::ErrorKind::Unsupported.into())
}
