//! Progress for a waiting user.

use std::io::{IsTerminal, Write};

/// A progress line, if standard error is a terminal.
pub(crate) struct Progress {
    is_seen: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { is_seen: std::io::stderr().is_terminal() }
    }

    /// Shows another line.
    pub(crate) fn say(&self, text: &str) {
        if self.is_seen {
            let mut stderr = std::io::stderr();
            // Errors are ignored: progress is optional.
            let _ = write!(stderr, "\r\x1b[K{text}");
            let _ = stderr.flush();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.say("");
    }
}
