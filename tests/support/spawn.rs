//! Starts processes.

use std::process::{Child, Command};

/// The exit code of Wine when a process that it started ended before its first instruction: one in some thousands on
/// a busy machine. Windows itself does not do this, and Linux has no such code.
const NOT_STARTED: i32 = 1359;

/// Starts `command`, which has to work.
#[track_caller]
pub(crate) fn spawn(command: &mut Command) -> Child {
    let mut child = command.spawn();
    for _ in 0..3 {
        let not_started = |error: &std::io::Error| error.raw_os_error() == Some(NOT_STARTED);
        if child.as_ref().is_err_and(not_started) {
            child = command.spawn();
        }
    }
    child.unwrap()
}
