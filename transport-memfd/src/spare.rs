//! One descriptor kept for the moment when there are none left.
//!
//! A peer's lane goes on in a memfd that it passes. A process at its limit of open files would lose the descriptor
//! and could not go on; with this one set free there is a slot for as long as it takes to map the memory.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

static SPARE: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// Keeps a spare descriptor, if there is none and one can be had.
pub(crate) fn keep() {
    let mut spare = lock();
    if spare.is_none() {
        *spare = eventfd(0, EventfdFlags::CLOEXEC).ok();
    }
}

/// Sets the spare descriptor free: there is a slot now, unless another thread is faster. False when there was none.
pub(crate) fn release() -> bool {
    lock().take().is_some()
}

/// Nothing that holds this lock can panic halfway through a change.
fn lock() -> MutexGuard<'static, Option<OwnedFd>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}
