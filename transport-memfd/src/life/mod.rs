#![allow(unsafe_code, reason = "an atomic at an address that a lock keeps mapped")]
//! The life word: wakes a peer that is parked in a futex when this thread or process dies.
//!
//! A thread of the owner holds a robust mutex in its own page. However that thread ends, the kernel marks the mutex's lock
//! word `FUTEX_OWNER_DIED` and wakes one waiter ([robust futexes](https://docs.kernel.org/locking/robust-futex-ABI.html)).
//! Where the C library is musl, whose mutex has its lock word elsewhere, the word is an entry of the thread's robust list instead.
//! The peer parks on that word as well as on the one that it waits for. It maps the page read-only, and only one process ever
//! locks the mutex. So the danger of robust mutexes in shared memory, a peer that corrupts one, does not exist. This process
//! cannot corrupt it either: see [`OwnRange::take_life`](bellwire_shm::OwnRange::take_life).
//!
//! The cost: the C library links the mutexes that a thread holds through their own memory, so a peer can read a few addresses
//! of this process there. Addresses are a secret to a peer of another user, so it gets no life word: it uses the time slices
//! of [`Link`](crate::link::Link) instead.

#[cfg_attr(target_env = "musl", path = "entry.rs")]
#[cfg_attr(not(target_env = "musl"), path = "mutex.rs")]
mod robust;

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use bellwire_core::sync::{AtomicU32, Ordering};
pub use bellwire_core::wire::{LIFE_OFFSET, LIFE_SIZE};
use bellwire_shm::LifeState;
use bellwire_shm::platform;

use crate::Linux;
use crate::fork::OwnerProcess;
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

/// A life word that this thread holds. Drop it on the same thread (it is not `Send`): the peer then sees
/// [`LifeState::Unarmed`] and is woken. A thread that ends without dropping it counts as dead for the peer.
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<bellwire_memfd::life::LifeLock>();
/// ```
#[derive(Debug)]
pub struct LifeLock {
    word: NonNull<u32>,
    // The kernel accesses it when the thread ends, so it stays mapped while the lock is held.
    _mapping: Arc<Mapping>,
    owner_process: OwnerProcess,
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

impl LifeLock {
    fn word(&self) -> &AtomicU32 {
        // SAFETY: aligned and mapped as long as `self`; whoever else changes it, changes it atomically.
        unsafe { AtomicU32::from_ptr(self.word.as_ptr()) }
    }
}

impl platform::LifeLock<Linux> for LifeLock {
    /// Arms the life word of `page` for the calling thread, at most once per page. From then on its bytes belong to the lock: see
    /// [`OwnRange::take_life`](bellwire_shm::OwnRange::take_life).
    ///
    /// Returns `None` if it was armed before, if this thread holds [`MAX_PER_THREAD`] already, or if the C library refuses or has
    /// mutexes of another layout. The session works without it: the peer then uses time slices.
    fn hold(page: &OwnRegion) -> Option<Self> {
        if HELD.get() >= MAX_PER_THREAD {
            return None;
        }
        let (mapping, at) = page.take_life()?;
        let word = at.cast();
        // SAFETY: the bytes are mapped as long as `mapping`, which the lock keeps, and `take_life` gave them to nobody else.
        unsafe { robust::lock(word) }?;
        HELD.set(HELD.get() + 1);
        let lock = Self {
            word,
            _mapping: mapping,
            owner_process: OwnerProcess::current(),
            not_send: PhantomData,
        };
        // Another C library may have another layout: the drop unlocks.
        if lock.word().load(Ordering::Relaxed) & FUTEX_TID_MASK != thread_id() {
            return None;
        }
        // Set in advance, or the kernel marks the word at the thread's death and wakes nobody. It also makes the unlock wake.
        // Release pairs with nothing: the peer only compares the word.
        lock.word().fetch_or(FUTEX_WAITERS, Ordering::Release);
        Some(lock)
    }
}

impl Drop for LifeLock {
    fn drop(&mut self) {
        if !self.owner_process.is_owner_process() {
            // A child of fork owns none of its parent's mutexes, and its robust list does not contain them.
            return;
        }
        // SAFETY: `hold` locked it on this very thread, since the lock cannot leave it, and its memory is still mapped.
        unsafe { robust::unlock(self.word) };
        HELD.set(HELD.get().saturating_sub(1));
    }
}

fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}
