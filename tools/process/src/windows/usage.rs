use std::io;

use crate::Usage;

/// Returns what the process has used.
///
/// # Errors
/// Always: [`io::ErrorKind::Unsupported`].
pub fn usage(_: u32) -> io::Result<Usage> {
    Err(io::ErrorKind::Unsupported.into())
}
