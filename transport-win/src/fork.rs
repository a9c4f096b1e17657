//! Windows has no fork: an object works as long as its process lives.

/// The process in which an object was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerProcess(());

impl OwnerProcess {
    /// Returns this process.
    pub const fn current() -> Self {
        Self(())
    }

    /// Returns whether this still is that process: always true.
    pub const fn is_owner_process(self) -> bool {
        true
    }
}
