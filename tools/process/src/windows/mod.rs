//! Windows has no documented call for most of it.

use std::io;
use std::process::Command;
use std::time::Duration;

use crate::{CommandOutput, ResourceUsage};

/// Whether processes can be inspected here.
pub const IS_POSSIBLE: bool = false;

/// Empty: no program is started.
pub const PROGRAM: &str = "";

/// Replaces this program by another one, which is not possible on Windows: always [`io::ErrorKind::Unsupported`].
pub fn exec(_: &mut Command) -> io::Error {
    io::ErrorKind::Unsupported.into()
}

macro_rules! unsupported {
    ($($name:ident($($argument:ty),*) -> $returns:ty;)*) => {$(
        /// Not possible on Windows.
        ///
        /// # Errors
        /// Always: [`io::ErrorKind::Unsupported`].
        pub fn $name($(_: $argument),*) -> io::Result<$returns> {
            Err(io::ErrorKind::Unsupported.into())
        }
    )*};
}

unsupported! {
    resource_usage(u32) -> ResourceUsage;
    run_within(&mut Command, Duration, usize, &Interrupt) -> CommandOutput;
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

/// Shields the processes that this one starts from interrupts.
pub fn ignore_terminal_signals(_: &mut Command) {}

/// Makes this process end with its parent.
pub fn end_with_parent() {}
