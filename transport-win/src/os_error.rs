use std::{fmt, io};

use windows_sys::Win32::Foundation::ERROR_NOT_ENOUGH_MEMORY;

/// A Windows error code ([system error codes](https://learn.microsoft.com/en-us/windows/win32/debug/system-error-codes)).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OsError(u32);

impl OsError {
    /// There is not enough memory (`ERROR_NOT_ENOUGH_MEMORY`).
    pub(crate) const NOT_ENOUGH_MEMORY: Self = Self(ERROR_NOT_ENOUGH_MEMORY);

    /// Returns the error of the calling thread's last failed call.
    pub fn last() -> Self {
        io::Error::last_os_error().into()
    }

    pub(crate) const fn new(code: u32) -> Self {
        Self(code)
    }

    /// Returns the number.
    pub const fn code(self) -> u32 {
        self.0
    }
}

impl From<io::Error> for OsError {
    fn from(error: io::Error) -> Self {
        // Every system error that the standard library passes on has a number.
        Self(error.raw_os_error().map_or(u32::MAX, i32::cast_unsigned))
    }
}

impl From<OsError> for io::Error {
    fn from(error: OsError) -> Self {
        Self::from_raw_os_error(error.0.cast_signed())
    }
}

impl fmt::Display for OsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from(*self).fmt(f)
    }
}

impl fmt::Debug for OsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OsError({self})")
    }
}

impl std::error::Error for OsError {}
