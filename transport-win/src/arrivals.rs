#![allow(unsafe_code, reason = "change notifications")]
//! Notices that an endpoint begins to listen, without polling.

use std::fs::File;
use std::io;
use std::iter;
use std::os::windows::ffi::OsStrExt;
use std::os::windows::io::{AsHandle, BorrowedHandle};
use std::path::Path;
use std::time::SystemTime;

use bellwire_shm::platform;
use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_NOTIFY_CHANGE_DIR_NAME, FILE_NOTIFY_CHANGE_FILE_NAME, FILE_NOTIFY_CHANGE_LAST_WRITE,
    FindCloseChangeNotification, FindFirstChangeNotificationW, FindNextChangeNotification,
};

/// A wait for an endpoint to come up: signalled when one may have.
#[derive(Debug)]
pub struct Arrivals(HANDLE);

// SAFETY: any thread may wait for a change notification, continue it, or close it.
unsafe impl Send for Arrivals {}
// SAFETY: as above; the handle never changes.
unsafe impl Sync for Arrivals {}

/// Has those notice who wait for the endpoint with this lock, which listens now: sets the file's modification time.
pub(crate) fn touch(lock: &File) {
    let _ = lock.set_modified(SystemTime::now());
}

impl platform::Arrivals for Arrivals {
    fn watch(run_dir: &Path) -> io::Result<Self> {
        let run_dir = std::path::absolute(run_dir)?;
        let dir = run_dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(&run_dir);
        let path: Vec<u16> = dir.as_os_str().encode_wide().chain(iter::once(0)).collect();
        let what = FILE_NOTIFY_CHANGE_DIR_NAME
            | FILE_NOTIFY_CHANGE_FILE_NAME
            | FILE_NOTIFY_CHANGE_LAST_WRITE;
        let is_above = i32::from(dir != run_dir);
        // SAFETY: the path ends with a zero.
        let handle = unsafe { FindFirstChangeNotificationW(path.as_ptr(), is_above, what) };
        if handle == INVALID_HANDLE_VALUE {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(handle))
    }

    fn take(&self) -> io::Result<()> {
        // SAFETY: it is a change notification that is open.
        let is_watched = unsafe { FindNextChangeNotification(self.0) };
        if is_watched == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Keeps nothing for the next wait.
    fn release() {}
}

impl AsHandle for Arrivals {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        // SAFETY: it stays open for as long as `self`.
        unsafe { BorrowedHandle::borrow_raw(self.0) }
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        // SAFETY: it is closed once.
        unsafe { FindCloseChangeNotification(self.0) };
    }
}
