#![allow(
    unsafe_code,
    reason = "a handler that runs in each child of fork, and puts memory and descriptors of its own in place of its parent's"
)]
//! What a child of [`fork(2)`](https://man7.org/linux/man-pages/man2/fork.2.html) inherits of its parent's sessions and
//! endpoints: nothing that it could use or harm.
//!
//! A handler ([`pthread_atfork(3)`](https://man7.org/linux/man-pages/man3/pthread_atfork.3.html)) runs first in each child.
//! It fills the holes that mappings left with private, zeroed memory: code of the child that still looks there finds a silent
//! peer, and not whatever the child maps there next. It replaces descriptors by which others see that this process lives: a
//! listening socket or a lock that a helper kept would outlive its parent. And it increments a counter, from which an
//! [`OwnerProcess`] detects that it is in another process.
//!
//! So accesses to memory need no check. A child created by a direct system call instead of the C library's `fork` has the
//! holes and the descriptors.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::{Mutex, MutexGuard, Once};

use bellwire_core::sync::{AtomicU32, Ordering};
use bellwire_shm::lock;
use rustix::event::{EventfdFlags, eventfd};

/// The number of forks between the first process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);
static KEPT: Mutex<BTreeSet<Inherited>> = Mutex::new(BTreeSet::new());
/// The lock, held from before a fork until after it, so that a child finds the set consistent.
static DURING_FORK: ForkLock = ForkLock(std::cell::UnsafeCell::new(None));
static REGISTERED: Once = Once::new();

/// The process in which an object was created. The object works only there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerProcess(u32);

/// Keeps an object from children of fork until this is dropped. Drop it before the object.
#[derive(Debug)]
pub(crate) struct ForkGuard(Inherited);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Inherited {
    Memory { start: usize, len: usize, is_writable: bool },
    Descriptor(RawFd),
}

struct ForkLock(std::cell::UnsafeCell<Option<MutexGuard<'static, BTreeSet<Inherited>>>>);

// SAFETY: only the thread that has locked KEPT touches it, in the handlers around a fork.
unsafe impl Sync for ForkLock {}

impl OwnerProcess {
    /// Returns this process.
    pub fn current() -> Self {
        REGISTERED.call_once(|| {
            // SAFETY: the three are functions of this library, which the C library forgets when it unloads it.
            unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
        });
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Returns whether this still is that process and not a child of it. One load.
    #[inline]
    pub fn is_owner_process(self) -> bool {
        // Relaxed: it changes before a child has a second thread.
        GENERATION.load(Ordering::Relaxed) == self.0
    }
}

impl ForkGuard {
    /// Registers `len` bytes at `start`, which a child does not inherit.
    pub(crate) fn memory(start: *const u8, len: usize, is_writable: bool) -> Self {
        Self::new(Inherited::Memory { start: start.addr(), len, is_writable })
    }

    /// Registers a descriptor by which others see that this process lives.
    pub(crate) fn descriptor(fd: BorrowedFd<'_>) -> Self {
        Self::new(Inherited::Descriptor(fd.as_raw_fd()))
    }

    /// Calls `open` and registers its descriptor; no fork can happen in between.
    pub(crate) fn open<E>(open: impl FnOnce() -> Result<OwnedFd, E>) -> Result<(Self, OwnedFd), E> {
        OwnerProcess::current();
        let mut kept = lock(&KEPT);
        let fd = open()?;
        let what = Inherited::Descriptor(fd.as_raw_fd());
        kept.insert(what);
        Ok((Self(what), fd))
    }

    fn new(what: Inherited) -> Self {
        OwnerProcess::current();
        lock(&KEPT).insert(what);
        Self(what)
    }
}

impl Drop for ForkGuard {
    fn drop(&mut self) {
        lock(&KEPT).remove(&self.0);
    }
}

extern "C" fn before() {
    let guard = lock(&KEPT);
    // SAFETY: this thread has the lock, and no reference to what is in there exists outside of these handlers.
    unsafe { *DURING_FORK.0.get() = Some(guard) };
}

extern "C" fn in_parent() {
    // SAFETY: this thread took the lock in `before`.
    drop(unsafe { (*DURING_FORK.0.get()).take() });
}

/// Makes system calls and nothing else: other threads may have held any lock at the fork.
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the thread that took the lock in `before` is the one that goes on here.
    let Some(kept) = (unsafe { (*DURING_FORK.0.get()).take() }) else { return };
    let nothing = eventfd(0, EventfdFlags::CLOEXEC).ok();
    for what in kept.iter() {
        match (*what, &nothing) {
            (Inherited::Memory { start, len, is_writable }, _) => {
                replace_memory(start, len, is_writable);
            }
            // SAFETY: both are open descriptors of the child: the second is that of a thing whose owner has not closed it.
            // What is closed is the child's copy.
            (Inherited::Descriptor(fd), Some(nothing)) => unsafe {
                libc::dup3(nothing.as_raw_fd(), fd, libc::O_CLOEXEC);
            },
            // At the limit of open files the child keeps the parent's.
            (Inherited::Descriptor(_), None) => {}
        }
    }
}

fn replace_memory(start: usize, len: usize, is_writable: bool) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let flags = flags | libc::MAP_FIXED_NOREPLACE;
    let write = if is_writable { libc::PROT_WRITE } else { libc::PROT_NONE };
    // If writable memory cannot be mapped, the range is at least reserved.
    for prot in [libc::PROT_READ | write, libc::PROT_NONE] {
        let at = ptr::with_exposed_provenance_mut(start);
        // SAFETY: a range that MADV_DONTFORK has left empty: nothing is replaced.
        let mapped = unsafe { libc::mmap(at, len, prot, flags, -1, 0) };
        if mapped != libc::MAP_FAILED {
            return;
        }
    }
}
