//! On Windows an endpoint's name ends with its pipe: no file can be lost, so there is nothing to notice.

use std::os::windows::io::{AsHandle, BorrowedHandle};
use std::path::Path;

/// Reports that endpoint files are gone. Windows has no such files.
#[derive(Debug)]
pub enum Notify {}

impl Notify {
    /// Returns `None`: nothing can happen.
    pub const fn watch(_: &Path) -> Option<Self> {
        None
    }

    /// Consumes the events.
    pub const fn take(&self, _: bool) {
        match *self {}
    }
}

impl AsHandle for Notify {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        match *self {}
    }
}
