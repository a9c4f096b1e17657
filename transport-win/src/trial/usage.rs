use std::io;
use std::time::Duration;

/// What a process has used since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time on a processor.
    pub cpu: Duration,
    /// Of that the time in the kernel, in parts of a thousand.
    pub kernel: u32,
    /// How often a thread of it gave a processor away, by itself or not.
    pub switches: u64,
    /// Resident memory now in bytes, shared memory included.
    pub rss: u64,
}

/// What the process has used.
///
/// # Errors
/// Always: [`io::ErrorKind::Unsupported`].
pub fn usage(_: u32) -> io::Result<Usage> {
    Err(io::ErrorKind::Unsupported.into())
}
