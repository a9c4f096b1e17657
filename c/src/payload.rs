//! Messages of any size.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use bellwire::Payload;

use crate::bytes::{bw_bytes, free, give, shared};
use crate::error::{Failure, bw_error, run};

/// Bytes, few or many: below 32 MiB private memory, above a sealed memfd that every receiver maps, without a copy. It does
/// not change any more. Any number of threads may read it.
pub struct bw_payload(pub(crate) Payload);

/// Builds a payload of `len` bytes in place: `fill` gets them, with arbitrary content, and `user`.
///
/// # Safety
/// `fill` writes at most `len` bytes and returns; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_payload_build(
    len: usize,
    fill: Option<unsafe extern "C" fn(bytes: *mut c_void, len: usize, user: *mut c_void)>,
    user: *mut c_void,
    out: *mut *mut bw_payload,
    error: *mut bw_error,
) -> c_int {
    let build = || {
        let fill = fill.ok_or_else(|| Failure::invalid("fill is NULL"))?;
        let payload = Payload::build(len, |bytes| {
            // SAFETY: as the caller promises.
            unsafe { fill(bytes.as_mut_ptr().cast(), bytes.len(), user) }
        })?;
        // SAFETY: as the caller promises.
        unsafe { give(out, bw_payload(payload)) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, build) }
}

/// Returns the bytes, which stay until the payload is freed. Of NULL: none.
///
/// # Safety
/// NULL, or a payload.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_payload_bytes(payload: *const bw_payload) -> bw_bytes {
    let lend = || {
        // SAFETY: as the caller promises.
        unsafe { shared(payload) }
            .map_or(bw_bytes::from(&[][..]), |payload| bw_bytes::from(&*payload.0))
    };
    catch_unwind(AssertUnwindSafe(lend)).unwrap_or(bw_bytes::from(&[][..]))
}

/// Frees a payload. NULL is fine.
///
/// # Safety
/// NULL, or a payload that is never used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_payload_free(payload: *mut bw_payload) {
    // SAFETY: as the caller promises.
    unsafe { free(payload) }
}
