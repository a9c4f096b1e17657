//! Windows has no documented call that stops a process, so none of it is
//! possible here.

use std::io;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use crate::{Holdings, Ran};

/// Whether processes can be stopped and inspected here.
pub const IS_POSSIBLE: bool = false;

/// No program.
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
    stop(u32) -> ();
    go_on(u32) -> ();
    holdings(u32) -> Holdings;
    run_within(&mut Command, Duration, usize, &Interrupt) -> Ran;
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

/// Shields the processes that this one starts from interrupts.
pub fn keep_signals_off(_: &mut Command) {}

/// Makes this process end with its parent.
pub fn end_with_parent() {}
