//! The control socket of one end after the handshake: sends and receives rings, lanes and attachments.
//!
//! ```text
//! Control           which message is expected, what it may carry, how it is handled      the same on every system
//! Mailbox           messages that no record has asked for yet
//! ControlTransport  moves one message and its memory; never blocks     a socket, a pipe, the simulator
//! ```

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::lane::Epoch;
use crate::mailbox::Mailbox;
use crate::resize::{FollowError, Shortage};
use crate::wire::{Attachment, MAX_CONTROL, Message};
use crate::{Limits, PeerFault};

/// How many messages are received at once, so that a peer that floods the socket holds nobody up. About 50 µs.
const MAX_PER_POLL: usize = 32;
/// How many messages are received for a record that refers to one, or before a wait.
const MAX_PER_WAIT: usize = 1024;
/// How long a wait ignores rings behind a message that cannot be received for lack of a resource. That message would
/// end every wait immediately, so the waiter polls the words at this interval instead.
pub const BLOCKED_SLICE: Duration = Duration::from_millis(1);

/// Moves whole messages and their memory between two ends. Never blocks.
pub trait ControlTransport {
    /// Memory that the peer passed and that is not checked yet: a descriptor, a handle.
    type Memory;
    /// Memory that is borrowed to be passed.
    type BorrowedMemory<'a>
    where
        Self: 'a;

    /// Sends one message with that memory. It is no error if the peer is gone: nobody will read the message.
    ///
    /// # Errors
    /// [`Shortage`]: nothing of it was sent. The caller fills in its `bytes`.
    fn send(
        &self,
        message: &[u8],
        memory: Option<Self::BorrowedMemory<'_>>,
    ) -> Result<(), Shortage>;

    /// Receives the next message. The memory of a refused message is closed as by [`ControlTransport::close`].
    ///
    /// # Errors
    /// [`FollowError::Short`]: the message does not fit into this process now, and remains in the socket.
    /// [`FollowError::Peer`]: the message carries an object that cannot be memory of the peer.
    fn receive(
        &self,
        into: &mut [u8; MAX_CONTROL],
    ) -> Result<ReceiveOutcome<Self::Memory>, FollowError>;

    /// Closes unchecked memory, in a place where closing may block.
    fn close(memory: Vec<Self::Memory>);

    /// Makes [`ControlTransport::receive`] find everything sent before this call. Returns whether that can make a
    /// difference.
    fn catch_up(&self) -> bool {
        false
    }

    /// Returns the error for announced memory that has not arrived, if this transport loses memory when the peer that
    /// passed it is gone. Returns `None` where the socket keeps it: then the peer violated the protocol.
    fn lost(&self) -> Option<Shortage> {
        None
    }
}

/// The outcome of a receive.
#[derive(Debug)]
pub enum ReceiveOutcome<M> {
    /// A message of `len` bytes, with its memory.
    Message {
        /// Its length in bytes.
        len: usize,
        /// The memory that came with it, any number of pieces.
        memory: Vec<M>,
    },
    /// A message longer than the protocol allows.
    TooLong,
    /// A message with more memory than the protocol allows.
    TooMany {
        /// The number of pieces.
        count: usize,
    },
    /// No message now.
    Nothing,
    /// End of stream: the peer closed the socket, and everything before was received.
    End,
}

/// The state of the control socket after a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainOutcome {
    /// Empty: everything was received.
    Nothing,
    /// Possibly more: the limit of messages received at once was reached.
    Flood,
    /// More messages, which stay in the socket until records ask for them: enough memory is pending.
    More,
    /// End of stream: the peer closed the socket, and everything before was received.
    End,
}

/// What one end has received on its control socket. When dropped, unchecked memory goes to
/// [`ControlTransport::close`].
pub struct Control<C: ControlTransport> {
    mailbox: Mailbox<C::Memory>,
    /// A protocol violation that was found during a wait.
    fault: Option<PeerFault>,
}

/// Rings the peer. A full socket already holds a ring; a closed one has no peer to ring.
pub fn ring<C: ControlTransport>(transport: &C) {
    let mut encoded = [0; MAX_CONTROL];
    let len = Message::Ring.encode(0, &mut encoded);
    let _ = transport.send(encoded.get(..len).unwrap_or(&encoded), None);
}

/// Passes the memory for a lane's next epoch.
///
/// # Errors
/// [`Shortage`]: the memory was not passed.
pub fn pass_lane<C: ControlTransport>(
    transport: &C,
    epoch: Epoch,
    lane: C::BorrowedMemory<'_>,
) -> Result<(), Shortage> {
    pass(transport, &Message::Lane(epoch), epoch.size.size(), lane)
}

/// Passes an attachment for the Attach record with its id.
///
/// # Errors
/// [`Shortage`]: the memory was not passed.
pub fn pass_attachment<C: ControlTransport>(
    transport: &C,
    attachment: Attachment,
    memory: C::BorrowedMemory<'_>,
) -> Result<(), Shortage> {
    pass(transport, &Message::Attachment(attachment), attachment.len, memory)
}

fn pass<C: ControlTransport>(
    transport: &C,
    message: &Message,
    bytes: u64,
    memory: C::BorrowedMemory<'_>,
) -> Result<(), Shortage> {
    let mut encoded = [0; MAX_CONTROL];
    let len = message.encode(1, &mut encoded);
    let encoded = encoded.get(..len).unwrap_or(&encoded);
    transport.send(encoded, Some(memory)).map_err(|short| Shortage { bytes, ..short })
}

impl<C: ControlTransport> Control<C> {
    /// Creates an empty state; the peer knows these limits.
    pub fn new(limits: Limits) -> Self {
        Self { mailbox: Mailbox::new(limits), fault: None }
    }

    /// Receives the messages that have arrived: rings are dropped, memory is kept for the record that refers to it.
    ///
    /// # Errors
    /// [`FollowError`]: the peer sent an unexpected message, or this process lacks a resource; then the message
    /// remains in the socket.
    pub fn receive_all(&mut self, transport: &C) -> Result<DrainOutcome, FollowError> {
        for _ in 0..MAX_PER_POLL {
            if self.mailbox.is_full() {
                return Ok(DrainOutcome::More);
            }
            if let Some(outcome) = self.receive_one(transport)? {
                return Ok(outcome);
            }
        }
        Ok(DrainOutcome::Flood)
    }

    /// Receives the messages that have arrived before a wait, which they would end immediately. Keeps a protocol
    /// violation, to end the session at the next poll.
    pub fn drain_before_wait(&mut self, transport: &C) -> DrainOutcome {
        for _ in 0..MAX_PER_WAIT / MAX_PER_POLL {
            match self.receive_all(transport) {
                Ok(DrainOutcome::Flood) => {}
                Ok(outcome) => return outcome,
                Err(FollowError::Peer(fault)) => {
                    self.fault.get_or_insert(fault);
                    return DrainOutcome::End;
                }
                Err(FollowError::Short(_)) => return DrainOutcome::More,
            }
        }
        DrainOutcome::More
    }

    /// Returns the protocol violation that [`Control::drain_before_wait`] found.
    pub fn fault(&self) -> Option<PeerFault> {
        self.fault
    }

    /// Takes the memory of the Attach record `id`.
    ///
    /// # Errors
    /// [`FollowError`]; after a shortage, the message is lost but the session is usable.
    pub fn take_attachment(
        &mut self,
        transport: &C,
        id: u64,
    ) -> Result<(Attachment, C::Memory), FollowError> {
        for _ in 0..MAX_PER_WAIT {
            if let Some(found) = self.mailbox.attachment(id)? {
                return Ok(found);
            }
            match self.receive_announced(transport) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.mailbox.give_up(id)?;
                    return Err(error);
                }
            }
        }
        Err(missing(transport, "a message", 0))
    }

    /// Takes the memory for the peer's lane in `epoch`, checks it and maps it with `map`. Mapped memory is closed
    /// here, which cannot block.
    ///
    /// # Errors
    /// [`FollowError`]; after a shortage, the memory is kept for a retry.
    pub fn follow<R>(
        &mut self,
        transport: &C,
        epoch: Epoch,
        map: impl FnOnce(&C::Memory) -> Result<R, FollowError>,
    ) -> Result<R, FollowError> {
        let missing = || missing(transport, "a lane", epoch.size.size());
        let mut left = MAX_PER_WAIT;
        while !self.mailbox.has_lane() {
            if left == 0 || !self.receive_announced(transport)? {
                return Err(missing());
            }
            left -= 1;
        }
        let memory = self.mailbox.lane(epoch)?.ok_or_else(missing)?;
        let mapped = map(&memory);
        match &mapped {
            Ok(_) => drop(memory),
            Err(FollowError::Short(_)) => self.mailbox.put_back(epoch, memory),
            Err(FollowError::Peer(_)) => C::close(Vec::from([memory])),
        }
        mapped
    }

    /// Receives a message that was sent before the record that refers to it; returns false when there is none.
    fn receive_announced(&mut self, transport: &C) -> Result<bool, FollowError> {
        let mut outcome = self.receive_one(transport)?;
        if outcome == Some(DrainOutcome::Nothing) && transport.catch_up() {
            outcome = self.receive_one(transport)?;
        }
        Ok(outcome.is_none())
    }

    /// Receives one message; returns why, if there is none.
    fn receive_one(&mut self, transport: &C) -> Result<Option<DrainOutcome>, FollowError> {
        let mut bytes = [0; MAX_CONTROL];
        let violation = |fds, why| PeerFault::Control { len: MAX_CONTROL, fds, why };
        let (len, memory) = match transport.receive(&mut bytes)? {
            ReceiveOutcome::Message { len, memory } => (len, memory),
            ReceiveOutcome::TooLong => return Err(violation(0, "longer than any message").into()),
            ReceiveOutcome::TooMany { count } => {
                return Err(violation(count, "more descriptors than any message has").into());
            }
            ReceiveOutcome::Nothing => return Ok(Some(DrainOutcome::Nothing)),
            ReceiveOutcome::End => return Ok(Some(DrainOutcome::End)),
        };
        let accepted = self.mailbox.accept(bytes.get(..len).unwrap_or(&bytes), memory);
        let unwanted = self.mailbox.unwanted();
        if !unwanted.is_empty() {
            C::close(unwanted);
        }
        accepted.map(|()| None).map_err(|rejected| {
            C::close(rejected.descriptors);
            rejected.fault.into()
        })
    }
}

impl<C: ControlTransport> Drop for Control<C> {
    fn drop(&mut self) {
        C::close(self.mailbox.drain());
    }
}

impl<C: ControlTransport> fmt::Debug for Control<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("fault", &self.fault).finish_non_exhaustive()
    }
}

/// Returns the error for a record whose memory has not arrived.
fn missing<C: ControlTransport>(transport: &C, what: &'static str, bytes: u64) -> FollowError {
    match transport.lost() {
        Some(short) => Shortage { bytes, ..short }.into(),
        None => PeerFault::Memory { what, why: "its record came without it" }.into(),
    }
}
