#![allow(unsafe_code, reason = "an entry of the list by which the kernel finds robust futexes")]
//! A life word as an entry of its own in the thread's robust list, beside the mutexes of musl.
//!
//! A thread has one such list. The kernel finds the word of each entry at one distance from it, which the C library has set:
//! musl has the word 28 bytes before. So the entry lies in the life word's other bytes. Musl links back as well, from 8 bytes
//! before each entry; both links are kept as it keeps them, and its mutexes and life words can come and go in any order.
//!
//! When a thread ends, as opposed to its process, musl marks the entries itself, and wakes only waiters of its own process
//! unless the word before says otherwise, which is not ours. [`HeldWords`] does it before.

use std::cell::RefCell;
use std::mem::{MaybeUninit, align_of, size_of};
use std::ptr::{self, NonNull};

use bellwire_core::sync::{AtomicU32, Ordering};

use super::{FUTEX_OWNER_DIED, FUTEX_WAITERS, LIFE_SIZE, thread_id};
use crate::doorbell::FutexWord;
use crate::fork::OwnerProcess;

/// `struct robust_list_head`.
#[repr(C)]
struct Head {
    first: Link,
    /// From an entry to its word.
    offset: isize,
    pending: *mut u8,
}

/// Where an entry is, in a place that is aligned to 4 bytes.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
struct Link(*mut u8);

thread_local! {
    static HELD: HeldWords = HeldWords { words: RefCell::default(), owner_process: OwnerProcess::current() };
}

/// The words that this thread holds. Dropped at its end, when only those are left whose locks were forgotten.
struct HeldWords {
    words: RefCell<Vec<NonNull<u32>>>,
    owner_process: OwnerProcess,
}

impl Drop for HeldWords {
    fn drop(&mut self) {
        // What a forked child finds there is not its parent's memory.
        let is_owner_process = self.owner_process.is_owner_process();
        for word in self.words.get_mut().iter().filter(|_| is_owner_process) {
            let word = atomic(word);
            word.store(FUTEX_OWNER_DIED | FUTEX_WAITERS, Ordering::Release);
            FutexWord::new(word).wake_one();
        }
    }
}

/// Enters the word, with this thread's id in it, into the thread's list; `None` if the entry has no room behind the word.
///
/// # Safety
/// The [`LIFE_SIZE`] bytes at `word` are aligned to them, writable, and of no other use until [`unlock`].
pub(super) unsafe fn lock(word: NonNull<u32>) -> Option<()> {
    let head = head()?;
    // SAFETY: the thread's own head, which nothing else changes meanwhile.
    let offset = unsafe { (*head.as_ptr()).offset };
    let at = usize::try_from(offset.checked_neg()?).ok()?;
    let link = size_of::<Link>();
    if at < size_of::<u32>() + link || at > LIFE_SIZE - link || at % align_of::<Link>() != 0 {
        return None;
    }
    // SAFETY: inside of the life word's bytes.
    let entry = unsafe { word.as_ptr().cast::<u8>().add(at) };
    pend(head, entry);
    atomic(&word).store(thread_id(), Ordering::Relaxed);
    let first = next_of(head.as_ptr().cast());
    set_next(entry, first);
    set_previous(entry, head.as_ptr().cast());
    if first != head.as_ptr().cast() {
        set_previous(first, entry);
    }
    set_next(head.as_ptr().cast(), entry);
    pend(head, ptr::null_mut());
    let _ = HELD.try_with(|held| held.words.borrow_mut().push(word));
    Some(())
}

/// # Safety
/// This thread called [`lock`] for this word, and has not unlocked it since.
pub(super) unsafe fn unlock(word: NonNull<u32>) {
    let Some(head) = head() else { return };
    // SAFETY: the thread's own head, which nothing else changes meanwhile.
    let at = unsafe { (*head.as_ptr()).offset }.unsigned_abs();
    // SAFETY: where `lock` put it: the offset is the same as long as the thread lives.
    let entry = unsafe { word.as_ptr().cast::<u8>().add(at) };
    pend(head, entry);
    let (previous, next) = (previous_of(entry), next_of(entry));
    set_next(previous, next);
    if next != head.as_ptr().cast() {
        set_previous(next, previous);
    }
    let _ = HELD.try_with(|held| held.words.borrow_mut().retain(|held| *held != word));
    let word = atomic(&word);
    word.store(0, Ordering::Release);
    pend(head, ptr::null_mut());
    FutexWord::new(word).wake_one();
}

/// The head of this thread's list. Musl makes it known to the kernel with the first robust mutex that the thread locks, of those
/// that processes may share.
fn head() -> Option<NonNull<Head>> {
    if let Some(head) = known_head() {
        return Some(head);
    }
    let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::zeroed();
    let mut mutex = MaybeUninit::<libc::pthread_mutex_t>::zeroed();
    let (attributes, mutex) = (attributes.as_mut_ptr(), mutex.as_mut_ptr());
    // SAFETY: a live local with room for them.
    unsafe { libc::pthread_mutexattr_init(attributes) };
    // SAFETY: initialized above.
    unsafe { libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST) };
    // SAFETY: initialized above.
    unsafe { libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED) };
    // SAFETY: a live local with room for it, and attributes that were initialized above.
    unsafe { libc::pthread_mutex_init(mutex, attributes) };
    // SAFETY: initialized above, and nobody else knows it.
    unsafe { libc::pthread_mutex_lock(mutex) };
    // SAFETY: locked above.
    unsafe { libc::pthread_mutex_unlock(mutex) };
    known_head()
}

fn known_head() -> Option<NonNull<Head>> {
    let mut head = ptr::null_mut::<Head>();
    let mut len = 0_usize;
    // SAFETY: both are live locals, which the kernel writes; thread 0 is the one that asks.
    let result =
        unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut len) };
    NonNull::new(head).filter(|_| result == 0 && len == size_of::<Head>())
}

/// Notes the entry that is about to come or go: if the thread ends meanwhile, the kernel looks at it, too. Null for none.
fn pend(head: NonNull<Head>, entry: *mut u8) {
    // SAFETY: the thread's own head. Volatile: the kernel reads it at any time.
    let pending = unsafe { &raw mut (*head.as_ptr()).pending };
    // SAFETY: as above.
    unsafe { pending.write_volatile(entry) };
}

/// The entry after this one, or the head, which the last one names.
fn next_of(entry: *mut u8) -> *mut u8 {
    // SAFETY: an entry of this thread's list, or its head.
    unsafe { entry.cast::<Link>().read_volatile() }.0
}

fn set_next(entry: *mut u8, next: *mut u8) {
    // SAFETY: an entry of this thread's list, or its head. Volatile: the kernel follows the links at any time.
    unsafe { entry.cast::<Link>().write_volatile(Link(next)) };
}

fn previous_of(entry: *mut u8) -> *mut u8 {
    // SAFETY: an entry of this thread's list is behind the link to the one before, in musl's mutexes and in life words.
    let place = unsafe { entry.cast::<Link>().sub(1) };
    // SAFETY: as above.
    unsafe { place.read_volatile() }.0
}

fn set_previous(entry: *mut u8, previous: *mut u8) {
    // SAFETY: an entry of this thread's list is behind the link to the one before, in musl's mutexes and in life words.
    let place = unsafe { entry.cast::<Link>().sub(1) };
    // SAFETY: as above.
    unsafe { place.write_volatile(Link(previous)) };
}

fn atomic(word: &NonNull<u32>) -> &AtomicU32 {
    // SAFETY: mapped and aligned while it is held, and for ever where its lock was forgotten; changed atomically only.
    unsafe { AtomicU32::from_ptr(word.as_ptr()) }
}
