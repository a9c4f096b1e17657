//! Snapshots: the newest one of a service.

use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;
use std::time::Duration;

use bellwire::{Dynamic, ErrorKind, RefreshError, Refreshed, Snapshot, SnapshotCache};

use crate::bytes::{bw_bytes, free, give, object, put, put_unless_null};
use crate::client::bw_canceller;
use crate::config::{self, bw_client_config, bw_contract};
use crate::error::{Failure, bw_error, run};

/// Nothing newer has been published.
pub const BW_UNCHANGED: c_int = 0;
/// There is a newer snapshot now.
pub const BW_CHANGED: c_int = 1;
/// Requested; not arrived yet.
pub const BW_PENDING: c_int = 2;
/// The provider is there and has published nothing yet.
pub const BW_EMPTY: c_int = 3;
/// The provider is absent or does not answer; the last good snapshot stays.
pub const BW_UNAVAILABLE: c_int = 4;

/// As a timeout of bw_cache_wait: none.
pub const BW_FOREVER: u64 = u64::MAX;

/// The newest snapshot of one service, which stays when the provider goes. It starts no thread. By one thread at a time.
pub struct bw_cache(SnapshotCache<Dynamic>);

/// A snapshot that a cache holds.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bw_snapshot {
    /// Its bytes, which do not change, until the cache is refreshed or freed.
    pub bytes: bw_bytes,
    /// Its number, from 1 for each provider.
    pub generation: u64,
    /// How long this process has had it, in nanoseconds.
    pub age_ns: u64,
}

fn code(refreshed: Refreshed) -> c_int {
    match refreshed {
        Refreshed::Unchanged => BW_UNCHANGED,
        Refreshed::Changed => BW_CHANGED,
        Refreshed::Pending => BW_PENDING,
        Refreshed::Empty => BW_EMPTY,
        Refreshed::Unavailable => BW_UNAVAILABLE,
    }
}

/// Refreshes for at most `within_ns`; 0 never waits.
pub(crate) fn refresh<T: Snapshot>(
    cache: &mut SnapshotCache<T>,
    within_ns: u64,
) -> Result<c_int, RefreshError<T::Error>> {
    match within_ns {
        0 => cache.refresh().map(code),
        ns => cache.refresh_within(Duration::from_nanos(ns)).map(code),
    }
}

/// Nanoseconds to wait at most.
pub(crate) fn timeout_of(timeout: Option<Duration>) -> u64 {
    timeout.map_or(BW_FOREVER, |timeout| u64::try_from(timeout.as_nanos()).unwrap_or(BW_FOREVER))
}

/// Creates a cache of the snapshots of a service: `dir` and `config` as of bw_client_new. Free it with bw_cache_free.
///
/// # Safety
/// Pointers are NULL where that is allowed, or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cache_new(
    dir: *const c_char,
    contract: *const bw_contract,
    config: *const bw_client_config,
    out: *mut *mut bw_cache,
    error: *mut bw_error,
) -> c_int {
    let create = || {
        // SAFETY: as the caller promises.
        let (dir, config) = unsafe { config::client_in(dir, config) }?;
        // SAFETY: as the caller promises.
        let contract = unsafe { config::contract(contract) }?;
        let cache = SnapshotCache::<Dynamic>::with_contract(&dir, contract, config);
        // SAFETY: as the caller promises.
        unsafe { give(out, bw_cache(cache)) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, create) }
}

/// Looks for a newer snapshot and takes it, waiting for at most `within_ns`; 0 never waits, and finds what an earlier refresh
/// asked for. Writes one of BW_UNCHANGED … BW_UNAVAILABLE to `outcome`, which may be NULL. An unchanged one costs two loads.
///
/// # Safety
/// A cache, and pointers that are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cache_refresh(
    cache: *mut bw_cache,
    within_ns: u64,
    outcome: *mut c_int,
    error: *mut bw_error,
) -> c_int {
    let refresh = || {
        // SAFETY: as the caller promises.
        let cache = unsafe { object(cache) }?;
        let refreshed = refresh(&mut cache.0, within_ns)?;
        // SAFETY: as the caller promises.
        unsafe { put_unless_null(outcome, refreshed) };
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, refresh) }
}

/// Waits until there is a newer snapshot, at most for `timeout_ns`, or BW_FOREVER, and takes it; the outcome is as of bw_cache_refresh.
///
/// # Safety
/// A cache, and pointers that are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cache_wait(
    cache: *mut bw_cache,
    timeout_ns: u64,
    outcome: *mut c_int,
    error: *mut bw_error,
) -> c_int {
    let wait = || {
        // SAFETY: as the caller promises.
        let cache = unsafe { object(cache) }?;
        let timeout = (timeout_ns != BW_FOREVER).then(|| Duration::from_nanos(timeout_ns));
        let refreshed = cache.0.wait_for_change(timeout)?;
        // SAFETY: as the caller promises.
        unsafe { put_unless_null(outcome, code(refreshed)) };
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, wait) }
}

/// Writes the newest snapshot that the cache has; BW_E_ABSENT where it has none.
///
/// # Safety
/// A cache, `snapshot` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cache_current(
    cache: *mut bw_cache,
    snapshot: *mut bw_snapshot,
    error: *mut bw_error,
) -> c_int {
    let current = || {
        // SAFETY: as the caller promises.
        let cache = unsafe { object(cache) }?;
        let none = || Failure::of(ErrorKind::Absent, "the cache has no snapshot yet: refresh it");
        let current = cache.0.current().ok_or_else(none)?;
        let found = bw_snapshot {
            bytes: current.bytes().into(),
            generation: current.generation(),
            age_ns: u64::try_from(current.age().as_nanos()).unwrap_or(u64::MAX),
        };
        // SAFETY: as the caller promises.
        unsafe { put(snapshot, found) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, current) }
}

/// Makes bw_cache_fd readable when a refresh has something to do: call it after a refresh, before each poll. Writes 1 to `is_ready` if
/// there may be something already, or the provider is gone: refresh again, and do not sleep.
///
/// # Safety
/// A cache, `is_ready` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cache_arm(
    cache: *mut bw_cache,
    is_ready: *mut c_int,
    error: *mut bw_error,
) -> c_int {
    let arm = || {
        // SAFETY: as the caller promises.
        let cache = unsafe { object(cache) }?;
        let may = cache.0.arm()?;
        // SAFETY: as the caller promises.
        unsafe { put(is_ready, may.into()) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, arm) }
}

/// Writes a descriptor to `fd` for an event loop, after bw_cache_arm and before each poll: the descriptor changes with the cache's
/// state. Refresh when it is readable, and also after `timeout_ns`, which may be NULL; BW_FOREVER there means never. The doorbell must not
/// be a futex. The descriptor stays the cache's.
///
/// # Safety
/// A cache, `fd` may be written, other pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cache_fd(
    cache: *mut bw_cache,
    fd: *mut c_int,
    timeout_ns: *mut u64,
    error: *mut bw_error,
) -> c_int {
    let of = || {
        // SAFETY: as the caller promises.
        let cache = unsafe { object(cache) }?;
        let found = cache.0.pollable()?.as_raw_fd();
        // SAFETY: as the caller promises.
        unsafe { put_unless_null(timeout_ns, timeout_of(cache.0.poll_timeout())) };
        // SAFETY: as the caller promises.
        unsafe { put(fd, found) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, of) }
}

/// Creates an object by which other threads end the waits of this cache. Free it with bw_canceller_free.
///
/// # Safety
/// A cache, `out` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cache_canceller(
    cache: *mut bw_cache,
    out: *mut *mut bw_canceller,
    error: *mut bw_error,
) -> c_int {
    let create = || {
        // SAFETY: as the caller promises.
        let cache = unsafe { object(cache) }?;
        let canceller = cache.0.canceller()?;
        // SAFETY: as the caller promises.
        unsafe { give(out, bw_canceller(canceller)) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, create) }
}

/// Frees a cache and its snapshot. NULL is fine.
///
/// # Safety
/// NULL, or a cache that is never used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cache_free(cache: *mut bw_cache) {
    // SAFETY: as the caller promises.
    unsafe { free(cache) }
}
