#![allow(unsafe_code, reason = "loads, stores and copies in memory that two processes have mapped")]
//! A range of memory that one process writes and another reads at the same time.
//!
//! No slice is ever formed over it. Words are reached as atomics, bytes by raw copies, and what a copy
//! brought is parsed only once it lies in private memory. Nothing here depends on the operating system.

use std::arch::asm;
use std::mem::{MaybeUninit, size_of};
use std::ptr::{self, NonNull};

use bellwire_core::sync::{AtomicU64, Ordering, fence};

/// A mapped range, and the checks of offsets into it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    start: NonNull<u8>,
    len: usize,
}

impl Range {
    /// # Safety
    /// `len` bytes from `start`, which is aligned for u64, stay readable as long as the range is used, and
    /// writable as long as [`Range::store`] and [`Range::write`] are; only one thread at a time calls those.
    pub(crate) unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Stores a word with at least the ordering given; nothing when it is not inside or not aligned.
    #[inline]
    pub(crate) fn store(&self, offset: usize, value: u64, order: Ordering) {
        let Some(word) = self.word(offset) else { return };
        match order {
            Ordering::Relaxed => word.store(value, Ordering::Relaxed),
            Ordering::SeqCst => word.store(value, Ordering::SeqCst),
            _ => word.store(value, Ordering::Release),
        }
    }

    /// Loads a word with at least the ordering given; 0 when it is not inside or not aligned.
    #[inline]
    pub(crate) fn load(&self, offset: usize, order: Ordering) -> u64 {
        let Some(word) = self.word(offset) else { return 0 };
        // A relaxed load and a fence, not an acquiring load: only relaxed loads are promised to work on
        // memory that is mapped read-only. The fence is free on x86.
        if order == Ordering::SeqCst {
            // Pairs with the SeqCst fence that the other side puts between its store and its own load.
            fence(Ordering::SeqCst);
        }
        let value = word.load(Ordering::Relaxed);
        if order != Ordering::Relaxed {
            // Pairs with the release store of the word's owner.
            fence(Ordering::Acquire);
        }
        value
    }

    /// Copies `bytes` in; nothing when they do not fit.
    #[inline]
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let Some(to) = self.at(offset, bytes.len()) else { return };
        // SAFETY: inside the range, which is mapped for writing; `bytes` is private memory, so the two do
        // not overlap, and nobody else writes here at the same time: `new` says so.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
    }

    /// Copies bytes out; zeroes when they are not inside.
    #[inline]
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) {
        let Some(from) = self.at(offset, into.len()) else {
            into.fill(0);
            return;
        };
        // SAFETY: inside the range, which stays readable. `into` is private, so the two do not overlap.
        // The other process may write at the same time: any mix of old and new bytes is a valid `[u8]`.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
        opaque(into.as_mut_ptr());
    }

    /// Copies `N` bytes out; zeroes when they are not inside.
    #[inline]
    pub(crate) fn read_array<const N: usize>(&self, offset: usize) -> [u8; N] {
        let Some(from) = self.at(offset, N) else { return [0; N] };
        let mut copy = MaybeUninit::<[u8; N]>::uninit();
        // SAFETY: as in `read`; `copy` has room for N bytes.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), copy.as_mut_ptr().cast::<u8>(), N) };
        opaque(copy.as_mut_ptr().cast());
        // SAFETY: all N bytes were written above.
        unsafe { copy.assume_init() }
    }

    /// A hint that the byte will be touched soon.
    #[inline]
    pub(crate) fn will_touch<const WRITE: bool>(&self, offset: usize) {
        if let Some(at) = self.at(offset, 1) {
            prefetch::<WRITE>(at);
        }
    }

    /// The address of `len` bytes at `offset`; `None` when they are not all inside.
    #[inline]
    fn at(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let inside = offset <= self.len && len <= self.len - offset;
        debug_assert!(inside, "{len} bytes at {offset} are not inside {}", self.len);
        // SAFETY: `offset` is at most the range's length, so that the result stays in it or at its end.
        inside.then(|| unsafe { self.start.add(offset) })
    }

    #[inline]
    fn word(&self, offset: usize) -> Option<&AtomicU64> {
        let aligned = offset.is_multiple_of(size_of::<u64>());
        debug_assert!(aligned, "the word at {offset} is not aligned");
        let at = if aligned { self.at(offset, size_of::<u64>())?.cast() } else { return None };
        // SAFETY: inside the range, aligned for u64, and only ever reached through atomics: the word
        // areas of pages and boards and the record area of lanes do not overlap.
        Some(unsafe { AtomicU64::from_ptr(at.as_ptr()) })
    }
}

/// Asks for a cache line, for writing or for reading; does nothing where there is no such instruction.
#[inline]
fn prefetch<const WRITE: bool>(at: NonNull<u8>) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};
        let at = at.as_ptr().cast_const().cast();
        if WRITE {
            // SAFETY: a prefetch is a hint: it neither faults nor changes what any load sees.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(at) };
        } else {
            // SAFETY: as above.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Makes the compiler forget what it knows of the memory behind `copied`: it cannot read the source of
/// the copy again instead. Costs no instruction.
#[inline]
fn opaque(copied: *mut u8) {
    // SAFETY: no instruction at all. Without `nomem` it counts as reading and writing any memory that
    // the pointer reaches.
    unsafe { asm!("/* {0} */", in(reg) copied, options(nostack, preserves_flags)) };
}
