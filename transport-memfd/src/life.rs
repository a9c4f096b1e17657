#![allow(
    unsafe_code,
    reason = "a robust pthread mutex, placed in memory that only this process writes"
)]
//! The life word: what wakes a peer that is parked in a futex when this thread or process dies.
//!
//! A thread of the owner holds a robust mutex in its own page. When the thread ends, however it ends, the
//! kernel marks the mutex's lock word `FUTEX_OWNER_DIED` and wakes one waiter
//! ([robust futexes](https://docs.kernel.org/locking/robust-futex-ABI.html)). The peer parks on that word
//! beside the one that it waits for. It maps the page read-only, and nothing here is ever locked by two:
//! what makes robust mutexes in shared memory dangerous, a peer that corrupts one, cannot happen.
//!
//! What it costs: the C library links the mutexes that a thread holds through their own memory, so a peer
//! can read a few addresses of this process there. A peer of another user, to which addresses are a
//! secret, gets no life word: it takes the time slices of [`Link`](crate::link::Link) instead.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::{MaybeUninit, align_of, size_of};
use std::ptr::NonNull;
use std::sync::Arc;

use bellwire_core::sync::{AtomicU32, Ordering};
use rustix::io::Errno;

use crate::mapping::Mapping;
use crate::region::OwnRegion;

/// Where the life word stands in a page, in bytes from its start.
pub const LIFE_OFFSET: usize = 0x2c0;
/// The bytes that are kept for it.
pub const LIFE_SIZE: usize = 64;
/// How many life words one thread holds at most. The kernel stops looking after 2048
/// (`ROBUST_LIST_LIMIT`), and other mutexes of the thread count too.
pub const MAX_PER_THREAD: usize = 1500;

const FUTEX_WAITERS: u32 = 0x8000_0000;
const FUTEX_OWNER_DIED: u32 = 0x4000_0000;
const FUTEX_TID_MASK: u32 = 0x3fff_ffff;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// What a peer's life word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LifeState {
    /// A thread holds it; the kernel will mark it and wake a waiter when that thread ends.
    Alive,
    /// The thread that held it has ended.
    Died,
    /// Nobody holds it: it says nothing about the peer.
    Unarmed,
}

/// Why a life word could not be armed. The session works without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LifeError {
    /// The offset is not that of [`LIFE_SIZE`] aligned bytes inside the region.
    #[error(
        "no life word fits at offset {offset} of {size} bytes: it takes 64 bytes, aligned to 64"
    )]
    Place {
        /// The offset given.
        offset: usize,
        /// The region's size in bytes.
        size: usize,
    },
    /// The C library refused to make or lock the mutex.
    #[error("cannot arm the life word: {source}")]
    System {
        /// What it said.
        source: Errno,
    },
}

/// A life word that this thread holds. Drop it on the same thread (it is not `Send`): the peer then sees
/// [`LifeState::Unarmed`] and is woken. A thread that ends without dropping it has died for the peer.
#[derive(Debug)]
pub struct LifeLock {
    mutex: NonNull<libc::pthread_mutex_t>,
    // The kernel looks into it when the thread ends: it stays mapped as long as the lock is held.
    _mapping: Arc<Mapping>,
    not_send: PhantomData<*mut ()>,
}

/// Reads a peer's life word (32 bits).
pub const fn life_state(word: u32) -> LifeState {
    if word & FUTEX_OWNER_DIED != 0 {
        LifeState::Died
    } else if word & FUTEX_TID_MASK != 0 && word & FUTEX_WAITERS != 0 {
        LifeState::Alive
    } else {
        LifeState::Unarmed
    }
}

/// Arms the life word of `page` for the calling thread, if that can be done: the session works without it.
pub fn hold(page: &OwnRegion) -> Option<LifeLock> {
    LifeLock::hold(page, LIFE_OFFSET).ok().flatten()
}

impl LifeLock {
    /// Arms the life word at `offset` of `region` for the calling thread. Nothing else may stand in those
    /// [`LIFE_SIZE`] bytes, and nobody may have armed them before.
    ///
    /// `None` when this thread holds [`MAX_PER_THREAD`] already, or with a C library whose mutexes look
    /// otherwise: the peer then goes by time slices.
    ///
    /// # Errors
    /// [`LifeError`] when the place is none, or the C library refuses.
    pub fn hold(region: &OwnRegion, offset: usize) -> Result<Option<Self>, LifeError> {
        if HELD.get() >= MAX_PER_THREAD {
            return Ok(None);
        }
        let size = region.size();
        let place = LifeError::Place { offset, size };
        let inside = offset.checked_add(LIFE_SIZE).is_some_and(|end| end <= size);
        if !inside || !offset.is_multiple_of(LIFE_SIZE) {
            return Err(place);
        }
        let (mapping, at) = region.share(offset, LIFE_SIZE).ok_or(place)?;
        let mutex = at.cast::<libc::pthread_mutex_t>();
        init(mutex).map_err(|source| LifeError::System { source })?;
        // SAFETY: `init` made a mutex there, and `_mapping` keeps it mapped.
        check(unsafe { libc::pthread_mutex_lock(mutex.as_ptr()) })
            .map_err(|source| LifeError::System { source })?;
        HELD.set(HELD.get() + 1);
        let lock = Self { mutex, _mapping: mapping, not_send: PhantomData };
        // Preset, or the kernel marks the word at the thread's death and wakes nobody. It also makes the
        // unlock wake. Release pairs with nothing: the peer only compares the word.
        let before = lock.word().fetch_or(FUTEX_WAITERS, Ordering::Release);
        // glibc keeps the owner's thread id in the first word. Where that is not so, dropping unlocks.
        Ok((before & FUTEX_TID_MASK == thread_id()).then_some(lock))
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: aligned and mapped as long as `self`; the C library changes the word atomically.
        unsafe { AtomicU32::from_ptr(self.mutex.as_ptr().cast()) }
    }
}

impl Drop for LifeLock {
    fn drop(&mut self) {
        // SAFETY: the mutex is locked by this very thread, since the lock cannot leave it.
        let _ = unsafe { libc::pthread_mutex_unlock(self.mutex.as_ptr()) };
        HELD.set(HELD.get().saturating_sub(1));
    }
}

const _: () = {
    assert!(size_of::<libc::pthread_mutex_t>() <= LIFE_SIZE);
    assert!(align_of::<libc::pthread_mutex_t>() <= LIFE_SIZE);
    assert!(LIFE_OFFSET.is_multiple_of(LIFE_SIZE));
};

fn init(mutex: NonNull<libc::pthread_mutex_t>) -> Result<(), Errno> {
    let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
    let attributes = attributes.as_mut_ptr();
    // SAFETY: `attributes` is a live local with room for them.
    check(unsafe { libc::pthread_mutexattr_init(attributes) })?;
    // SAFETY: initialised above.
    check(unsafe { libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST) })?;
    // SAFETY: initialised above.
    check(unsafe { libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED) })?;
    // SAFETY: the caller checked that the mutex's bytes are inside its own writable mapping and aligned;
    // `attributes` was initialised above.
    check(unsafe { libc::pthread_mutex_init(mutex.as_ptr(), attributes) })?;
    // SAFETY: initialised above, and not used after this.
    check(unsafe { libc::pthread_mutexattr_destroy(attributes) })
}

fn check(result: libc::c_int) -> Result<(), Errno> {
    if result == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(result)) }
}

fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}
