//! Waiting for a handle in a tokio runtime, which is not supported.

use std::convert::Infallible;
use std::io;
use std::task::{Context, Poll};

use crate::object::Borrowed;

/// A handle that a runtime watches; cannot exist.
#[derive(Debug)]
pub struct Ready(Infallible);

impl Ready {
    /// Registers a handle with the runtime of this task.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`].
    pub fn watch(_: Borrowed<'_>) -> io::Result<Self> {
        let why = "tokio waits for no handle of an event: use Session::pollable, or a thread";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    /// Becomes ready once after the handle was signalled.
    ///
    /// # Errors
    /// None: there is no value of this type.
    pub fn poll_rung(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}
