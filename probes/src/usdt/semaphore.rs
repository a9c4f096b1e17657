//! The words in which the kernel counts who is attached.

use core::cell::UnsafeCell;

/// A probe's semaphore: an index into [`SEMAPHORES`].
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(super) enum Semaphore {
    /// Of `message` and `reply`.
    Sampling,
    Ring,
    ParkBegin,
    ParkEnd,
    LaneFull,
    LaneResized,
    SessionOpened,
    SessionClosed,
    CallFailed,
    Rate50000,
    RateAll,
}

/// What a page has at most, in bytes, where the kernel may use larger ones than 4 KiB.
#[cfg(target_arch = "x86_64")]
const PAGE: usize = 4096;
#[cfg(target_arch = "aarch64")]
const PAGE: usize = 65_536;

/// A page by itself. The kernel finds a semaphore in a process by its offset in the file; where two segments map the
/// page of the file that it stands on, as happens at the end of the read-only relocations, it counts in the first, and
/// the program looks at the second.
#[repr(C)]
#[cfg_attr(target_arch = "x86_64", repr(align(4096)))]
#[cfg_attr(target_arch = "aarch64", repr(align(65536)))]
pub(super) struct Semaphores([UnsafeCell<u16>; PAGE / 2]);

const _: () = assert!(size_of::<Semaphores>() == PAGE && align_of::<Semaphores>() == PAGE);

// SAFETY: nothing in this program writes the words; the kernel does, each in one piece, and they are read volatile.
unsafe impl Sync for Semaphores {}

/// In the file with its zeroes: the kernel counts in memory that a file is mapped to, not in what follows it.
#[used]
#[unsafe(link_section = ".probes")]
pub(super) static SEMAPHORES: Semaphores = Semaphores([const { UnsafeCell::new(0) }; PAGE / 2]);

impl Semaphore {
    /// Whether a tracer is attached.
    #[inline]
    pub(super) fn is_held(self) -> bool {
        // The optimizer sees that the index is inside: every variant is.
        let Some(word) = SEMAPHORES.0.get(self as usize) else { return false };
        // SAFETY: the cell is valid for reads; volatile, since the kernel changes it under this program.
        let count = unsafe { word.get().read_volatile() };
        count != 0
    }
}
