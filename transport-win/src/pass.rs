#![allow(
    unsafe_code,
    reason = "takes over the handles that a server has put into this process's table"
)]
//! Passes messages with handles over a pipe. Nothing here waits.
//!
//! The server moves all handles, since it opened the client's process. It duplicates its own handles into the client's table
//! before it sends their numbers, and duplicates the client's out when it receives their numbers. The client keeps the
//! handles that it offers until the server has confirmed that it took them, or the pipe is closed. So a handle that a client
//! offered and the server has not taken is lost when the client ends; a handle that the server sent belongs to the client,
//! whatever happens.
//!
//! | offset | size | field | meaning |
//! | --- | --- | --- | --- |
//! | 0x0 | 4 | handles | how many handles come with the message |
//! | 0x4 | 4 | taken | how many messages with handles the sender has taken so far, wrapping |
//! | 0x8 | 8 each | numbers | of the handles, in the client's table |
//! | | | message | as on every system; none where only `taken` is told |

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::windows::io::{AsHandle, BorrowedHandle, OwnedHandle};

use bellwire_core::wire::MAX_CONTROL;
use bellwire_shm::platform;
use windows_sys::Win32::Foundation::{
    ERROR_BROKEN_PIPE, ERROR_NO_DATA, ERROR_NO_SYSTEM_RESOURCES, ERROR_NOT_ENOUGH_MEMORY,
    ERROR_NOT_ENOUGH_QUOTA, ERROR_PIPE_NOT_CONNECTED,
};

use crate::handle::{self, Access, Number};
use crate::peer::Process;
use crate::pipe::{End, MAX_MESSAGE, Pipe, Read};
use crate::{OsError, Windows, reaper};

/// The maximum number of handles in one message.
pub const MAX_HANDLES: usize = 32;
/// How many messages a client searches for handles when it closes its end.
const MAX_CHECKED: usize = 1024;
/// The number of bytes before the handle numbers.
const PREFIX: usize = 8;
/// The size of a handle number in bytes.
const NUMBER: usize = 8;

const _: () = assert!(PREFIX + MAX_HANDLES * NUMBER + MAX_CONTROL <= MAX_MESSAGE);

/// Why a message was not sent.
pub type SendError = platform::SendError<Windows>;

/// Why no message was received.
pub type ReceiveError = platform::ReceiveError<Windows>;

/// A received message. Child processes do not inherit its handles.
pub type Received = bellwire_shm::Received<OwnedHandle>;

/// One end of a control pipe. Only one thread at a time may use it.
#[derive(Debug)]
pub struct Channel {
    pipe: Pipe,
    /// The client's process, on the server's side.
    reach: Option<Process>,
    /// A message whose handles could not be taken for lack of a resource; it is received again.
    left: RefCell<Option<Frame>>,
    /// Handles that this end has offered and the server has not taken yet, by message.
    offered: RefCell<VecDeque<Vec<OwnedHandle>>>,
    /// How many messages' handles the server has taken, according to its last message.
    told: Cell<u32>,
    /// How many messages' handles this end has taken.
    taken: Cell<u32>,
}

/// A message as received, before its handles are processed.
#[derive(Debug)]
struct Frame {
    numbers: Vec<u64>,
    message: Vec<u8>,
}

impl Channel {
    pub(crate) fn new(pipe: Pipe) -> Self {
        Self {
            pipe,
            reach: None,
            left: RefCell::default(),
            offered: RefCell::default(),
            told: Cell::new(0),
            taken: Cell::new(0),
        }
    }

    /// Sets the client's process on the server's end, opened with [`ProcessAccess::Handles`](crate::peer::ProcessAccess::Handles): handles
    /// can be passed from then on.
    pub fn reach(&mut self, process: Process) {
        self.reach = Some(process);
    }

    /// Returns whether the other end is open or has left messages in the pipe.
    pub(crate) fn is_open(&self) -> bool {
        self.pipe.check().is_ok()
    }

    pub(crate) fn pipe(&self) -> &Pipe {
        &self.pipe
    }

    /// Returns the next message from the pipe. Messages that only carry the taken count are processed here.
    fn next(&self) -> Result<Option<Frame>, ReceiveError> {
        let mut bytes = [0; MAX_MESSAGE];
        loop {
            let read = self.pipe.read(&mut bytes);
            let len = match read.map_err(|source| ReceiveError::System { source })? {
                Read::Message(len) => len,
                Read::TooLong => return Err(ReceiveError::TooLong { room: MAX_MESSAGE }),
                Read::Nothing => return Ok(None),
                Read::Closed => return Err(ReceiveError::Closed),
            };
            let (frame, taken) = Frame::parse(bytes.get(..len).unwrap_or(&[]))?;
            self.release(taken);
            if !frame.message.is_empty() || !frame.numbers.is_empty() {
                return Ok(Some(frame));
            }
        }
    }

    /// Closes handles that the server reports as taken. A false report breaks the session, which needs the handles.
    fn release(&self, taken: u32) {
        let more = taken.wrapping_sub(self.told.get());
        self.told.set(taken);
        let mut offered = self.offered.borrow_mut();
        let more = usize::try_from(more).unwrap_or(usize::MAX).min(offered.len());
        offered.drain(..more);
    }

    /// Turns a message's handle numbers into handles of this process.
    fn take(&self, numbers: &[u64], max: usize) -> Result<Vec<OwnedHandle>, ReceiveError> {
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let handles = match (self.pipe.end(), &self.reach) {
            (End::Client, _) => adopt(numbers),
            // If there are too many, take none.
            (End::Server, Some(client)) if numbers.len() <= max => pull(numbers, client),
            (End::Server, _) => Ok(Vec::new()),
        };
        if self.pipe.end() == End::Server && !matches!(handles, Err(ReceiveError::Short { .. })) {
            self.taken.set(self.taken.get().wrapping_add(1));
            // Fails if the pipe is full: then the next message carries the count.
            let _ = self.write(&[], &[]);
        }
        handles
    }

    /// Sends numbers of this process's handles, for the server to take.
    fn offer(&self, bytes: &[u8], handles: &[BorrowedHandle<'_>]) -> Result<(), SendError> {
        let kept: Result<Vec<_>, _> =
            handles.iter().map(|handle| handle::duplicate(handle, Access::Same)).collect();
        let kept = kept.map_err(|source| SendError::Handle { source })?;
        let numbers: Vec<_> = kept.iter().map(|handle| Number::of(handle.as_handle())).collect();
        self.write(&numbers, bytes)?;
        self.offered.borrow_mut().push_back(kept);
        Ok(())
    }

    /// Duplicates handles into the client's table and sends their numbers.
    fn push(
        &self,
        bytes: &[u8],
        handles: &[BorrowedHandle<'_>],
        client: &Process,
    ) -> Result<(), SendError> {
        let mut numbers = Vec::with_capacity(handles.len());
        let mut sent = Ok(());
        for handle in handles {
            match handle::push(*handle, client.as_handle()) {
                Ok(number) => numbers.push(number),
                Err(source) => {
                    sent = Err(SendError::Handle { source });
                    break;
                }
            }
        }
        let sent = sent.and_then(|()| self.write(&numbers, bytes));
        if sent.is_err() {
            for number in numbers {
                // SAFETY: pushed above, and the message that names it was not sent.
                unsafe { handle::take_back(number, client.as_handle()) };
            }
        }
        sent
    }

    fn write(&self, numbers: &[Number], message: &[u8]) -> Result<(), SendError> {
        let mut bytes = Vec::with_capacity(MAX_MESSAGE);
        let count = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        bytes.extend(count.to_le_bytes());
        bytes.extend(self.taken.get().to_le_bytes());
        bytes.extend(numbers.iter().flat_map(|number| number.value().to_le_bytes()));
        bytes.extend(message);
        match self.pipe.write(&bytes) {
            Ok(true) => Ok(()),
            Ok(false) => Err(SendError::WouldBlock),
            Err(source) => Err(match source.code() {
                ERROR_BROKEN_PIPE | ERROR_NO_DATA | ERROR_PIPE_NOT_CONNECTED => SendError::Gone,
                _ => SendError::System { source },
            }),
        }
    }
}

impl platform::Channel<Windows> for Channel {
    const CARRIES_NETIPC: bool = false;
    /// Handles that a client offered and the server did not take end with the client: see [`crate::pass`].
    const LOSS: Option<OsError> = Some(OsError::new(ERROR_BROKEN_PIPE));

    fn arrived(&self) -> BorrowedHandle<'_> {
        self.pipe.arrived().as_handle()
    }

    fn send(&self, bytes: &[u8], handles: &[BorrowedHandle<'_>]) -> Result<(), SendError> {
        if bytes.len() > MAX_CONTROL {
            return Err(SendError::TooLong { len: bytes.len() });
        }
        if handles.len() > MAX_HANDLES {
            return Err(SendError::TooManyObjects { count: handles.len(), max: MAX_HANDLES });
        }
        match (self.pipe.end(), &self.reach) {
            _ if handles.is_empty() => self.write(&[], bytes),
            (End::Client, _) => self.offer(bytes, handles),
            (End::Server, Some(client)) => self.push(bytes, handles, client),
            (End::Server, None) => Err(SendError::NoReach),
        }
    }

    fn receive(&self, buf: &mut [u8], max: usize) -> Result<Received, ReceiveError> {
        let left = self.left.take();
        let frame = match left {
            Some(frame) => frame,
            None => self.next()?.ok_or(ReceiveError::WouldBlock)?,
        };
        let room = buf.len();
        let count = frame.numbers.len();
        let handles = match self.take(&frame.numbers, max) {
            Err(error @ ReceiveError::Short { .. }) => {
                self.left.replace(Some(frame));
                return Err(error);
            }
            handles => handles,
        };
        // From here on dropping `received` reaps its handles.
        let received = Received::new(frame.message.len(), handles?, reaper::reap);
        if count > max {
            return Err(ReceiveError::TooManyObjects { count, max });
        }
        let Some(start) = buf.get_mut(..received.len) else {
            return Err(ReceiveError::TooLong { room });
        };
        start.copy_from_slice(&frame.message);
        Ok(received)
    }

    fn catch_up(&self) -> bool {
        self.pipe.catch_up();
        true
    }

    /// Returns the client's process, if this is the server's end and the process was opened.
    fn process(&self) -> Option<&Process> {
        self.reach.as_ref()
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // Close handles that the server put into this process's table and that nobody received.
        if self.pipe.end() == End::Client {
            for _ in 0..MAX_CHECKED {
                let Ok(Some(frame)) = self.next() else { break };
                adopt(&frame.numbers).into_iter().flatten().for_each(reaper::reap);
            }
        }
    }
}

impl Frame {
    /// Parses a message, and how many its sender has taken.
    fn parse(bytes: &[u8]) -> Result<(Self, u32), ReceiveError> {
        let (count, rest) = bytes.split_first_chunk::<4>().ok_or(ReceiveError::TooShort)?;
        let (taken, rest) = rest.split_first_chunk::<4>().ok_or(ReceiveError::TooShort)?;
        let count = usize::try_from(u32::from_le_bytes(*count)).unwrap_or(usize::MAX);
        if count > MAX_HANDLES {
            return Err(ReceiveError::TooManyObjects { count, max: MAX_HANDLES });
        }
        let (numbers, message) =
            rest.split_at_checked(count * NUMBER).ok_or(ReceiveError::TooShort)?;
        let (numbers, _) = numbers.as_chunks::<NUMBER>();
        let numbers = numbers.iter().map(|number| u64::from_le_bytes(*number)).collect();
        Ok((Self { numbers, message: message.to_vec() }, u32::from_le_bytes(*taken)))
    }
}

/// Takes over handles that the server put into this process's table.
fn adopt(numbers: &[u64]) -> Result<Vec<OwnedHandle>, ReceiveError> {
    let numbers: Option<Vec<_>> = numbers.iter().map(|number| Number::parse(*number)).collect();
    // A server that names what is not its to give harms this process, as it could without: it may open this
    // process and close any handle there. So a client connects to trusted servers only.
    // SAFETY: the server put them there for this message, as the protocol says.
    let adopt = |number| unsafe { handle::adopt(number) };
    Ok(numbers.ok_or(ReceiveError::NoHandle)?.into_iter().map(adopt).collect())
}

/// Takes handles that a client offers.
fn pull(numbers: &[u64], client: &Process) -> Result<Vec<OwnedHandle>, ReceiveError> {
    let mut handles = Vec::with_capacity(numbers.len());
    for number in numbers {
        let pulled = Number::parse(*number).ok_or(ReceiveError::NoHandle).and_then(|number| {
            handle::pull(number, client.as_handle()).map_err(|source| match source.code() {
                ERROR_NO_SYSTEM_RESOURCES | ERROR_NOT_ENOUGH_MEMORY | ERROR_NOT_ENOUGH_QUOTA => {
                    ReceiveError::Short { source }
                }
                _ => ReceiveError::Handle { source },
            })
        });
        match pulled {
            Ok(handle) => handles.push(handle),
            Err(error) => {
                handles.into_iter().for_each(reaper::reap);
                return Err(error);
            }
        }
    }
    Ok(handles)
}
