//! The baseline with which Linux benchmarks compare the reactor. Windows has no such socket.

use std::io;
use std::path::Path;

/// The longest message.
pub const MAX_MESSAGE: usize = 4096;

/// No server.
#[derive(Debug)]
pub enum Server {}

/// No connection.
#[derive(Debug)]
pub enum Client {}

impl Server {
    /// Listens at a path.
    ///
    /// # Errors
    /// Always: [`io::ErrorKind::Unsupported`].
    pub fn bind(_: &Path) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Serves until `stops`.
    pub fn serve(&mut self, _: impl Fn() -> bool) -> io::Result<()> {
        match *self {}
    }
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// Always: [`io::ErrorKind::Unsupported`].
    pub fn connect(_: &Path) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Calls.
    pub fn call(&mut self, _: &[u8], _: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }
}
