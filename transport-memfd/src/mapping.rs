#![allow(
    unsafe_code,
    reason = "mmap, munmap and cachestat; everything above works on the range that this owns"
)]
//! A mapped range of memory.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::fork::ForkGuard;

/// A range of mapped memory that is unmapped on drop. It grants no access by itself: code that dereferences
/// [`Mapping::start`] has to justify that.
///
/// A forked child does not inherit it ([`MADV_DONTFORK`](https://man7.org/linux/man-pages/man2/madvise.2.html)), unless
/// nobody can write it any more; the child finds zeros there ([`crate::fork`]).
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    /// Dropped before the range is unmapped.
    kept: Option<ForkGuard>,
}

// SAFETY: the struct is an address and a length. Any thread may unmap the range, and it is done once.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives the address and the length away, nothing else.
unsafe impl Sync for Mapping {}

/// The size of a huge page in bytes.
pub(crate) const HUGE: usize = 2 << 20;
/// [`madvise(2)`](https://man7.org/linux/man-pages/man2/madvise.2.html), Linux 6.1; missing in rustix.
const MADV_COLLAPSE: libc::c_int = 25;
/// [`cachestat(2)`](https://man7.org/linux/man-pages/man2/cachestat.2.html), Linux 6.5; missing in rustix.
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range`.
#[repr(C)]
struct CacheRange {
    offset: u64,
    len: u64,
}

/// `struct cachestat`, in pages.
#[derive(Default)]
#[repr(C)]
struct CacheStat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Returns how many of the first `len` bytes of a memory file have pages, resident or swapped out.
///
/// # Errors
/// `ENOSYS` before Linux 6.5, `EPERM` in a sandbox or where this process may not write the file.
pub(crate) fn backed(fd: BorrowedFd<'_>, len: u64) -> Result<u64, Errno> {
    let range = CacheRange { offset: 0, len };
    let mut stat = CacheStat::default();
    // SAFETY: the descriptor is open and both structs are live locals of the kernel's layout, of which it reads the first
    // and writes the second.
    let result =
        unsafe { libc::syscall(SYS_CACHESTAT, fd.as_raw_fd(), &raw const range, &raw mut stat, 0) };
    if result != 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::NOSYS));
    }
    let pages = stat.cached.saturating_add(stat.evicted);
    Ok(pages.saturating_mul(rustix::param::page_size() as u64))
}

impl Mapping {
    /// Maps the first `len` bytes of `fd`, aligned for huge pages.
    pub(crate) fn new(
        fd: BorrowedFd<'_>,
        len: usize,
        prot: ProtFlags,
        flags: MapFlags,
    ) -> Result<Self, Errno> {
        let mut mapping = Self::inherited(fd, len, prot, flags)?;
        // SAFETY: the range is ours; MADV_DONTFORK changes nothing in this process.
        unsafe { madvise(mapping.start.as_ptr().cast(), len, Advice::LinuxDontFork) }?;
        let is_writable = prot.contains(ProtFlags::WRITE);
        mapping.kept = Some(ForkGuard::memory(mapping.start.as_ptr(), len, is_writable));
        Ok(mapping)
    }

    /// Maps as [`Mapping::new`] does, but a child inherits the mapping: for constant data.
    pub(crate) fn inherited(
        fd: BorrowedFd<'_>,
        len: usize,
        prot: ProtFlags,
        flags: MapFlags,
    ) -> Result<Self, Errno> {
        let hint = if len < HUGE { ptr::null_mut() } else { Self::free_place(len)? };
        // SAFETY: without MAP_FIXED, the kernel picks a range that nothing else uses, at the hint if that is free.
        let start = unsafe { mmap(hint, len, prot, flags, fd, 0) }?;
        Ok(Self { start: NonNull::new(start.cast()).ok_or(Errno::NOMEM)?, len, kept: None })
    }

    /// Returns the address of `len` free bytes at a multiple of a huge page. Another thread may take it first: then huge pages
    /// are not used, and nothing else is lost. A reservation until then would stay behind where the memory cannot be mapped.
    fn free_place(len: usize) -> Result<*mut c_void, Errno> {
        let room = len.checked_add(HUGE).ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: with a null hint and no MAP_FIXED the kernel picks a range that nothing else uses.
        let found = unsafe { mmap_anonymous(ptr::null_mut(), room, ProtFlags::empty(), flags) }?;
        // SAFETY: the range was mapped above, and nothing else knows it.
        unsafe { munmap(found, room) }?;
        let before = found.cast::<u8>().align_offset(HUGE).min(HUGE);
        Ok(found.wrapping_byte_add(before))
    }

    /// Moves the parts that fill whole huge pages into such pages; each needs at least one small page present. Needs no
    /// privilege, and works where huge pages of shared memory are off by default. If the kernel refuses, nothing changes.
    pub(crate) fn collapse(&self) {
        let len = self.len / HUGE * HUGE;
        // SAFETY: a range of this mapping; what its bytes are does not change.
        unsafe { libc::madvise(self.start.as_ptr().cast(), len, MADV_COLLAPSE) };
    }

    /// Returns the first byte's address, page-aligned.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.kept = None;
        // SAFETY: the range was mapped by `new`, and every pointer into it borrows from, or owns a
        // share of, this mapping. munmap of a whole own mapping cannot fail in a way worth acting on.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
