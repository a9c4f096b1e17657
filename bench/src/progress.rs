//! What a person sees who waits.

use std::io::{IsTerminal, Write};

/// A line that changes, where people look at standard error.
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
            // Who does not see it misses nothing.
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
