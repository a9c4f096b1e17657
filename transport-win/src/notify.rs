//! An endpoint's name goes with its pipe on Windows: there is no file to lose, and nothing to notice.

use std::os::windows::io::{AsHandle, BorrowedHandle};
use std::path::Path;

/// Tells that endpoints' files are gone. There is none.
#[derive(Debug)]
pub enum Notify {}

impl Notify {
    /// `None`: nothing can happen.
    pub const fn watch(_: &Path) -> Option<Self> {
        None
    }

    /// Takes note of what has happened.
    pub const fn take(&self) {
        match *self {}
    }
}

impl AsHandle for Notify {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        match *self {}
    }
}
