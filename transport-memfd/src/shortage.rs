//! What an operator can do when this system lacks something.

use std::os::fd::{AsRawFd, BorrowedFd};

use bellwire_core::resize::{Resource, Shortage};
use rustix::io::Errno;
use rustix::process::{Resource as Limit, getrlimit};

use crate::sealed;

/// For a person to read.
pub const fn remedy(resource: Resource) -> &'static str {
    match resource {
        Resource::Descriptors => "raise the limit of open files (RLIMIT_NOFILE)",
        Resource::Memory => "free memory, or raise the limit of the memory cgroup or of file sizes",
        Resource::Maps => "raise vm.max_map_count or RLIMIT_AS",
        Resource::InFlight => "wait for peers to receive theirs, or raise RLIMIT_NOFILE",
        Resource::ControlSocket => "wait for the peer to read",
        _ => "see the code",
    }
}

/// What a system call that needs no shared memory lacked.
pub fn of(error: Errno) -> Shortage {
    sealed::shortage(0, error)
}

/// How many eighths of the descriptors that this process may have ([`RLIMIT_NOFILE`], the soft limit) are taken, at
/// least. `newest` is one that was made a moment ago: it has the lowest number that was free. `held` is what the caller
/// knows of, for a process that closed some of those below.
///
/// [`RLIMIT_NOFILE`]: https://man7.org/linux/man-pages/man2/getrlimit.2.html
pub fn eighths_taken(newest: BorrowedFd<'_>, held: usize) -> usize {
    let taken = held.max(usize::try_from(newest.as_raw_fd()).unwrap_or(0));
    let limit = getrlimit(Limit::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
    match limit {
        Some(limit) => taken.saturating_mul(8) / limit.max(1),
        None => 0,
    }
}
