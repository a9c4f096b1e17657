//! Converts between messages and what the control channel carries: bytes and kernel objects.

use bellwire_core::wire::{MAX_CONTROL, Message};

use crate::transport::object::Borrowed;
use crate::transport::pass::{Channel, ReceiveError, Received, SendError};
use crate::transport::prelude::*;

/// More objects than any message has. The handshake reports a wrong count with both numbers.
const MAX_OBJECTS: usize = 16;

/// A received control message, still in bytes, with its objects.
pub(crate) struct ControlMessage {
    bytes: [u8; MAX_CONTROL],
    pub(crate) received: Received,
}

impl ControlMessage {
    /// Returns the next message, if one has arrived. Never waits.
    pub(crate) fn receive(channel: &Channel) -> Result<Option<Self>, ReceiveError> {
        let mut bytes = [0; MAX_CONTROL];
        match channel.receive(&mut bytes, MAX_OBJECTS) {
            Ok(received) => Ok(Some(Self { bytes, received })),
            Err(ReceiveError::WouldBlock) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.received.len).unwrap_or(&[])
    }

    pub(crate) fn objects(&self) -> usize {
        self.received.count()
    }
}

/// Sends a message with its objects. Never waits.
pub(crate) fn send(
    channel: &Channel,
    message: &Message,
    objects: &[Borrowed<'_>],
) -> Result<(), SendError> {
    let mut bytes = [0; MAX_CONTROL];
    let len = message.encode(u16::try_from(objects.len()).unwrap_or(u16::MAX), &mut bytes);
    channel.send(bytes.get(..len).unwrap_or(&[]), objects)
}
