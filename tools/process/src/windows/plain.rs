//! The baseline with which Linux benchmarks compare the reactor. Windows has no such socket.

use std::io;
use std::path::Path;

/// The longest message.
pub const MAX_MESSAGE: usize = 4096;

/// No server.
#[derive(Debug)]
pub struct Server(());

/// No connection.
#[derive(Debug)]
pub struct Client(());

impl Server {
    /// Listens at a path.
    ///
    /// # Errors
    /// Always: [`io::ErrorKind::Unsupported`].
    pub fn bind(_: &Path) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Serves until `stops`.
    ///
    /// # Errors
    /// Always: [`io::ErrorKind::Unsupported`].
    pub fn serve(&mut self, _: impl Fn() -> bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
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
    ///
    /// # Errors
    /// Always: [`io::ErrorKind::Unsupported`].
    pub fn call(&mut self, _: &[u8], _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
