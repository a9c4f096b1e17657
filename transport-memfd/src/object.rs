//! Descriptors, by the names that every transport has for what it passes and waits for.

use std::os::fd::AsFd;

pub use std::os::fd::{BorrowedFd as Borrowed, OwnedFd as Owned};

/// Something that can be passed, or waited for.
pub trait AsObject {
    /// The descriptor.
    fn as_object(&self) -> Borrowed<'_>;
}

impl<T: AsFd + ?Sized> AsObject for T {
    fn as_object(&self) -> Borrowed<'_> {
        self.as_fd()
    }
}
