#![allow(
    unsafe_code,
    reason = "a robust pthread mutex, placed in memory that only this process writes"
)]
//! A life word that is the first word of a robust mutex of the C library: glibc keeps the owner's thread id there.

use std::mem::{MaybeUninit, align_of, size_of};
use std::ptr::NonNull;

use rustix::io::Errno;

use super::LIFE_SIZE;

/// Makes a mutex at `word` and locks it; `None` if the C library refuses.
///
/// # Safety
/// The [`LIFE_SIZE`] bytes at `word` are aligned to them, writable, and of no other use until [`unlock`].
pub(super) unsafe fn lock(word: NonNull<u32>) -> Option<()> {
    let mutex = word.cast::<libc::pthread_mutex_t>();
    init(mutex).ok()?;
    // SAFETY: `init` made a mutex there.
    check(unsafe { libc::pthread_mutex_lock(mutex.as_ptr()) }).ok()
}

/// # Safety
/// This thread called [`lock`] for this word, and has not unlocked it since.
pub(super) unsafe fn unlock(word: NonNull<u32>) {
    // SAFETY: the mutex is locked by this thread.
    let _ = unsafe { libc::pthread_mutex_unlock(word.as_ptr().cast()) };
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
    // SAFETY: initialized above.
    check(unsafe { libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST) })?;
    // SAFETY: initialized above.
    check(unsafe { libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED) })?;
    // SAFETY: the caller checked that the mutex's bytes are inside its own writable mapping and aligned;
    // `attributes` was initialized above.
    check(unsafe { libc::pthread_mutex_init(mutex.as_ptr(), attributes) })?;
    // SAFETY: initialized above, and not used after this.
    check(unsafe { libc::pthread_mutexattr_destroy(attributes) })
}

fn check(result: libc::c_int) -> Result<(), Errno> {
    if result == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(result)) }
}
