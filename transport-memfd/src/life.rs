#![allow(
    unsafe_code,
    reason = "a robust pthread mutex, placed in memory that only this process writes"
)]
//! The life word: wakes a peer that is parked in a futex when this thread or process dies.
//!
//! A thread of the owner holds a robust mutex in its own page. However that thread ends, the kernel marks the mutex's lock
//! word `FUTEX_OWNER_DIED` and wakes one waiter ([robust futexes](https://docs.kernel.org/locking/robust-futex-ABI.html)).
//! The peer parks on that word as well as on the one that it waits for. It maps the page read-only, and only one process ever
//! locks the mutex. So the danger of robust mutexes in shared memory, a peer that corrupts one, does not exist. This process
//! cannot corrupt it either: see [`OwnRange::take_life`](bellwire_shm::OwnRange::take_life).
//!
//! The cost: the C library links the mutexes that a thread holds through their own memory, so a peer can read a few addresses
//! of this process there. Addresses are a secret to a peer of another user, so it gets no life word: it uses the time slices
//! of [`Link`](crate::link::Link) instead.

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

/// The maximum number of life words that one thread holds. The kernel stops after 2048 (`ROBUST_LIST_LIMIT`), and other
/// mutexes of the thread count too.
pub const MAX_PER_THREAD: usize = 1500;

const FUTEX_WAITERS: u32 = 0x8000_0000;
const FUTEX_OWNER_DIED: u32 = 0x4000_0000;
const FUTEX_TID_MASK: u32 = 0x3fff_ffff;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// The state of a peer's life word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LifeState {
    /// A thread holds it; the kernel will mark it and wake a waiter when that thread ends.
    Alive,
    /// The thread that held it has ended.
    Died,
    /// No thread holds it: it carries no information about the peer.
    Unarmed,
}

/// A life word that this thread holds. Drop it on the same thread (it is not `Send`): the peer then sees
/// [`LifeState::Unarmed`] and is woken. A thread that ends without dropping it counts as dead for the peer.
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<bellwire_memfd::life::LifeLock>();
/// ```
#[derive(Debug)]
pub struct LifeLock {
    mutex: NonNull<libc::pthread_mutex_t>,
    // The kernel accesses it when the thread ends, so it stays mapped while the lock is held.
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

/// Arms the life word of `page` for the calling thread, at most once per page. From then on its bytes belong to the lock: see
/// [`OwnRange::take_life`](bellwire_shm::OwnRange::take_life).
///
/// Returns `None` if it was armed before, if this thread holds [`MAX_PER_THREAD`] already, or if the C library refuses or has
/// mutexes of another layout. The session works without it: the peer then uses time slices.
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
    // Set in advance, or the kernel marks the word at the thread's death and wakes nobody. It also makes the unlock wake.
    // Release pairs with nothing: the peer only compares the word.
    let before = lock.word().fetch_or(FUTEX_WAITERS, Ordering::Release);
    // glibc keeps the owner's thread id in the first word. With another layout, the drop unlocks.
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
            // A child of fork owns none of its parent's mutexes, and its robust list does not contain them.
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
