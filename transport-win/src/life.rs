//! What the system notes of a peer's life by itself: nothing here. A wait has the peer's process in it instead.

use std::convert::Infallible;

use crate::region::OwnRegion;

/// What is known of a peer without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LifeState {
    /// It lives.
    Alive,
    /// It has ended.
    Died,
    /// Nothing, as always here.
    Unarmed,
}

/// What would tell peers that this thread died. There is none.
#[derive(Debug)]
pub struct LifeLock(Infallible);

/// Has `page` tell that the calling thread died, where that can be done: never here.
pub fn hold(page: &OwnRegion) -> Option<LifeLock> {
    let _ = page;
    None
}
