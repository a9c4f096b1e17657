//! A sealed memory file: creates one, and checks a peer's.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bellwire_shm::platform;
use rustix::fs::{FallocateFlags, FileType, MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

use crate::Linux;
use crate::mapping::{self, HUGE, Mapping};

/// The magic number of hugetlbfs in `statfs(2)`.
const HUGETLBFS: u32 = 0x9584_58f6;
/// The unit of `st_blocks` on every file system.
const BLOCK: u64 = 512;
/// How often to retry seals when the kernel reports that the memory is busy.
const SEAL_TRIES: u32 = 8;

/// Why memory for a region or a snapshot could not be created.
pub type RegionError = platform::RegionError<Linux>;

/// Why a peer's descriptor was not mapped.
pub type VerifyError = platform::VerifyError<Linux>;

/// Creates an unsealed memfd of `size` bytes with every page allocated, and maps it for writing.
///
/// Flags: `CLOEXEC | ALLOW_SEALING`, and `NOEXEC_SEAL` where the kernel has it (Linux 6.3). From 2 MiB on it uses huge pages
/// where the kernel provides them (Linux 6.1): a fifth of the cost, and fewer pages for readers to map.
pub(crate) fn make(name: &str, size: usize) -> Result<(OwnedFd, Mapping), RegionError> {
    let bytes = size as u64;
    let memfd = empty(name, bytes)?;
    let map = || {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        Mapping::new(memfd.as_fd(), size, prot, MapFlags::SHARED)
            .map_err(|source| RegionError::Map { size: bytes, source })
    };
    let whole = size / HUGE;
    if whole == 0 {
        allocate(&memfd, 0, bytes, bytes)?;
        let mapping = map()?;
        return Ok((memfd, mapping));
    }
    rustix::fs::ftruncate(&memfd, bytes)
        .map_err(|source| RegionError::Allocate { size: bytes, source })?;
    let mapping = map()?;
    for at in 0..whole {
        // The kernel builds a huge page around an existing small one.
        allocate(&memfd, (at * HUGE) as u64, 1, bytes)?;
    }
    mapping.collapse();
    // Pages that exist already cost nothing.
    allocate(&memfd, 0, bytes, bytes)?;
    Ok((memfd, mapping))
}

/// Creates an unsealed memfd of `size` bytes that begins with `bytes`; they reach into each of its pages, and the rest is
/// zero.
pub(crate) fn make_of(name: &str, bytes: &[u8], size: usize) -> Result<OwnedFd, RegionError> {
    let size = size as u64;
    let memfd = empty(name, size)?;
    let failed = |source| RegionError::Allocate { size, source };
    rustix::fs::ftruncate(&memfd, size).map_err(failed)?;
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pwrite(&memfd, rest, written as u64) {
            Ok(0) => return Err(failed(Errno::NOSPC)),
            Ok(more) => written += more,
            Err(Errno::INTR) => {}
            Err(source) => return Err(failed(source)),
        }
    }
    Ok(memfd)
}

/// Creates a memfd without pages, for `size` bytes.
fn empty(name: &str, size: u64) -> Result<OwnedFd, RegionError> {
    // Beyond RLIMIT_FSIZE the kernel sends SIGXFSZ instead of returning an error.
    if let Some(limit) = getrlimit(Resource::Fsize).current {
        if size > limit {
            return Err(RegionError::FileLimit { size, limit });
        }
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3 the flag is unknown. A name that is too long fails again.
        Err(Errno::INVAL) => memfd_create(name, flags),
        created => created,
    }
    .map_err(|source| RegionError::Create { source })
}

/// Allocates with fallocate rather than MAP_POPULATE: a third of the cost, and the pages stay charged to the creator. It also
/// extends the file.
fn allocate(memfd: &OwnedFd, at: u64, len: u64, size: u64) -> Result<(), RegionError> {
    loop {
        match rustix::fs::fallocate(memfd, FallocateFlags::empty(), at, len) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(source) => return Err(RegionError::Allocate { size, source }),
        }
    }
}

/// Adds seals. Before a seal against writing, the kernel waits up to 150 ms for pinned pages and then gives up; under load
/// its own reclaim pins them longer.
pub(crate) fn seal(memfd: &OwnedFd, seals: SealFlags) -> Result<(), RegionError> {
    fcntl_add_seals(memfd, seals).or_else(|error| seal_again(memfd, seals, error))
}

#[cold]
fn seal_again(memfd: &OwnedFd, seals: SealFlags, mut source: Errno) -> Result<(), RegionError> {
    for _ in 1..SEAL_TRIES {
        if source != Errno::BUSY {
            break;
        }
        match fcntl_add_seals(memfd, seals) {
            Ok(()) => return Ok(()),
            Err(error) => source = error,
        }
    }
    Err(RegionError::Seal { source })
}

/// Checks a peer's descriptor in a safe order: seals first, since a file that has seals cannot block this thread. The caller
/// has the reaper close one that is refused.
///
/// # Errors
/// [`VerifyError`] says what is wrong with it.
pub(crate) fn check(fd: BorrowedFd<'_>, required: SealFlags, size: u64) -> Result<(), VerifyError> {
    let held =
        rustix::fs::fcntl_get_seals(fd).map_err(|source| VerifyError::NotMemory { source })?;
    // WRITE forbids everything that FUTURE_WRITE forbids, and the owner's own mapping too.
    let write = held.contains(SealFlags::WRITE);
    let effective = if write { held | SealFlags::FUTURE_WRITE } else { held };
    if !effective.contains(required) {
        let missing = required.difference(effective).bits();
        return Err(VerifyError::Seals { held: held.bits(), missing });
    }
    let system = |source| VerifyError::System { source };
    let stat = rustix::fs::fstat(fd).map_err(system)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(VerifyError::NotRegular);
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "file system magics are 32-bit numbers, whose field is wider and signed on some targets"
    )]
    if rustix::fs::fstatfs(fd).map_err(system)?.f_type as u32 == HUGETLBFS {
        return Err(VerifyError::HugePages);
    }
    let found = u64::try_from(stat.st_size).unwrap_or(0);
    if found != size {
        return Err(VerifyError::Size { found, expected: size });
    }
    // Fall back if the call does not exist, or if the peer removed the permission for it.
    let allocated = mapping::backed(fd, size).or_else(|_| backed_once_cut(fd, size))?;
    if allocated < size {
        return Err(VerifyError::Sparse { allocated, size });
    }
    Ok(())
}

/// Returns how many of the `size` bytes of a file sealed against growing have pages, on a kernel that does not report it.
///
/// `st_blocks` also counts pages beyond the end. Truncating the file to its own size frees those, and the seal prevents new
/// ones. Only the rest of the one huge page in which the file ends may remain.
fn backed_once_cut(fd: BorrowedFd<'_>, size: u64) -> Result<u64, VerifyError> {
    // Fails for a descriptor that cannot be written, which was the peer's choice.
    rustix::fs::ftruncate(fd, size).map_err(|_| VerifyError::Unreadable)?;
    let stat = rustix::fs::fstat(fd).map_err(|source| VerifyError::System { source })?;
    Ok(u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK))
}

/// Returns why a checked file was not mapped: `EACCES` means that the descriptor was not opened for reading.
pub(crate) fn unmapped(source: Errno) -> VerifyError {
    match source {
        Errno::ACCESS | Errno::PERM => VerifyError::Unreadable,
        source => VerifyError::System { source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_does_not_report_counts_no_page_beyond_the_end() {
        let size = 4 * 4096;
        for inside in [0, 4096, size] {
            let memfd = empty("hostile", size).unwrap();
            let fd = memfd.as_fd();
            rustix::fs::ftruncate(fd, size).unwrap();
            if inside > 0 {
                allocate(&memfd, 0, inside, size).unwrap();
            }
            rustix::fs::fallocate(fd, FallocateFlags::KEEP_SIZE, size, size).unwrap();
            seal(&memfd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE).unwrap();
            assert_eq!(backed_once_cut(fd, size), Ok(inside));
            let more = rustix::fs::fallocate(fd, FallocateFlags::KEEP_SIZE, size, size);
            assert_eq!(more, Err(Errno::PERM), "no page comes back beyond the end");
            if let Ok(bytes) = mapping::backed(fd, size) {
                assert_eq!(bytes, inside);
            }
        }
    }
}
