#![allow(unsafe_code, reason = "loads, stores and copies in memory that two processes have mapped")]
//! A range of memory that one process writes while another reads it.
//!
//! This module never forms a slice over such memory. It accesses words as atomics and bytes by raw copies, and data is parsed
//! only after it was copied to private memory.
//!
//! Callers check each offset, whatever a peer wrote. An access that is not inside its range is a bug of this library: it
//! panics in all builds, because a write that is left out, or zeroes that are read, would only show later and elsewhere.

use std::arch::asm;
use std::cell::Cell;
use std::mem::{MaybeUninit, size_of};
use std::ptr::{self, NonNull};

use bellwire_core::sync::{AtomicU64, Ordering, fence};
use bellwire_core::wire::{HEADER, LIFE_OFFSET, LIFE_SIZE};

/// Mapped memory that only this process writes. A region derefs to it, and the range cannot be moved out of the region or
/// outlive it.
///
/// Only one thread at a time may use it (`Send`, not `Sync`): [`OwnRange::write`] is an ordinary copy.
///
/// No word of it overlaps a page's life word, which may be a mutex of the C library: see [`OwnRange::take_life`].
#[derive(Debug)]
pub struct OwnRange {
    range: Range,
    /// How many bytes from the start [`OwnRange::write`] may write: all, until the life word is taken.
    writable: Cell<usize>,
}

/// Mapped memory that another process writes and this one reads. A region derefs to it, and the range cannot be moved out of
/// the region or outlive it.
#[derive(Debug)]
pub struct PeerRange(Range);

/// Messages up to this many bytes are written word by word.
///
/// A processor forwards a recent store to a load only if that one store covers all bytes of the load. Otherwise the load
/// waits until the store and all earlier ones have reached the cache, in order. Among them are stores to a lane, whose cache
/// lines the peer's processor holds. A message is encoded 8 or 16 bytes at a time and `memcpy` would read it 32 or 64 at a
/// time, so each record waited for earlier stores. See "store forwarding" in Intel's optimization manual; ADR 0027 has the
/// measured cost.
const SHORT: usize = 2048;

/// Bytes that every range has mapped behind its start, whatever its length: mappings consist of whole pages.
const MAPPED: usize = 4096;

/// A mapped range, and the checks of offsets into it.
#[derive(Clone, Copy, Debug)]
struct Range {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory may be used by any thread: `new` asks for that.
unsafe impl Send for OwnRange {}
// SAFETY: as for `OwnRange`.
unsafe impl Send for PeerRange {}
// SAFETY: none of its methods writes.
unsafe impl Sync for PeerRange {}

impl OwnRange {
    /// # Safety
    /// `len` bytes from `start`, which is aligned for u64, and at least 4096, stay readable and writable as long as this
    /// is there, whichever thread uses it. Nothing else writes there but atomics, and no reference to plain bytes there is formed;
    /// the bytes that [`OwnRange::take_life`] gave away are the taker's.
    pub const unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { range: Range { start, len }, writable: Cell::new(len) }
    }

    /// Returns the size in bytes.
    pub const fn size(&self) -> usize {
        self.range.len
    }

    /// Stores a word with at least the ordering given.
    ///
    /// # Panics
    /// If `offset` is not that of an aligned word inside the range, or is in the life word.
    #[inline]
    pub fn store_u64(&self, offset: usize, value: u64, order: Ordering) {
        let word = self.word(offset);
        match order {
            Ordering::Relaxed => word.store(value, Ordering::Relaxed),
            Ordering::SeqCst => word.store(value, Ordering::SeqCst),
            _ => word.store(value, Ordering::Release),
        }
    }

    /// Loads a word that this side stored earlier.
    ///
    /// # Panics
    /// As [`OwnRange::store_u64`].
    #[inline]
    pub fn load_u64(&self, offset: usize, order: Ordering) -> u64 {
        load(self.word(offset), order)
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        if is_life(offset) {
            out_of_range(offset, size_of::<u64>(), LIFE_OFFSET);
        }
        self.range.word(offset)
    }

    /// Copies `into.len()` bytes that this side wrote earlier at `offset`.
    ///
    /// # Panics
    /// As [`OwnRange::write`].
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        let from = self.place(offset, into.len());
        // SAFETY: inside the range, which is mapped; `into` is private memory, so the two do not overlap. This is not Sync,
        // and nothing else writes there: `new` says so.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Panics
    /// If they are not all inside the range; or lie in the life word or behind it, after that was taken.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.place(offset, bytes.len());
        if bytes.len() <= SHORT && to.cast::<u64>().is_aligned() {
            // SAFETY: inside the range, as below, and aligned.
            unsafe { write_words(to, bytes) };
            return;
        }
        // SAFETY: inside the range, which is mapped for writing; `bytes` is private memory, so the two do
        // not overlap. This is not Sync, and nothing else writes there: `new` says so.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
    }

    /// Copies a record's header and its payload, as two [writes](OwnRange::write) would.
    ///
    /// # Panics
    /// As [`OwnRange::write`].
    #[inline]
    pub fn write_record(&self, offset: usize, header: [u8; HEADER], payload: &[u8]) {
        let to = self.place(offset, HEADER + payload.len());
        if payload.len() > SHORT || !to.cast::<u64>().is_aligned() {
            return self.write_apart(offset, header, payload);
        }
        // SAFETY: inside the range, which is mapped for writing, and aligned; this is not Sync, and nothing else writes there.
        let behind = unsafe { write_words(to, &header) };
        // SAFETY: the same, behind the header, whose size is a multiple of a word's.
        unsafe { write_words(behind, payload) };
    }

    /// Takes the header by value: if `write_record` lent it, each header would go through the stack.
    #[inline(never)]
    fn write_apart(&self, offset: usize, header: [u8; HEADER], payload: &[u8]) {
        self.write(offset, &header);
        self.write(offset + HEADER, payload);
    }

    /// Returns the address of `len` writable bytes at `offset`.
    #[inline]
    fn place(&self, offset: usize, len: usize) -> NonNull<u8> {
        Range { len: self.writable.get(), ..self.range }.at(offset, len)
    }

    /// Returns the address of the low half of the word at `offset`, for a system call that wakes there.
    ///
    /// # Panics
    /// If that is not an aligned word inside the range.
    #[inline]
    pub fn low_half(&self, offset: usize) -> NonNull<u32> {
        self.range.low_half(offset)
    }

    /// Gives away the [`LIFE_SIZE`] bytes at [`LIFE_OFFSET`] permanently: this range no longer reads or writes them. They
    /// stay mapped as long as the range. Returns `None` if they are not inside or were given away before.
    pub fn take_life(&self) -> Option<NonNull<u8>> {
        if self.writable.get() < LIFE_OFFSET + LIFE_SIZE {
            return None;
        }
        self.writable.set(LIFE_OFFSET);
        Some(self.range.at(LIFE_OFFSET, LIFE_SIZE))
    }
}

impl PeerRange {
    /// # Safety
    /// `len` bytes from `start`, which is aligned for u64, and at least 4096, stay readable as long as this is there,
    /// whichever thread uses it. This process never writes there, and no reference to plain bytes there is formed.
    pub const unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self(Range { start, len })
    }

    /// Returns the size in bytes.
    pub const fn size(&self) -> usize {
        self.0.len
    }

    /// Loads a word with at least the ordering given.
    ///
    /// # Panics
    /// If `offset` is not that of an aligned word inside the range.
    #[inline]
    pub fn load_u64(&self, offset: usize, order: Ordering) -> u64 {
        load(self.0.word(offset), order)
    }

    /// Copies `into.len()` bytes from `offset`. The copy cannot change any more, whatever the peer writes.
    ///
    /// # Panics
    /// If they are not all inside the range.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        let from = self.0.at(offset, into.len());
        // SAFETY: inside the range, which stays readable. `into` is private, so the two do not overlap.
        // The other process may write at the same time: any mix of old and new bytes is a valid `[u8]`.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
        opaque(into.as_mut_ptr());
    }

    /// Loads two adjacent words, relaxed.
    ///
    /// # Panics
    /// As [`PeerRange::load_u64`].
    #[inline]
    pub fn load_pair(&self, offset: usize) -> [u64; 2] {
        let first = self.0.aligned(offset, 2 * size_of::<u64>());
        // SAFETY: two words are inside the range, aligned, and only read.
        let words = unsafe { first.cast::<[AtomicU64; 2]>().as_ref() };
        words.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    /// Copies `N` bytes from `offset`, as [`PeerRange::read`] does.
    ///
    /// # Panics
    /// As that does.
    #[inline]
    pub fn read_header<const N: usize>(&self, offset: usize) -> [u8; N] {
        let from = self.0.at(offset, N);
        let mut copy = MaybeUninit::<[u8; N]>::uninit();
        // SAFETY: as in `read`; `copy` has room for N bytes.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), copy.as_mut_ptr().cast::<u8>(), N) };
        opaque(copy.as_mut_ptr().cast());
        // SAFETY: all N bytes were written above.
        unsafe { copy.assume_init() }
    }

    /// Prefetches the cache line at `offset`, which will be read soon.
    #[inline]
    pub fn will_read(&self, offset: usize) {
        prefetch(self.0.at(offset, 1));
    }

    /// Returns the address of the low half of the word at `offset`, for a relaxed load or a system call that waits there.
    /// It is not an [`AtomicU32`](bellwire_core::sync::AtomicU32), since that would allow stores.
    ///
    /// # Panics
    /// As [`PeerRange::load_u64`].
    ///
    /// ```compile_fail
    /// use bellwire_core::sync::Ordering;
    /// fn overwrite(range: &bellwire_shm::PeerRange) {
    ///     range.low_half(0).store(1, Ordering::Relaxed);
    /// }
    /// ```
    #[inline]
    pub fn low_half(&self, offset: usize) -> NonNull<u32> {
        self.0.low_half(offset)
    }
}

impl Range {
    /// Returns the address of `len` bytes at `offset`. Panics if they are not all inside.
    #[inline]
    fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        if self.len.checked_sub(offset).is_none_or(|room| len > room) {
            out_of_range(offset, len, self.len);
        }
        // SAFETY: `offset` is at most the range's length, so that the result stays in it or at its end.
        unsafe { self.start.add(offset) }
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        let at = self.aligned(offset, size_of::<u64>()).cast();
        // SAFETY: inside the range, aligned for u64, and only ever reached through atomics: the word
        // areas of pages and boards and the record area of lanes do not overlap.
        unsafe { AtomicU64::from_ptr(at.as_ptr()) }
    }

    /// Returns the address of the low half, which comes first on a little-endian machine.
    #[inline]
    fn low_half(&self, offset: usize) -> NonNull<u32> {
        self.aligned(offset, size_of::<u64>()).cast()
    }

    /// Returns the address of `len` bytes at `offset`, aligned for a word. Panics if they are not, or not all inside.
    #[inline]
    fn aligned(&self, offset: usize, len: usize) -> NonNull<u8> {
        if offset % size_of::<u64>() != 0 {
            out_of_range(offset, len, self.len);
        }
        // Most offsets are constants, for which this comparison is not compiled into the program.
        if offset <= MAPPED - len {
            // SAFETY: this many bytes are mapped: `new` asks for that.
            return unsafe { self.start.add(offset) };
        }
        self.at(offset, len)
    }
}

/// Panics: see the module.
#[cold]
#[inline(never)]
#[expect(clippy::panic, reason = "a bug of this library, which a peer cannot bring about")]
fn out_of_range(offset: usize, len: usize, size: usize) -> ! {
    panic!("bug in Bellwire: {len} bytes at {offset} are not inside the {size} bytes of a range")
}

/// Loads a word with at least the ordering given.
#[inline]
fn load(word: &AtomicU64, order: Ordering) -> u64 {
    // A relaxed load and a fence instead of an acquire load: only relaxed loads are guaranteed to work on memory that is
    // mapped read-only. The fence is free on x86.
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

/// Returns whether the word at `offset` is part of a page's life word. Boards have no word there, and lanes have none at all.
#[inline]
const fn is_life(offset: usize) -> bool {
    offset / LIFE_SIZE == LIFE_OFFSET / LIFE_SIZE
}

/// Prefetches a cache line; does nothing on architectures without such an instruction.
#[inline]
fn prefetch(at: NonNull<u8>) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it neither faults nor changes what any load sees.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.as_ptr().cast_const().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Copies `bytes` to `to` with word-sized reads, so that earlier stores of a word or more can be forwarded to them.
/// Returns the address behind the last whole word.
///
/// # Safety
/// As many bytes from `to`, aligned for u64, are mapped for writing, by this thread alone, and are no part of `bytes`.
#[inline]
unsafe fn write_words(to: NonNull<u8>, bytes: &[u8]) -> NonNull<u8> {
    let (mut to, mut rest) = (to, bytes);
    while let Some((word, behind)) = rest.split_first_chunk() {
        // Atomic, so that the compiler does not widen the copies. The store of `tail` releases it.
        // SAFETY: inside, and aligned, since it began so.
        unsafe { to.cast::<AtomicU64>().as_ref() }
            .store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        // SAFETY: at most at the end.
        to = unsafe { to.add(size_of::<u64>()) };
        rest = behind;
    }
    if !rest.is_empty() {
        // SAFETY: the rest of the same.
        unsafe { ptr::copy_nonoverlapping(rest.as_ptr(), to.as_ptr(), rest.len()) };
    }
    to
}

/// Makes the compiler forget what it knows of the memory behind `copied`, so that it cannot read the source of the copy a
/// second time. Costs no instruction.
#[inline]
fn opaque(copied: *mut u8) {
    // SAFETY: no instruction at all. Without `nomem` it counts as reading and writing any memory that
    // the pointer reaches.
    unsafe { asm!("/* {0} */", in(reg) copied, options(nostack, preserves_flags)) };
}
