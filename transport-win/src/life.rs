//! What the system records about a peer's life: nothing on Windows. A wait includes the peer's process handle instead.

use std::convert::Infallible;

use crate::region::OwnRegion;

/// What is known about a peer without a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LifeState {
    /// It lives.
    Alive,
    /// It has ended.
    Died,
    /// Unknown, as always on Windows.
    Unarmed,
}

/// An object that reports this thread's death to peers. It does not exist on Windows.
#[derive(Debug)]
pub struct LifeLock(Infallible);

/// Makes `page` report the calling thread's death where possible: never on Windows.
pub fn hold(page: &OwnRegion) -> Option<LifeLock> {
    let _ = page;
    None
}
