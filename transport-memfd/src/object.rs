//! Descriptors, under the names that all transports use for objects to pass and to wait for.

use std::os::fd::AsFd;

pub use std::os::fd::{BorrowedFd as Borrowed, OwnedFd as Owned};

/// An object that can be passed or waited for.
pub trait AsObject {
    /// Returns the descriptor.
    fn as_object(&self) -> Borrowed<'_>;
}

impl<T: AsFd + ?Sized> AsObject for T {
    fn as_object(&self) -> Borrowed<'_> {
        self.as_fd()
    }
}
