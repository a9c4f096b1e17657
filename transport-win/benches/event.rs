#![allow(unsafe_code, reason = "events with names; every handle is owned at once")]
//! Two auto-reset events, with nothing else: what two waits and two rings cost.

use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr;

use windows_sys::Win32::Foundation::WAIT_OBJECT_0;
use windows_sys::Win32::System::Threading::{
    CreateEventW, INFINITE, SetEvent, WaitForSingleObject,
};

/// One event each way.
pub(crate) struct Bells {
    there: OwnedHandle,
    back: OwnedHandle,
}

impl Bells {
    /// Those with this name, which whoever is first makes.
    pub(crate) fn open(name: &str) -> Self {
        Self { there: event(&format!("{name}-there")), back: event(&format!("{name}-back")) }
    }

    pub(crate) fn round_trip(&self) {
        ring(&self.there);
        wait(&self.back);
    }

    /// Answers each ring.
    pub(crate) fn serve(&self) -> ! {
        loop {
            wait(&self.there);
            ring(&self.back);
        }
    }
}

fn event(name: &str) -> OwnedHandle {
    let name: Vec<u16> = name.encode_utf16().chain([0]).collect();
    // SAFETY: `name` ends with a zero and lives until the call is over.
    let handle = unsafe { CreateEventW(ptr::null(), 0, 0, name.as_ptr()) };
    assert!(!handle.is_null(), "no event: {}", std::io::Error::last_os_error());
    // SAFETY: made just now; nobody else knows it.
    unsafe { OwnedHandle::from_raw_handle(handle) }
}

fn ring(event: &OwnedHandle) {
    // SAFETY: the handle is open.
    assert_ne!(unsafe { SetEvent(event.as_raw_handle()) }, 0);
}

fn wait(event: &OwnedHandle) {
    // SAFETY: the handle is open.
    let woke = unsafe { WaitForSingleObject(event.as_raw_handle(), INFINITE) };
    assert_eq!(woke, WAIT_OBJECT_0);
}
