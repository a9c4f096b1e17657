#![allow(unsafe_code, reason = "named pipes; every handle is owned at once")]
//! Instances of a pipe: those that listen, and a client's end.

use std::fmt::Write as _;
use std::os::windows::io::{AsHandle, AsRawHandle, OwnedHandle};
use std::ptr::{self, NonNull};

use bellwire_core::Instant;
use windows_sys::Win32::Foundation::{
    ERROR_FILE_NOT_FOUND, ERROR_IO_INCOMPLETE, ERROR_IO_PENDING, ERROR_PIPE_CONNECTED,
    ERROR_SEM_TIMEOUT, HANDLE,
};
use windows_sys::Win32::Storage::FileSystem::{
    CreateFileW, FILE_APPEND_DATA, FILE_FLAG_FIRST_PIPE_INSTANCE, FILE_FLAG_OVERLAPPED,
    FILE_GENERIC_READ, FILE_GENERIC_WRITE, OPEN_EXISTING, PIPE_ACCESS_DUPLEX,
    SECURITY_IDENTIFICATION, SECURITY_SQOS_PRESENT,
};
use windows_sys::Win32::System::IO::{CancelIoEx, GetOverlappedResult, OVERLAPPED};
use windows_sys::Win32::System::Pipes::{
    ConnectNamedPipe, CreateNamedPipeW, NAMED_PIPE_MODE, PIPE_READMODE_MESSAGE,
    PIPE_REJECT_REMOTE_CLIENTS, PIPE_TYPE_MESSAGE, PIPE_UNLIMITED_INSTANCES, PIPE_WAIT,
    SetNamedPipeHandleState, WaitNamedPipeW,
};

use crate::doorbell::Event;
use crate::handle::made;
use crate::peer::Sid;
use crate::security::Descriptor;
use crate::{OsError, clock};

/// How many bytes each direction of a pipe holds before a sender has to wait.
const BUFFER: u32 = 16 << 10;
/// Whole messages; no remote clients.
const MODE: NAMED_PIPE_MODE =
    PIPE_TYPE_MESSAGE | PIPE_READMODE_MESSAGE | PIPE_WAIT | PIPE_REJECT_REMOTE_CLIENTS;
/// A client's access to its end. Without `FILE_APPEND_DATA`, which on a pipe is the right to create another instance: with it
/// a client could impersonate the server.
const CLIENT_RIGHTS: u32 = FILE_GENERIC_READ | (FILE_GENERIC_WRITE & !FILE_APPEND_DATA);
/// How long one wait for a free instance may miss that the service has stopped.
const BUSY_SLICE: u32 = 50;

const _: () = assert!(MODE & PIPE_REJECT_REMOTE_CLIENTS != 0);

/// The pipe's access rights, as text.
#[derive(Debug)]
pub(super) struct Rights(String);

/// An instance of the pipe to which no client is known to have connected yet.
#[derive(Debug)]
pub(super) struct Listening {
    // `None` once a client has it.
    handle: Option<OwnedHandle>,
    // Allocated separately: the system writes there until a client connects. `None` if a client connected first.
    overlapped: Option<NonNull<OVERLAPPED>>,
}

// SAFETY: the OVERLAPPED belongs to the instance alone, and the system does not mind which thread asks for it.
unsafe impl Send for Listening {}

impl Rights {
    /// Creates the rights: the pipe belongs to this user, who may do everything; the admitted users may connect. There is no
    /// entry against network logons, since a local client in a remote shell has one; the pipe mode rejects remote clients.
    pub(super) fn new(own: Sid, admitted: &[Sid]) -> Self {
        let mut text = format!("O:{own}D:P(A;;GA;;;{own})");
        for user in admitted {
            let _ = write!(text, "(A;;{CLIENT_RIGHTS:#x};;;{user})");
        }
        Self(text)
    }
}

impl Listening {
    pub(super) fn open(
        pipe: &str,
        rights: &Rights,
        arrived: &Event,
        first: bool,
    ) -> Result<Self, OsError> {
        let rights = Descriptor::parse(&rights.0)?;
        let first = if first { FILE_FLAG_FIRST_PIPE_INSTANCE } else { 0 };
        let name = wide(pipe);
        // SAFETY: `name` ends with a zero; both it and `rights` live until the call is over.
        let handle = unsafe {
            CreateNamedPipeW(
                name.as_ptr(),
                PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED | first,
                MODE,
                PIPE_UNLIMITED_INSTANCES,
                BUFFER,
                BUFFER,
                0,
                &rights.attributes(),
            )
        };
        // SAFETY: made just now; nobody else knows it.
        let handle = unsafe { made(handle) }?;
        let mut listening = Self { handle: Some(handle), overlapped: None };
        let event = arrived.as_handle().as_raw_handle();
        let overlapped = Box::new(OVERLAPPED { hEvent: event, ..OVERLAPPED::default() });
        let overlapped = NonNull::from(Box::leak(overlapped));
        // SAFETY: the OVERLAPPED lives until the wait is over: `close` sees to that.
        let done = unsafe { ConnectNamedPipe(listening.raw(), overlapped.as_ptr()) };
        let error = OsError::last();
        if done == 0 && error.code() == ERROR_IO_PENDING {
            listening.overlapped = Some(overlapped);
            return Ok(listening);
        }
        // SAFETY: leaked above; the system does not use it.
        drop(unsafe { Box::from_raw(overlapped.as_ptr()) });
        match error.code() {
            _ if done != 0 => Ok(listening),
            ERROR_PIPE_CONNECTED => Ok(listening),
            _ => Err(error),
        }
    }

    /// Returns whether the wait for a client is over, successfully or not.
    pub(super) fn is_over(&self) -> bool {
        self.overlapped.is_none() || self.result() != Err(ERROR_IO_INCOMPLETE)
    }

    /// Returns the instance if a client has connected to it.
    pub(super) fn into_connected(mut self) -> Option<OwnedHandle> {
        let connected = self.overlapped.is_none() || self.result().is_ok();
        self.close();
        self.handle.take().filter(|_| connected)
    }

    /// Returns how the wait for a client ended; `ERROR_IO_INCOMPLETE` if it has not.
    fn result(&self) -> Result<(), u32> {
        let Some(overlapped) = self.overlapped else { return Ok(()) };
        let mut len = 0;
        // SAFETY: the OVERLAPPED of this instance's wait, which lives as long as the field is set.
        let done = unsafe { GetOverlappedResult(self.raw(), overlapped.as_ptr(), &mut len, 0) };
        if done == 0 { Err(OsError::last().code()) } else { Ok(()) }
    }

    fn raw(&self) -> HANDLE {
        self.handle.as_ref().map_or(ptr::null_mut(), AsRawHandle::as_raw_handle)
    }

    /// Ends the wait.
    fn close(&mut self) {
        let Some(overlapped) = self.overlapped else { return };
        // SAFETY: as in `result`.
        let _ = unsafe { CancelIoEx(self.raw(), overlapped.as_ptr()) };
        // The wait was cancelled or is over, but the memory belongs to the system until it reports so. The event does not
        // help: all instances share it, and it may be set for another one.
        while self.result() == Err(ERROR_IO_INCOMPLETE) {
            std::thread::yield_now();
        }
        self.overlapped = None;
        // SAFETY: leaked by `open`, and freed once; the system does not use it any more.
        drop(unsafe { Box::from_raw(overlapped.as_ptr()) });
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.close();
    }
}

/// Opens a client's end.
pub(super) fn open(pipe: &str) -> Result<OwnedHandle, OsError> {
    let name = wide(pipe);
    // The server may identify this client but not impersonate it.
    let flags = FILE_FLAG_OVERLAPPED | SECURITY_SQOS_PRESENT | SECURITY_IDENTIFICATION;
    // SAFETY: `name` ends with a zero and lives until the call is over.
    let handle = unsafe {
        CreateFileW(
            name.as_ptr(),
            CLIENT_RIGHTS,
            0,
            ptr::null(),
            OPEN_EXISTING,
            flags,
            ptr::null_mut(),
        )
    };
    // SAFETY: opened just now; nobody else knows it.
    let handle = unsafe { made(handle) }?;
    // SAFETY: the handle is open; the mode is a live constant, and nothing else is set.
    let done = unsafe {
        SetNamedPipeHandleState(
            handle.as_raw_handle(),
            &PIPE_READMODE_MESSAGE,
            ptr::null(),
            ptr::null(),
        )
    };
    if done == 0 { Err(OsError::last()) } else { Ok(handle) }
}

/// Waits a moment for a free instance.
pub(super) fn wait_for_instance(pipe: &str, deadline: Option<Instant>) -> Result<(), OsError> {
    let name = wide(pipe);
    let millis = clock::left(deadline).clamp(1, BUSY_SLICE);
    // SAFETY: `name` ends with a zero and lives until the call is over.
    if unsafe { WaitNamedPipeW(name.as_ptr(), millis) } != 0 {
        return Ok(());
    }
    match OsError::last() {
        // The next attempt to open it will show.
        error if [ERROR_SEM_TIMEOUT, ERROR_FILE_NOT_FOUND].contains(&error.code()) => Ok(()),
        error => Err(error),
    }
}

fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}
