//! What an operator can do when this system lacks something.

use std::os::fd::{AsRawFd, BorrowedFd};

use bellwire_core::resize::{Resource, Shortage};
use rustix::io::Errno;
use rustix::process::{Resource as Limit, getrlimit};

/// Returns advice for a person to read.
pub const fn hint(resource: Resource) -> &'static str {
    match resource {
        Resource::Descriptors => "raise the limit of open files (RLIMIT_NOFILE)",
        Resource::Memory => "free memory, or raise the limit of the memory cgroup or of file sizes",
        Resource::Maps => "raise vm.max_map_count or RLIMIT_AS",
        Resource::InFlight => "wait for peers to receive theirs, or raise RLIMIT_NOFILE",
        Resource::ControlSocket => "wait for the peer to read",
        _ => "see the code",
    }
}

/// Returns the resource that a system call without shared memory lacked.
pub fn of(error: Errno) -> Shortage {
    let resource = match error {
        Errno::MFILE | Errno::NFILE => Resource::Descriptors,
        Errno::NOMEM | Errno::NOSPC | Errno::NOBUFS => Resource::Memory,
        _ => Resource::Other,
    };
    Shortage { resource, bytes: 0, code: error.raw_os_error() }
}

/// Returns a lower bound for the eighths of this process's descriptors ([`RLIMIT_NOFILE`], the soft limit) that are in use.
/// `newest` was just created, so it has the lowest free number. `held` is how many the caller knows of, in case the process
/// closed some with lower numbers.
///
/// [`RLIMIT_NOFILE`]: https://man7.org/linux/man-pages/man2/getrlimit.2.html
pub fn fd_usage_eighths(newest: BorrowedFd<'_>, held: usize) -> usize {
    let taken = held.max(usize::try_from(newest.as_raw_fd()).unwrap_or(0));
    let limit = getrlimit(Limit::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
    match limit {
        Some(limit) => taken.saturating_mul(8) / limit.max(1),
        None => 0,
    }
}
