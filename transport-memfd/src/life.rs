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
//! what makes robust mutexes in shared memory dangerous, a peer that corrupts one, cannot happen. Nor can this process do
//! so: see [`OwnRange::take_life`](bellwire_transport::OwnRange::take_life).
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
pub use bellwire_core::wire::{LIFE_OFFSET, LIFE_SIZE};
use rustix::io::Errno;

use crate::fork::Home;
use crate::mapping::Mapping;
use crate::region::OwnRegion;

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

/// A life word that this thread holds. Drop it on the same thread (it is not `Send`): the peer then sees
/// [`LifeState::Unarmed`] and is woken. A thread that ends without dropping it has died for the peer.
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<bellwire_memfd::life::LifeLock>();
/// ```
#[derive(Debug)]
pub struct LifeLock {
    mutex: NonNull<libc::pthread_mutex_t>,
    // The kernel looks into it when the thread ends: it stays mapped as long as the lock is held.
    _mapping: Arc<Mapping>,
    home: Home,
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

/// Arms the life word of `page` for the calling thread, once in the life of a page. What lies there is the lock's from then
/// on: see [`OwnRange::take_life`](bellwire_transport::OwnRange::take_life).
///
/// `None` when it was armed before, when this thread holds [`MAX_PER_THREAD`] already, or with a C library that refuses or
/// whose mutexes look otherwise. The session works without it: the peer then goes by time slices.
pub fn hold(page: &OwnRegion) -> Option<LifeLock> {
    if HELD.get() >= MAX_PER_THREAD {
        return None;
    }
    let (mapping, at) = page.take_life()?;
    let mutex = at.cast::<libc::pthread_mutex_t>();
    init(mutex).ok()?;
    // SAFETY: `init` made a mutex there, `mapping` keeps it mapped, and nothing else reaches its bytes.
    check(unsafe { libc::pthread_mutex_lock(mutex.as_ptr()) }).ok()?;
    HELD.set(HELD.get() + 1);
    let lock = LifeLock { mutex, _mapping: mapping, home: Home::here(), not_send: PhantomData };
    // Preset, or the kernel marks the word at the thread's death and wakes nobody. It also makes the
    // unlock wake. Release pairs with nothing: the peer only compares the word.
    let before = lock.word().fetch_or(FUTEX_WAITERS, Ordering::Release);
    // glibc keeps the owner's thread id in the first word. Where that is not so, dropping unlocks.
    (before & FUTEX_TID_MASK == thread_id()).then_some(lock)
}

impl LifeLock {
    fn word(&self) -> &AtomicU32 {
        // SAFETY: aligned and mapped as long as `self`; the C library changes the word atomically.
        unsafe { AtomicU32::from_ptr(self.mutex.as_ptr().cast()) }
    }
}

impl Drop for LifeLock {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // A child of fork owns no mutex of its parent's, and the C library has none on its list.
            return;
        }
        // SAFETY: the mutex is locked by this very thread, since the lock cannot leave it.
        let _ = unsafe { libc::pthread_mutex_unlock(self.mutex.as_ptr()) };
        HELD.set(HELD.get().saturating_sub(1));
    }
}

const _: () = {
    assert!(size_of::<libc::pthread_mutex_t>() <= LIFE_SIZE);
    assert!(align_of::<libc::pthread_mutex_t>() <= LIFE_SIZE);
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
