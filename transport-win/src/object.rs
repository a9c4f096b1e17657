//! Handles, by the names that every transport has for what it passes and waits for.

use std::os::windows::io::AsHandle;

pub use std::os::windows::io::{BorrowedHandle as Borrowed, OwnedHandle as Owned};

/// Something that can be passed, or waited for.
pub trait AsObject {
    /// The handle.
    fn as_object(&self) -> Borrowed<'_>;
}

impl<T: AsHandle> AsObject for T {
    fn as_object(&self) -> Borrowed<'_> {
        self.as_handle()
    }
}
