//! Control messages over the control socket: bytes and descriptors in, messages out.

use std::os::fd::{AsFd, BorrowedFd};

use bellwire_core::wire::{MAX_CONTROL, Message};

use crate::transport::pass::{self, ReceiveError, Received, SendError};

/// More descriptors than any message has: a count that is off is told by the handshake, with both numbers.
const MAX_FDS: usize = 16;

/// A control message that was received, still in bytes, with the descriptors that came with it.
pub(crate) struct Incoming {
    bytes: [u8; MAX_CONTROL],
    pub(crate) received: Received,
}

impl Incoming {
    /// The next message, if one has arrived. Never waits.
    pub(crate) fn receive(socket: impl AsFd) -> Result<Option<Self>, ReceiveError> {
        let mut bytes = [0; MAX_CONTROL];
        match pass::receive(socket.as_fd(), &mut bytes, MAX_FDS) {
            Ok(received) => Ok(Some(Self { bytes, received })),
            Err(ReceiveError::WouldBlock) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.received.len).unwrap_or(&[])
    }

    pub(crate) fn fds(&self) -> usize {
        self.received.fd_count()
    }
}

/// Sends a message with its descriptors. Never waits.
pub(crate) fn send(
    socket: impl AsFd,
    message: &Message,
    fds: &[BorrowedFd<'_>],
) -> Result<(), SendError> {
    let mut bytes = [0; MAX_CONTROL];
    let len = message.encode(u16::try_from(fds.len()).unwrap_or(u16::MAX), &mut bytes);
    pass::send(socket.as_fd(), bytes.get(..len).unwrap_or(&[]), fds)
}
