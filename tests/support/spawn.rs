//! Starts processes.

use std::io::ErrorKind;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

/// The exit code of Wine when a process that it started ended before its first instruction: one in some thousands on
/// a busy machine. Windows itself does not do this, and Linux has no such code.
const NOT_STARTED: i32 = 1359;

/// Starts `command`, which has to work.
#[track_caller]
pub(crate) fn spawn(command: &mut Command) -> Child {
    let (start, mut not_started) = (Instant::now(), 0);
    let is_busy = || start.elapsed() < Duration::from_secs(10);
    loop {
        match command.spawn() {
            Err(error) if error.raw_os_error() == Some(NOT_STARTED) && not_started < 3 => {
                not_started += 1;
            }
            // A process that another test forked meanwhile has the program that this one wrote open until it executes its own.
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && is_busy() => {
                thread::yield_now();
            }
            child => return child.unwrap(),
        }
    }
}
