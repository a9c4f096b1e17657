#![allow(unsafe_code, reason = "named pipes; every handle is owned at once")]
//! A named pipe in message mode, used as its documentation does: a thread for each client that reads and writes, and
//! a client that sends a request and waits for the answer in one call
//! ([`TransactNamedPipe`](https://learn.microsoft.com/en-us/windows/win32/api/namedpipeapi/nf-namedpipeapi-transactnamedpipe)).

use std::fs::{File, OpenOptions};
use std::io::{Error, Read, Write};
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::{ERROR_PIPE_BUSY, ERROR_PIPE_CONNECTED, INVALID_HANDLE_VALUE};
use windows_sys::Win32::Storage::FileSystem::PIPE_ACCESS_DUPLEX;
use windows_sys::Win32::System::Pipes::{
    ConnectNamedPipe, CreateNamedPipeW, NMPWAIT_WAIT_FOREVER, PIPE_READMODE_MESSAGE,
    PIPE_TYPE_MESSAGE, PIPE_UNLIMITED_INSTANCES, PIPE_WAIT, SetNamedPipeHandleState,
    TransactNamedPipe, WaitNamedPipeW,
};

/// What each direction holds, and the longest message, in bytes.
const ROOM: u32 = 4096;
/// The first byte of a message that nobody answers.
pub(crate) const ONE_WAY: u8 = 1;

/// The server's end, before somebody has connected.
pub(crate) struct Listening {
    name: Vec<u16>,
    instance: File,
}

/// A client's end.
pub(crate) struct Client(File);

impl Listening {
    pub(crate) fn open(name: &str) -> Self {
        let name = wide(name);
        let instance = instance(&name);
        Self { name, instance }
    }

    /// Answers each client on a thread of its own.
    pub(crate) fn serve(mut self) -> ! {
        loop {
            // SAFETY: the handle is open, and not for overlapped use.
            let done = unsafe { ConnectNamedPipe(self.instance.as_raw_handle(), ptr::null_mut()) };
            let error = Error::last_os_error();
            // One that has come and gone is reported by the first read.
            let is_here =
                done != 0 || error.raw_os_error() == Some(ERROR_PIPE_CONNECTED.cast_signed());
            let next = instance(&self.name);
            let connected = std::mem::replace(&mut self.instance, next);
            if is_here {
                thread::spawn(move || answer(connected));
            }
        }
    }
}

impl Client {
    pub(crate) fn connect(name: &str) -> Self {
        let pipe = loop {
            match OpenOptions::new().read(true).write(true).open(name) {
                Ok(pipe) => break pipe,
                Err(error) if error.raw_os_error() == Some(ERROR_PIPE_BUSY.cast_signed()) => {
                    // SAFETY: the name ends with a zero and lives until the call is over.
                    unsafe { WaitNamedPipeW(wide(name).as_ptr(), NMPWAIT_WAIT_FOREVER) };
                }
                Err(error) => panic!("{name}: {error}"),
            }
        };
        let mode = PIPE_READMODE_MESSAGE;
        // SAFETY: the handle is open; `mode` is a live local.
        let done = unsafe {
            SetNamedPipeHandleState(pipe.as_raw_handle(), &mode, ptr::null(), ptr::null())
        };
        assert_ne!(done, 0, "{}", Error::last_os_error());
        Self(pipe)
    }

    /// Sends a request and waits for its answer, which is the same.
    pub(crate) fn call(&mut self, request: &[u8]) {
        let (mut answer, mut len) = ([0; ROOM as usize], 0);
        // SAFETY: request, answer and `len` live until the call is over, which is when the answer is there: the handle
        // is not for overlapped use.
        let done = unsafe {
            TransactNamedPipe(
                self.0.as_raw_handle(),
                request.as_ptr().cast(),
                u32::try_from(request.len()).unwrap(),
                answer.as_mut_ptr().cast(),
                ROOM,
                &mut len,
                ptr::null_mut(),
            )
        };
        assert_ne!(done, 0, "{}", Error::last_os_error());
        assert_eq!(&answer[..usize::try_from(len).unwrap()], request);
    }

    /// Sends so many messages, the last of which is answered: the other end has them all.
    pub(crate) fn stream(&mut self, size: usize, count: u32) -> Duration {
        let message = vec![ONE_WAY; size];
        let began = Instant::now();
        for _ in 1..count {
            self.0.write_all(&message).unwrap();
        }
        self.call(&vec![0; size]);
        began.elapsed()
    }
}

/// Answers one client with what it sends, until it is gone.
fn answer(mut pipe: File) {
    let mut bytes = [0; ROOM as usize];
    while let Ok(len @ 1..) = pipe.read(&mut bytes) {
        if bytes[0] != ONE_WAY && pipe.write_all(&bytes[..len]).is_err() {
            return;
        }
    }
}

fn instance(name: &[u16]) -> File {
    let mode = PIPE_TYPE_MESSAGE | PIPE_READMODE_MESSAGE | PIPE_WAIT;
    // SAFETY: `name` ends with a zero and lives until the call is over.
    let handle = unsafe {
        CreateNamedPipeW(
            name.as_ptr(),
            PIPE_ACCESS_DUPLEX,
            mode,
            PIPE_UNLIMITED_INSTANCES,
            ROOM,
            ROOM,
            0,
            ptr::null(),
        )
    };
    assert_ne!(handle, INVALID_HANDLE_VALUE, "{}", Error::last_os_error());
    // SAFETY: made just now; nobody else knows it.
    unsafe { OwnedHandle::from_raw_handle(handle) }.into()
}

fn wide(name: &str) -> Vec<u16> {
    name.encode_utf16().chain([0]).collect()
}
