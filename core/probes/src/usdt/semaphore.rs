//! The words in which the kernel counts attached tracers.

use core::cell::UnsafeCell;

use crate::Count;

/// A probe's semaphore: an index into [`SEMAPHORES`]. The first four are read together
/// ([`SamplingMask`](crate::SamplingMask)), and the next four ([`SlowMask`](crate::SlowMask)).
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(super) enum Semaphore {
    /// Of `message`, `handling`, `handled` and `reply`.
    Sampling = Count::Sampling as usize,
    RateAll = Count::RateAll as usize,
    Rate50000 = Count::Rate50000 as usize,
    Rate5000 = Count::Rate5000 as usize,
    Slow10us,
    Slow100us,
    Slow1ms,
    Slow10ms,
    Ring,
    ParkBegin,
    ParkEnd,
    LaneFull,
    LaneResized,
    SessionOpened,
    SessionClosed,
    CallFailed,
    /// Of `published`, `copied` and `mapped`.
    Deliveries,
    Missed,
}

/// The maximum page size in bytes; on aarch64 the kernel may use pages larger than 4 KiB.
#[cfg(target_arch = "x86_64")]
const PAGE: usize = 4096;
#[cfg(target_arch = "aarch64")]
const PAGE: usize = 65_536;

/// A separate page. The kernel finds a semaphore in a process by its file offset. If two segments map the same page of the
/// file, as at the end of the read-only relocations, the kernel counts in the first, but the program reads the second.
#[repr(C)]
#[cfg_attr(target_arch = "x86_64", repr(align(4096)))]
#[cfg_attr(target_arch = "aarch64", repr(align(65536)))]
pub(super) struct Semaphores([UnsafeCell<u16>; PAGE / 2]);

const _: () = assert!(size_of::<Semaphores>() == PAGE && align_of::<Semaphores>() == PAGE);

// SAFETY: nothing in this program writes the words; the kernel does, each in one piece, and they are read volatile.
unsafe impl Sync for Semaphores {}

/// In the file including its zeroes: the kernel counts in file-backed memory, not in the zero-filled memory behind it.
#[used]
#[unsafe(link_section = ".probes")]
pub(super) static SEMAPHORES: Semaphores = Semaphores([const { UnsafeCell::new(0) }; PAGE / 2]);

/// Returns four semaphores from the first on, or the next four, in memory order.
#[inline]
pub(super) fn four(next: bool) -> u64 {
    let first = (&raw const SEMAPHORES).cast::<u64>();
    let at = first.wrapping_add(usize::from(next));
    // SAFETY: the page is aligned and longer than that; volatile, since the kernel changes it under this program. Each
    // count changes in one piece, and any mix of old and new ones is a state between.
    unsafe { at.read_volatile() }
}

impl Semaphore {
    /// Returns whether a tracer is attached.
    #[inline]
    pub(super) fn is_held(self) -> bool {
        // The optimizer proves that the index is in range: every variant is.
        let Some(word) = SEMAPHORES.0.get(self as usize) else { return false };
        // SAFETY: the cell is valid for reads; volatile, since the kernel changes it under this program.
        let count = unsafe { word.get().read_volatile() };
        count != 0
    }
}
