#![allow(
    unsafe_code,
    reason = "DuplicateHandle; what it makes is owned at once, or is another process's"
)]
//! Duplicates of handles, within this process and across.

use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::ptr;

use windows_sys::Win32::Foundation::{
    DUPLICATE_CLOSE_SOURCE, DUPLICATE_SAME_ACCESS, DuplicateHandle, HANDLE, INVALID_HANDLE_VALUE,
};

use crate::OsError;

/// What the holder of a duplicate may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// What the holder of the original may do.
    Same,
    /// Exactly this.
    Only(u32),
}

/// A handle as the table of some process numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(u64);

impl Number {
    /// A number that a peer names. Windows counts in fours from four and uses 32 bits; other values are
    /// pseudo-handles, which would mean something else in this process.
    pub(crate) fn parse(number: u64) -> Option<Self> {
        let honest = number != 0 && number.is_multiple_of(4) && u32::try_from(number).is_ok();
        honest.then_some(Self(number))
    }

    /// The number of a handle of this process.
    pub(crate) fn of(handle: BorrowedHandle<'_>) -> Self {
        Self(handle.as_raw_handle().addr() as u64)
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }

    fn raw(self) -> HANDLE {
        // `parse` and `of` let no number through that does not fit.
        ptr::without_provenance_mut(usize::try_from(self.0).unwrap_or(0))
    }
}

/// A second handle of this process to the same object. It is not inherited by child processes.
pub(crate) fn duplicate(handle: impl AsHandle, access: Access) -> Result<OwnedHandle, OsError> {
    let me = own_process();
    let raw = raw_duplicate(me, handle.as_handle().as_raw_handle(), me, access)?;
    // SAFETY: made just now, for this process; nobody else knows it.
    Ok(unsafe { OwnedHandle::from_raw_handle(raw) })
}

/// Puts a handle to the same object, with the same rights, into the table of `process`.
pub(crate) fn push(
    handle: BorrowedHandle<'_>,
    process: BorrowedHandle<'_>,
) -> Result<Number, OsError> {
    let raw = raw_duplicate(own_process(), handle.as_raw_handle(), process, Access::Same)?;
    Ok(Number(raw.addr() as u64))
}

/// Takes back what [`push`] has put there.
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

/// Makes a handle of this process to what `process` knows as `number`, with the same rights.
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

/// This process, as calls that take a process want it.
pub(crate) fn own_process() -> BorrowedHandle<'static> {
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
    fn what_is_no_handle_of_a_table_is_refused() {
        for number in [0, 1, 3, 6, u64::MAX, u64::MAX - 3, 1 << 32] {
            assert_eq!(Number::parse(number), None, "{number:#x}");
        }
        assert_eq!(Number::parse(0x1a4).map(Number::value), Some(0x1a4));
    }
}
