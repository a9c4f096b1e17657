use std::io;
use std::time::Duration;

/// What a process has used since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time.
    pub cpu: Duration,
    /// The share of CPU time spent in the kernel, in thousandths.
    pub kernel: u32,
    /// Context switches of its threads, voluntary or not.
    pub switches: u64,
    /// Resident memory now in bytes, shared memory included.
    pub rss: u64,
}

/// Returns what the process has used.
///
/// # Errors
/// Always: [`io::ErrorKind::Unsupported`].
pub fn usage(_: u32) -> io::Result<Usage> {
    Err(io::ErrorKind::Unsupported.into())
}
