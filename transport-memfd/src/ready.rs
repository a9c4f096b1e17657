#![allow(unsafe_code, reason = "who registers a descriptor vouches that it stays the same one")]
//! Waiting for a descriptor in a tokio runtime.

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use crate::object::Borrowed;

/// A descriptor that a runtime watches, edge-triggered. It holds a duplicate, which costs one descriptor.
#[derive(Debug)]
pub struct Ready(AsyncFd<OwnedFd>);

impl Ready {
    /// Registers the descriptor for reading with the runtime of this task.
    ///
    /// # Errors
    /// `EMFILE` at the limit of open files; others when this is not a task of a runtime.
    ///
    /// # Panics
    /// When the runtime was built without I/O.
    pub fn watch(object: Borrowed<'_>) -> io::Result<Self> {
        Handle::try_current().map_err(io::Error::other)?;
        let fd = object.try_clone_to_owned()?;
        // SAFETY: an `OwnedFd` names the same open descriptor for as long as it lives, and nothing takes it out of the
        // `AsyncFd`, which ends the registration before it drops it.
        let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        Ok(Self(watched?))
    }

    /// Becomes ready once after the descriptor became readable. Check for work after this call, not before.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub fn poll_rung(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.0.poll_read_ready(context))?.clear_ready();
        Poll::Ready(Ok(()))
    }
}
