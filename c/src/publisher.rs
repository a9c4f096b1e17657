//! Publishing snapshots.

use std::ffi::{c_int, c_void};

use bellwire::{Dynamic, Publisher};

use crate::bytes::{bytes, free, put_unless_null, shared};
use crate::error::{Failure, bw_error, run};

/// Publishes the snapshots of one service. Any number of threads may use it at once.
pub struct bw_publisher(pub(crate) Publisher<Dynamic>);

/// Publishes a copy of `len` bytes, and writes its generation, from 1, to `generation`, which may be NULL.
///
/// # Safety
/// A publisher, `data` points to `len` bytes, and other pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_publisher_publish(
    publisher: *const bw_publisher,
    data: *const c_void,
    len: usize,
    generation: *mut u64,
    error: *mut bw_error,
) -> c_int {
    let publish = || {
        // SAFETY: as the caller promises.
        let publisher = unsafe { shared(publisher) }?;
        // SAFETY: as the caller promises.
        let data = unsafe { bytes(data, len) }?;
        let published = publisher.0.publish(data)?;
        // SAFETY: as the caller promises.
        unsafe { put_unless_null(generation, published) };
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, publish) }
}

/// Publishes `len` bytes that `fill` writes in place, in zeroed memory that readers will map.
///
/// # Safety
/// A publisher, `fill` writes at most `len` bytes and returns, and other pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_publisher_publish_with(
    publisher: *const bw_publisher,
    len: usize,
    fill: Option<unsafe extern "C" fn(bytes: *mut c_void, len: usize, user: *mut c_void)>,
    user: *mut c_void,
    generation: *mut u64,
    error: *mut bw_error,
) -> c_int {
    let publish = || {
        // SAFETY: as the caller promises.
        let publisher = unsafe { shared(publisher) }?;
        let fill = fill.ok_or_else(|| Failure::invalid("fill is NULL"))?;
        let published = publisher.0.publish_with(len, |into| {
            // SAFETY: as the caller promises.
            unsafe { fill(into.as_mut_ptr().cast(), into.len(), user) }
        })?;
        // SAFETY: as the caller promises.
        unsafe { put_unless_null(generation, published) };
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, publish) }
}

/// Frees a publisher. The server serves the last snapshot until it stops. NULL is fine.
///
/// # Safety
/// NULL, or a publisher that is never used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_publisher_free(publisher: *mut bw_publisher) {
    // SAFETY: as the caller promises.
    unsafe { free(publisher) }
}
