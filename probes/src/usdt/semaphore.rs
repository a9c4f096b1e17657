//! The words in which the kernel counts who is attached.

use core::cell::UnsafeCell;

use crate::Count;

/// A probe's semaphore: an index into [`SEMAPHORES`]. The first four are read together: [`Wish`](crate::Wish).
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(super) enum Semaphore {
    /// Of `message` and `reply`.
    Sampling = Count::Sampling as usize,
    RateAll = Count::RateAll as usize,
    Rate50000 = Count::Rate50000 as usize,
    Rate5000 = Count::Rate5000 as usize,
    Ring,
    ParkBegin,
    ParkEnd,
    LaneFull,
    LaneResized,
    SessionOpened,
    SessionClosed,
    CallFailed,
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

/// The first four semaphores, in the order of memory.
#[inline]
pub(super) fn first_four() -> u64 {
    // SAFETY: the page is aligned and longer than that; volatile, since the kernel changes it under this program. Each
    // count changes in one piece, and any mix of old and new ones is a state between.
    unsafe { (&raw const SEMAPHORES).cast::<u64>().read_volatile() }
}

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
