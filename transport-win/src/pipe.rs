#![allow(
    unsafe_code,
    reason = "overlapped reads and writes, whose memory the system uses meanwhile"
)]
//! One end of a pipe that carries whole messages. Nothing here waits.

use std::cell::{Cell, UnsafeCell};
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, OwnedHandle};
use std::ptr::{self, NonNull};
use std::time::Duration;

use windows_sys::Win32::Foundation::{
    ERROR_BROKEN_PIPE, ERROR_IO_INCOMPLETE, ERROR_IO_PENDING, ERROR_MORE_DATA, ERROR_NO_DATA,
    ERROR_OPERATION_ABORTED, ERROR_PIPE_NOT_CONNECTED,
};
use windows_sys::Win32::Storage::FileSystem::{ReadFile, WriteFile};
use windows_sys::Win32::System::IO::{CancelIoEx, GetOverlappedResult, OVERLAPPED};
use windows_sys::Win32::System::Pipes::PeekNamedPipe;

use crate::doorbell::Event;
use crate::prelude::*;
use crate::{OsError, clock, poll};

/// The longest message, in bytes.
pub(crate) const MAX_MESSAGE: usize = 1024;

/// How long to wait for the end of a cancelled read before the next check.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// Which end of a pipe this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    /// The end that listened.
    Server,
    /// The end that connected.
    Client,
}

/// The result of a read.
#[derive(Debug)]
pub(crate) enum Read {
    /// A message of this many bytes.
    Message(usize),
    /// A message that is longer than allowed.
    TooLong,
    /// No message now.
    Nothing,
    /// The other end closed, and its messages were read.
    Closed,
}

/// One end of a connected pipe. A read is always pending, so that a wait for [`Pipe::arrived`] ends when there is a message
/// or the other end is closed.
#[derive(Debug)]
pub(crate) struct Pipe {
    handle: OwnedHandle,
    end: End,
    arrived: Event,
    // Allocated separately: the system writes there while a read is pending.
    slot: NonNull<Slot>,
    state: Cell<State>,
}

struct Slot {
    overlapped: UnsafeCell<OVERLAPPED>,
    bytes: UnsafeCell<[u8; MAX_MESSAGE]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A read is pending; the system uses the slot.
    UnderWay,
    /// No read is pending; the system does not use the slot.
    Closed,
}

// SAFETY: the slot belongs to the pipe alone, and the system does not mind which thread asks for it.
unsafe impl Send for Pipe {}

impl Pipe {
    /// Takes over a connected pipe and starts to read.
    pub(crate) fn new(handle: OwnedHandle, end: End) -> Result<Self, OsError> {
        let arrived = Event::manual_reset()?;
        let slot = Box::new(Slot {
            overlapped: UnsafeCell::default(),
            bytes: UnsafeCell::new([0; MAX_MESSAGE]),
        });
        let slot = NonNull::from(Box::leak(slot));
        let pipe = Self { handle, end, arrived, slot, state: Cell::new(State::Closed) };
        pipe.start();
        Ok(pipe)
    }

    pub(crate) fn end(&self) -> End {
        self.end
    }

    /// Returns an event that is set while there is a message or the other end is closed.
    pub(crate) fn arrived(&self) -> &Event {
        &self.arrived
    }

    /// Reads a message into `into`, if there is one.
    pub(crate) fn read(&self, into: &mut [u8; MAX_MESSAGE]) -> Result<Read, OsError> {
        if self.state.get() == State::Closed {
            return Ok(Read::Closed);
        }
        let mut ended = self.result();
        if ended.is_err_and(is_incomplete) {
            // Another thread may have started the previous read and set its event only after this one was started. The system
            // records the end of a read before it sets the event, so it is not lost.
            self.arrived.reset();
            ended = self.result();
        }
        if ended.is_err_and(is_incomplete) {
            return Ok(Read::Nothing);
        }
        self.state.set(State::Closed);
        let read = match ended.map_err(OsError::code) {
            Ok(len) => {
                // SAFETY: no read is under way: the bytes are this thread's alone.
                let bytes = unsafe { &*self.slot().bytes.get() };
                into.copy_from_slice(bytes);
                self.start();
                Ok(Read::Message(usize::try_from(len).unwrap_or(0)))
            }
            Err(ERROR_MORE_DATA) => Ok(Read::TooLong),
            // The thread that started the read has ended: nothing else cancels it before `drop`.
            Err(ERROR_OPERATION_ABORTED) => {
                self.start();
                Ok(Read::Nothing)
            }
            Err(ERROR_BROKEN_PIPE | ERROR_PIPE_NOT_CONNECTED | ERROR_NO_DATA) => Ok(Read::Closed),
            Err(code) => Err(OsError::new(code)),
        };
        if self.state.get() == State::Closed {
            self.arrived.ring();
        }
        read
    }

    /// Makes sure that [`Pipe::read`] finds messages written before this call. The system reports the end of a read by
    /// interrupting the thread that started it, possibly a moment after the other end's next action.
    pub(crate) fn catch_up(&self) {
        if self.state.get() != State::UnderWay {
            return;
        }
        if self.take_back().is_err_and(|error| error.code() == ERROR_OPERATION_ABORTED) {
            // A read that finds a message completes immediately.
            self.start();
        }
    }

    /// Cancels the pending read, unless it has completed.
    fn take_back(&self) -> Result<u32, OsError> {
        // SAFETY: the OVERLAPPED of the read that is under way, or has just ended.
        let _ = unsafe { CancelIoEx(self.raw(), self.slot().overlapped.get()) };
        // A cancelled read ends soon. Its event may still be set for the read before (see `read`), so reset it before each
        // check and restore it at the end.
        loop {
            self.arrived.reset();
            match self.result() {
                Err(error) if is_incomplete(error) => {
                    let soon = clock::now().after(RETRY_AFTER);
                    let _ = poll::wait(&[self.arrived.as_handle()], Some(soon));
                }
                ended => {
                    self.arrived.ring();
                    return ended;
                }
            }
        }
    }

    /// Returns the message's length or the error of the completed read; or that it is still pending.
    fn result(&self) -> Result<u32, OsError> {
        let (overlapped, mut len) = (self.slot().overlapped.get(), 0);
        // SAFETY: the slot's own OVERLAPPED, of the read that is under way, or has just ended.
        let done = unsafe { GetOverlappedResult(self.raw(), overlapped, &mut len, 0) };
        if done == 0 { Err(OsError::last()) } else { Ok(len) }
    }

    /// Writes one message. Returns false if there is no room now: then nothing of it was written.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<bool, OsError> {
        let written = Event::manual_reset()?;
        let mut overlapped =
            OVERLAPPED { hEvent: written.as_handle().as_raw_handle(), ..OVERLAPPED::default() };
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        // SAFETY: `bytes` and `overlapped` live until the end of this function, which does not return before
        // the write is over.
        let done =
            unsafe { WriteFile(self.raw(), bytes.as_ptr(), len, ptr::null_mut(), &mut overlapped) };
        if done != 0 {
            return Ok(true);
        }
        let error = OsError::last();
        if error.code() != ERROR_IO_PENDING {
            return Err(error);
        }
        // It does not fit now. The result below shows whether it was written meanwhile.
        // SAFETY: `overlapped` is that of the write.
        let _ = unsafe { CancelIoEx(self.raw(), &raw const overlapped) };
        let mut count = 0;
        // SAFETY: as above. It waits for the end of the write, which was just cancelled.
        if unsafe { GetOverlappedResult(self.raw(), &raw const overlapped, &mut count, 1) } != 0 {
            return Ok(true);
        }
        match OsError::last() {
            error if error.code() == ERROR_OPERATION_ABORTED => Ok(false),
            error => Err(error),
        }
    }

    /// Checks that both ends are still open.
    pub(crate) fn check(&self) -> Result<(), OsError> {
        let nothing = ptr::null_mut();
        // SAFETY: asks for nothing but success; the handle is open.
        let done = unsafe {
            PeekNamedPipe(self.raw(), nothing, 0, ptr::null_mut(), ptr::null_mut(), ptr::null_mut())
        };
        if done == 0 { Err(OsError::last()) } else { Ok(()) }
    }

    /// Starts to read the next message, unless the other end is closed: then the event stays set.
    fn start(&self) {
        self.state.set(State::Closed);
        let slot = self.slot();
        // SAFETY: no read is under way: the slot is this thread's alone.
        let overlapped = unsafe { &mut *slot.overlapped.get() };
        *overlapped = OVERLAPPED {
            hEvent: self.arrived.as_handle().as_raw_handle(),
            ..OVERLAPPED::default()
        };
        let room = u32::try_from(MAX_MESSAGE).unwrap_or(0);
        // SAFETY: the slot lives until the read is over: `drop` waits for that.
        let done = unsafe {
            ReadFile(self.raw(), slot.bytes.get().cast(), room, ptr::null_mut(), overlapped)
        };
        // A read that completes immediately leaves its result in the slot like any other.
        let going =
            done != 0 || matches!(OsError::last().code(), ERROR_IO_PENDING | ERROR_MORE_DATA);
        if going {
            self.state.set(State::UnderWay);
        } else {
            self.arrived.ring();
        }
    }

    fn slot(&self) -> &Slot {
        // SAFETY: allocated by `new` and freed by `drop`. What the system writes is behind UnsafeCell.
        unsafe { self.slot.as_ref() }
    }

    fn raw(&self) -> *mut std::ffi::c_void {
        self.handle.as_raw_handle()
    }
}

/// Returns whether the error means that a read is still pending.
fn is_incomplete(error: OsError) -> bool {
    matches!(error.code(), ERROR_IO_INCOMPLETE | ERROR_IO_PENDING)
}

impl AsHandle for Pipe {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.handle.as_handle()
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if self.state.get() == State::UnderWay {
            let _ = self.take_back();
        }
        // SAFETY: leaked by `new`, and freed once; no read is under way.
        drop(unsafe { Box::from_raw(self.slot.as_ptr()) });
    }
}
