//! Handles, under the names that all transports use for objects to pass and to wait for.

use std::os::windows::io::AsHandle;

pub use std::os::windows::io::{BorrowedHandle as Borrowed, OwnedHandle as Owned};

/// An object that can be passed or waited for.
pub trait AsObject {
    /// Returns the handle.
    fn as_object(&self) -> Borrowed<'_>;
}

impl<T: AsHandle> AsObject for T {
    fn as_object(&self) -> Borrowed<'_> {
        self.as_handle()
    }
}
