#![allow(
    unsafe_code,
    reason = "DuplicateHandle; what it makes is owned at once, or is another process's"
)]
//! Duplicates handles within this process and between processes.

use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::ptr;

use windows_sys::Win32::Foundation::{
    DUPLICATE_CLOSE_SOURCE, DUPLICATE_SAME_ACCESS, DuplicateHandle, HANDLE, INVALID_HANDLE_VALUE,
};

use crate::OsError;

/// The access rights of a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Those of the original.
    Same,
    /// Exactly these.
    Only(u32),
}

/// A handle's number in the table of some process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(u64);

impl Number {
    /// Parses a number that a peer sent. Windows counts in fours from four and uses 32 bits. Other values are pseudo-handles,
    /// which would mean something else in this process.
    pub(crate) fn parse(number: u64) -> Option<Self> {
        let is_valid = number != 0 && number.is_multiple_of(4) && u32::try_from(number).is_ok();
        is_valid.then_some(Self(number))
    }

    /// Returns the number of a handle of this process.
    pub(crate) fn of(handle: BorrowedHandle<'_>) -> Self {
        Self(handle.as_raw_handle().addr() as u64)
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }

    fn raw(self) -> HANDLE {
        // `parse` and `of` accept only numbers that fit.
        ptr::without_provenance_mut(usize::try_from(self.0).unwrap_or(0))
    }
}

/// Creates a second handle of this process to the same object. Child processes do not inherit it.
pub fn duplicate(handle: impl AsHandle, access: Access) -> Result<OwnedHandle, OsError> {
    let me = own_process();
    let raw = raw_duplicate(me, handle.as_handle().as_raw_handle(), me, access)?;
    // SAFETY: made just now, for this process; nobody else knows it.
    Ok(unsafe { OwnedHandle::from_raw_handle(raw) })
}

/// Creates a handle to the same object, with the same rights, in the table of `process`.
pub(crate) fn push(
    handle: BorrowedHandle<'_>,
    process: BorrowedHandle<'_>,
) -> Result<Number, OsError> {
    let raw = raw_duplicate(own_process(), handle.as_raw_handle(), process, Access::Same)?;
    Ok(Number(raw.addr() as u64))
}

/// Closes a handle that [`push`] created.
///
/// # Safety
/// Nobody was told of it, so that the number is still that handle's.
pub(crate) unsafe fn take_back(number: Number, process: BorrowedHandle<'_>) {
    // SAFETY: closes a handle that is nobody's, as the caller says. It fails when the process has ended, which closes
    // everything.
    let _ = unsafe {
        DuplicateHandle(
            process.as_raw_handle(),
            number.raw(),
            ptr::null_mut(),
            ptr::null_mut(),
            0,
            0,
            DUPLICATE_CLOSE_SOURCE,
        )
    };
}

/// Creates a handle of this process to the object that `process` knows as `number`, with the same rights.
pub(crate) fn pull(number: Number, process: BorrowedHandle<'_>) -> Result<OwnedHandle, OsError> {
    let raw = raw_duplicate(process, number.raw(), own_process(), Access::Same)?;
    // SAFETY: made just now, for this process; nobody else knows it.
    Ok(unsafe { OwnedHandle::from_raw_handle(raw) })
}

/// Takes over a handle that another process has put into this one's table.
///
/// # Safety
/// The process that named the number has put it there for the caller, and nobody else owns it.
pub(crate) unsafe fn adopt(number: Number) -> OwnedHandle {
    // SAFETY: as the caller says.
    unsafe { OwnedHandle::from_raw_handle(number.raw()) }
}

/// Takes over a handle that a call has just made, unless it made none.
///
/// # Safety
/// Nobody else owns it.
pub(crate) unsafe fn made(handle: HANDLE) -> Result<OwnedHandle, OsError> {
    if handle.is_null() || handle == INVALID_HANDLE_VALUE {
        return Err(OsError::last());
    }
    // SAFETY: as the caller says.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// Returns this process, for calls that take a process handle.
pub fn own_process() -> BorrowedHandle<'static> {
    // SAFETY: the pseudo-handle of the current process; it is valid as long as the process runs.
    unsafe { BorrowedHandle::borrow_raw(INVALID_HANDLE_VALUE) }
}

fn raw_duplicate(
    from: BorrowedHandle<'_>,
    handle: HANDLE,
    to: BorrowedHandle<'_>,
    access: Access,
) -> Result<HANDLE, OsError> {
    let (access, options) = match access {
        Access::Same => (0, DUPLICATE_SAME_ACCESS),
        Access::Only(access) => (access, 0),
    };
    let mut made = ptr::null_mut();
    // SAFETY: `made` is a live local; a handle that is none is an error.
    let done = unsafe {
        DuplicateHandle(
            from.as_raw_handle(),
            handle,
            to.as_raw_handle(),
            &mut made,
            access,
            0,
            options,
        )
    };
    if done == 0 { Err(OsError::last()) } else { Ok(made) }
}

#[cfg(test)]
mod tests {
    use super::Number;

    #[test]
    fn a_number_that_is_no_handle_is_refused() {
        for number in [0, 1, 3, 6, u64::MAX, u64::MAX - 3, 1 << 32] {
            assert_eq!(Number::parse(number), None, "{number:#x}");
        }
        assert_eq!(Number::parse(0x1a4).map(Number::value), Some(0x1a4));
    }
}
