#![allow(
    unsafe_code,
    reason = "mmap and munmap; everything above works on the range that this owns"
)]
//! A mapped range of memory.

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// A range of mapped memory that is unmapped on drop. It grants no access by itself: whoever
/// dereferences [`Mapping::start`] says why that is right.
///
/// A forked child does not inherit it
/// ([`MADV_DONTFORK`](https://man7.org/linux/man-pages/man2/madvise.2.html)).
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the struct is an address and a length. Any thread may unmap the range, and it is done once.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives the address and the length away, nothing else.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `fd`.
    pub(crate) fn new(
        fd: BorrowedFd<'_>,
        len: usize,
        prot: ProtFlags,
        flags: MapFlags,
    ) -> Result<Self, Errno> {
        // SAFETY: with a null hint and no MAP_FIXED the kernel picks a range that nothing else uses.
        let start = unsafe { mmap(ptr::null_mut(), len, prot, flags, fd, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        let mapping = Self { start, len };
        // SAFETY: the range is ours; MADV_DONTFORK changes nothing in this process.
        unsafe { madvise(mapping.start.as_ptr().cast(), len, Advice::LinuxDontFork) }?;
        Ok(mapping)
    }

    /// The first byte. Page-aligned.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`, and every pointer into it borrows from, or owns a
        // share of, this mapping. munmap of a whole own mapping cannot fail in a way worth acting on.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
