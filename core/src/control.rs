//! What an end does on its control socket once the handshake is over: rings, lanes and attachments, sent and taken in.
//!
//! ```text
//! Control    which message is expected, what it may carry, what becomes of it      the same on every system
//! Mailbox    what was taken in and no record has asked for yet
//! Courier    moves one message, and the memory that comes with it; never waits     a socket, a pipe, the simulator
//! ```

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::lane::Epoch;
use crate::mailbox::Mailbox;
use crate::resize::{FollowError, Shortage};
use crate::wire::{Attachment, MAX_CONTROL, Message};
use crate::{Limits, PeerFault};

/// How many messages are taken in at once: a peer that floods the socket holds nobody up. Some 50 µs.
const MOST_AT_ONCE: usize = 32;
/// How many are taken in for a record that refers to one, or before a wait.
const MOST_IN_A_ROW: usize = 1024;
/// How long a wait overlooks new rings behind a message that cannot be taken in, for lack of something. It would end
/// at once for as long as that is so: whoever waits looks at the words in slices of this length instead.
pub const BLOCKED_SLICE: Duration = Duration::from_millis(1);

/// Moves whole messages between two ends, and the memory that comes with them. Nothing in it waits.
pub trait Courier {
    /// Memory that the peer passed and nobody has checked: a descriptor, a handle.
    type Memory;
    /// Memory that is lent to be passed.
    type Lent<'a>
    where
        Self: 'a;

    /// Sends one message, with that memory. That the peer is gone is no error: nobody will read it.
    ///
    /// # Errors
    /// [`Shortage`]: nothing of it was sent. Its `bytes` are filled in by the caller.
    fn send(&self, message: &[u8], memory: Option<Self::Lent<'_>>) -> Result<(), Shortage>;

    /// Receives the next message. Memory that came with one that is refused goes where [`Courier::close`] sends it.
    ///
    /// # Errors
    /// [`FollowError::Short`]: what came does not fit into this process now, and is still there.
    /// [`FollowError::Lied`]: what came can be no memory of the peer's.
    fn receive(&self, into: &mut [u8; MAX_CONTROL]) -> Result<Arrival<Self::Memory>, FollowError>;

    /// Closes what nobody has checked, where closing may block.
    fn close(memory: Vec<Self::Memory>);

    /// Sees to it that [`Courier::receive`] finds what was sent before this call; whether that can make a difference.
    fn catch_up(&self) -> bool {
        false
    }

    /// What to say of memory that was announced and is not there, where it goes with the peer that passed it and the
    /// peer is gone. `None` where the socket keeps it: then the peer has lied.
    fn lost(&self) -> Option<Shortage> {
        None
    }
}

/// What was received.
#[derive(Debug)]
pub enum Arrival<M> {
    /// A message of `len` bytes, and what came with it.
    Message {
        /// Its length in bytes.
        len: usize,
        /// What came with it, however much.
        memory: Vec<M>,
    },
    /// A message that is longer than any.
    TooLong,
    /// A message with more memory than any has.
    TooMany {
        /// How many pieces of it.
        count: usize,
    },
    /// Nothing now.
    Nothing,
    /// The end: the peer has closed it, and everything before was received.
    End,
}

/// What there is on the control socket, after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing: all was taken in.
    Nothing,
    /// Maybe more: as many as are taken in at once have been.
    Flood,
    /// More, which stays there until records ask for it: enough memory waits for them.
    More,
    /// The end: the peer has closed it, and everything before was taken in.
    End,
}

/// What taking one message in came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    One,
    None,
    End,
}

/// What one end has taken off its control socket. Dropped, what nobody has checked goes to [`Courier::close`].
pub struct Control<C: Courier> {
    mailbox: Mailbox<C::Memory>,
    /// What the peer did while somebody waited.
    fault: Option<PeerFault>,
}

/// Rings. A full socket was rung already; a closed one has nobody to ring.
pub fn ring<C: Courier>(courier: &C) {
    let mut encoded = [0; MAX_CONTROL];
    let len = Message::Ring.encode(0, &mut encoded);
    let _ = courier.send(encoded.get(..len).unwrap_or(&encoded), None);
}

/// Passes the memory of a lane's next epoch.
///
/// # Errors
/// [`Shortage`]: it was not passed.
pub fn pass_lane<C: Courier>(courier: &C, epoch: Epoch, lane: C::Lent<'_>) -> Result<(), Shortage> {
    pass(courier, &Message::Lane(epoch), epoch.size.size(), lane)
}

/// Passes a message in memory of its own, for the attach record with its id.
///
/// # Errors
/// [`Shortage`]: it was not passed.
pub fn pass_attachment<C: Courier>(
    courier: &C,
    attachment: Attachment,
    memory: C::Lent<'_>,
) -> Result<(), Shortage> {
    pass(courier, &Message::Attachment(attachment), attachment.len, memory)
}

fn pass<C: Courier>(
    courier: &C,
    message: &Message,
    bytes: u64,
    memory: C::Lent<'_>,
) -> Result<(), Shortage> {
    let mut encoded = [0; MAX_CONTROL];
    let len = message.encode(1, &mut encoded);
    let encoded = encoded.get(..len).unwrap_or(&encoded);
    courier.send(encoded, Some(memory)).map_err(|short| Shortage { bytes, ..short })
}

impl<C: Courier> Control<C> {
    /// Nothing yet, of a peer that was told these limits.
    pub fn new(limits: Limits) -> Self {
        Self { mailbox: Mailbox::new(limits), fault: None }
    }

    /// Takes in what the peer has sent by now: rings are only rings, memory is kept for the record that refers to it.
    ///
    /// # Errors
    /// [`FollowError`]: the peer sent what has no place here, or this process lacks something; the message is still
    /// there then.
    pub fn take_in(&mut self, courier: &C) -> Result<Heard, FollowError> {
        for _ in 0..MOST_AT_ONCE {
            if self.mailbox.is_crowded() {
                return Ok(Heard::More);
            }
            match self.take_one(courier)? {
                Taken::One => {}
                Taken::None => return Ok(Heard::Nothing),
                Taken::End => return Ok(Heard::End),
            }
        }
        Ok(Heard::Flood)
    }

    /// Takes in what has come, for a wait: what is left there would end it at once. A fault is kept, and ends the
    /// session at the next look.
    pub fn hear(&mut self, courier: &C) -> Heard {
        for _ in 0..MOST_IN_A_ROW / MOST_AT_ONCE {
            match self.take_in(courier) {
                Ok(Heard::Flood) => {}
                Ok(heard) => return heard,
                Err(FollowError::Lied(fault)) => {
                    self.fault.get_or_insert(fault);
                    return Heard::End;
                }
                Err(FollowError::Short(_)) => return Heard::More,
            }
        }
        Heard::More
    }

    /// What the peer did that has no place there, found by [`Control::hear`].
    pub fn fault(&self) -> Option<PeerFault> {
        self.fault
    }

    /// Takes the memory of the attach record `id`.
    ///
    /// # Errors
    /// [`FollowError`]; after a shortage the message is lost, and the session is usable.
    pub fn take_attachment(
        &mut self,
        courier: &C,
        id: u64,
    ) -> Result<(Attachment, C::Memory), FollowError> {
        for _ in 0..MOST_IN_A_ROW {
            if let Some(found) = self.mailbox.attachment(id)? {
                return Ok(found);
            }
            match self.take_announced(courier) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.mailbox.give_up(id)?;
                    return Err(error);
                }
            }
        }
        Err(missing(courier, "a message", 0))
    }

    /// Takes the memory of the peer's lane in `epoch`, checks it and maps it by `map`. What was mapped is closed here:
    /// that cannot block.
    ///
    /// # Errors
    /// [`FollowError`]; after a shortage the memory is kept for another try.
    pub fn follow<R>(
        &mut self,
        courier: &C,
        epoch: Epoch,
        map: impl FnOnce(&C::Memory) -> Result<R, FollowError>,
    ) -> Result<R, FollowError> {
        let missing = || missing(courier, "a lane", epoch.size.size());
        let mut left = MOST_IN_A_ROW;
        while !self.mailbox.has_lane() {
            if left == 0 || !self.take_announced(courier)? {
                return Err(missing());
            }
            left -= 1;
        }
        let memory = self.mailbox.lane(epoch)?.ok_or_else(missing)?;
        let mapped = map(&memory);
        match &mapped {
            Ok(_) => drop(memory),
            Err(FollowError::Short(_)) => self.mailbox.put_back(epoch, memory),
            Err(FollowError::Lied(_)) => C::close(Vec::from([memory])),
        }
        mapped
    }

    /// Takes in a message that was sent before the record that refers to it; false when there is none.
    fn take_announced(&mut self, courier: &C) -> Result<bool, FollowError> {
        let mut taken = self.take_one(courier)?;
        if taken == Taken::None && courier.catch_up() {
            taken = self.take_one(courier)?;
        }
        Ok(taken == Taken::One)
    }

    fn take_one(&mut self, courier: &C) -> Result<Taken, FollowError> {
        let mut bytes = [0; MAX_CONTROL];
        let lied = |fds, why| PeerFault::Control { len: MAX_CONTROL, fds, why };
        let (len, memory) = match courier.receive(&mut bytes)? {
            Arrival::Message { len, memory } => (len, memory),
            Arrival::TooLong => return Err(lied(0, "longer than any message").into()),
            Arrival::TooMany { count } => {
                return Err(lied(count, "more descriptors than any message has").into());
            }
            Arrival::Nothing => return Ok(Taken::None),
            Arrival::End => return Ok(Taken::End),
        };
        let taken = self.mailbox.take_in(bytes.get(..len).unwrap_or(&bytes), memory);
        let unwanted = self.mailbox.unwanted();
        if !unwanted.is_empty() {
            C::close(unwanted);
        }
        match taken {
            Ok(()) => Ok(Taken::One),
            Err(rejected) => {
                C::close(rejected.descriptors);
                Err(rejected.fault.into())
            }
        }
    }
}

impl<C: Courier> Drop for Control<C> {
    fn drop(&mut self) {
        C::close(self.mailbox.drain());
    }
}

impl<C: Courier> fmt::Debug for Control<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("fault", &self.fault).finish_non_exhaustive()
    }
}

/// A record has come without its memory.
fn missing<C: Courier>(courier: &C, what: &'static str, bytes: u64) -> FollowError {
    match courier.lost() {
        Some(short) => Shortage { bytes, ..short }.into(),
        None => PeerFault::Memory { what, why: "its record came without it" }.into(),
    }
}
