//! One descriptor kept in reserve for the moment when none are left.
//!
//! A peer continues its lane in a memfd that it passes. A process at its limit of open files would lose that descriptor and
//! could not go on; releasing the reserve frees a slot for long enough to map the memory.

use std::os::fd::OwnedFd;
use std::sync::Mutex;

use bellwire_shm::lock;
use rustix::event::{EventfdFlags, eventfd};

static SPARE: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// Opens a spare descriptor if there is none yet and one is available.
pub(crate) fn keep() {
    let mut spare = lock(&SPARE);
    if spare.is_none() {
        *spare = eventfd(0, EventfdFlags::CLOEXEC).ok();
    }
}

/// Releases the spare descriptor, which frees a slot unless another thread takes it first. Returns `false` if there was none.
pub(crate) fn release() -> bool {
    lock(&SPARE).take().is_some()
}
