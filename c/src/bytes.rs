//! What crosses the border: pointers that are checked for null, and borrowed bytes and texts.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;
use std::slice;

use crate::error::Failure;

/// Bytes that the library lends: see the function that lends them for how long.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bw_bytes {
    /// The first byte; not NULL, even if there is none.
    pub data: *const c_void,
    /// How many.
    pub len: usize,
}

/// UTF-8 that the library lends, not terminated.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bw_text {
    /// The first byte; not NULL.
    pub data: *const c_char,
    /// How many bytes.
    pub len: usize,
}

impl From<&[u8]> for bw_bytes {
    fn from(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr().cast(), len: bytes.len() }
    }
}

impl From<&str> for bw_text {
    fn from(text: &str) -> Self {
        Self { data: text.as_ptr().cast(), len: text.len() }
    }
}

/// Returns the bytes that C passed.
///
/// # Safety
/// `data` is null, or points to `len` bytes that live and do not change for `'a`.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, len: usize) -> Result<&'a [u8], Failure> {
    // SAFETY: as the caller promises.
    unsafe { array(data.cast(), len) }
}

/// Returns the array that C passed. A size that no object can have is refused; others are the caller's word.
///
/// # Safety
/// `data` is null, or points to `len` elements that live and do not change for `'a`.
pub(crate) unsafe fn array<'a, T>(data: *const T, len: usize) -> Result<&'a [T], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(Failure::invalid("bytes or an array are NULL, and their length is not 0"));
    }
    if len > isize::MAX.unsigned_abs() / size_of::<T>() {
        return Err(Failure::invalid("bytes or an array are longer than memory can be"));
    }
    // SAFETY: not null, no larger than an object may be, and as the caller promises.
    Ok(unsafe { slice::from_raw_parts(data, len) })
}

/// Returns the text that C passed.
///
/// # Safety
/// `text` is null, or terminated, and lives and does not change for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, and terminated as the caller promises.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| Failure::invalid("a text is not UTF-8"))
}

/// Returns the object that C passed.
///
/// # Safety
/// `object` is null, or points to an object that nothing else uses for `'a`.
pub(crate) unsafe fn object<'a, T>(object: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: as the caller promises.
    unsafe { object.as_mut() }.ok_or_else(no_object)
}

/// Returns the object that C passed, which others may use at the same time.
///
/// # Safety
/// `object` is null, or points to an object that nothing changes for `'a`.
pub(crate) unsafe fn shared<'a, T>(object: *const T) -> Result<&'a T, Failure> {
    // SAFETY: as the caller promises.
    unsafe { object.as_ref() }.ok_or_else(no_object)
}

#[cold]
pub(crate) fn no_object() -> Failure {
    Failure::invalid("an object is NULL")
}

/// Checks an out-parameter before a function does what cannot be undone.
pub(crate) fn writable<T>(out: *mut T) -> Result<(), Failure> {
    if out.is_null() { Err(Failure::invalid("an out-parameter is NULL")) } else { Ok(()) }
}

/// Writes an out-parameter.
///
/// # Safety
/// `out` is null, or may be written.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> Result<(), Failure> {
    writable(out)?;
    // SAFETY: not null, and writable as the caller promises.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes an out-parameter that may be left out.
///
/// # Safety
/// `out` is null, or may be written.
pub(crate) unsafe fn put_unless_null<T>(out: *mut T, value: T) {
    // SAFETY: as the caller promises.
    if let Some(out) = unsafe { out.as_mut() } {
        *out = value;
    }
}

/// Gives an object to C.
///
/// # Safety
/// `out` is null, or may be written.
pub(crate) unsafe fn give<T>(out: *mut *mut T, object: T) -> Result<(), Failure> {
    writable(out)?;
    // SAFETY: not null, and writable as the caller promises.
    unsafe { out.write(Box::into_raw(Box::new(object))) };
    Ok(())
}

/// Takes an object back from C and drops it. A panic in its drop stays here.
///
/// # Safety
/// `object` is null, or came from [`give`] and is used by nobody and never again.
pub(crate) unsafe fn free<T>(object: *mut T) {
    if let Some(object) = NonNull::new(object) {
        // SAFETY: it came from `Box::into_raw`, and nobody else has it.
        let object = unsafe { Box::from_raw(object.as_ptr()) };
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(object)));
    }
}
