//! The memory that a peer passed over the control socket during the session, for records that refer to it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::lane::{Epoch, MAX_ATTACHED, MAX_OUTSTANDING};
use crate::wire::{Attachment, Message, PAGE_SIZE};
use crate::{Limits, PeerFault};

/// More than a control socket holds: about 300 messages fill it.
const MAX_GIVEN_UP: usize = 1024;
/// The descriptors that may be received before a record asks for them.
const MAX_PENDING: usize = 8;

/// Descriptors that were received and for which no record has asked yet, of a transport's type `F`.
///
/// It holds at most [`MAX_OUTSTANDING`] lanes and [`MAX_ATTACHED`] attachments, and no more shared memory than the
/// limit. A peer that passes more violates the protocol.
#[derive(Debug)]
pub struct Mailbox<F> {
    limits: Limits,
    lanes: VecDeque<(Epoch, F)>,
    attachments: VecDeque<(Attachment, F)>,
    /// Messages whose memory was given up before it was received.
    given_up: VecDeque<u64>,
    unwanted: Vec<F>,
}

/// A message that violates the protocol, and the descriptors that came with it.
#[derive(Debug)]
pub struct Rejected<F> {
    /// The violation: the session is poisoned.
    pub fault: PeerFault,
    /// Descriptors to close where closing may block.
    pub descriptors: Vec<F>,
}

impl<F> Mailbox<F> {
    /// Creates an empty mailbox for a peer that knows these limits.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            lanes: VecDeque::new(),
            attachments: VecDeque::new(),
            given_up: VecDeque::new(),
            unwanted: Vec::new(),
        }
    }

    /// Stores a message that came with these descriptors; ignores a ring.
    ///
    /// # Errors
    /// [`Rejected`]: the message violates the protocol now.
    pub fn accept(&mut self, bytes: &[u8], mut descriptors: Vec<F>) -> Result<(), Rejected<F>> {
        let fault = |why| PeerFault::Control { len: bytes.len(), fds: descriptors.len(), why };
        let Ok(message) = Message::parse(bytes, descriptors.len()) else {
            let fault = fault(match bytes {
                [] => "it is empty",
                _ => "it is no control message",
            });
            return Err(Rejected { fault, descriptors });
        };
        let why = match (&message, descriptors.len()) {
            (Message::Ring, 0) => return Ok(()),
            (Message::Lane(_), 1) if self.lanes.len() >= MAX_OUTSTANDING => "too many lanes",
            (Message::Lane(epoch), 1) if epoch.size > self.limits.max_lane => {
                "a lane above the limit"
            }
            (Message::Attachment(_), 1) if self.attachments.len() >= MAX_ATTACHED => {
                "too many attachments"
            }
            (Message::Attachment(attachment), 1) if attachment.len > self.limits.max_message => {
                "an attachment above the limit"
            }
            (Message::Lane(epoch), 1) if self.exceeds(epoch.size.size()) => "too much memory",
            (Message::Attachment(attachment), 1) if self.exceeds(pages(attachment)) => {
                "too much memory"
            }
            (Message::Lane(_) | Message::Attachment(_), 1) => "",
            (Message::Lane(_) | Message::Attachment(_), _) => "one descriptor belongs to it",
            _ => "an open session has no place for it",
        };
        let fault = fault(why);
        match (message, descriptors.pop()) {
            (Message::Lane(epoch), Some(fd)) if why.is_empty() => self.lanes.push_back((epoch, fd)),
            (Message::Attachment(attachment), Some(fd))
                if self.given_up.front() == Some(&attachment.id) && why.is_empty() =>
            {
                self.given_up.pop_front();
                self.unwanted.push(fd);
            }
            (Message::Attachment(attachment), Some(fd)) if why.is_empty() => {
                self.attachments.push_back((attachment, fd));
            }
            (_, last) => {
                descriptors.extend(last);
                return Err(Rejected { fault, descriptors });
            }
        }
        Ok(())
    }

    /// Returns whether `bytes` more would exceed what a peer may have outstanding.
    fn exceeds(&self, bytes: u64) -> bool {
        let lanes = self.lanes.iter().map(|(epoch, _)| epoch.size.size());
        let attachments = self.attachments.iter().map(|(attachment, _)| pages(attachment));
        let held = lanes.chain(attachments).fold(bytes, u64::saturating_add);
        held > self.limits.max_shared_bytes_per_session
    }

    /// Returns whether the memory of a lane's next epoch has arrived.
    pub fn has_lane(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Returns whether the memory of an attachment has arrived.
    pub fn has_attachment(&self) -> bool {
        !self.attachments.is_empty()
    }

    /// Takes the memory that was passed for `epoch`; lanes arrive in order. Returns `None` when none has arrived.
    ///
    /// # Errors
    /// [`PeerFault::Memory`] when the first one is for another epoch; it stays.
    pub fn lane(&mut self, epoch: Epoch) -> Result<Option<F>, PeerFault> {
        match self.lanes.front() {
            Some((next, _)) if *next != epoch => {
                let why = "it was announced with another epoch or size";
                Err(PeerFault::Memory { what: "a lane", why })
            }
            _ => Ok(self.lanes.pop_front().map(|(_, fd)| fd)),
        }
    }

    /// Returns the memory of an epoch that could not be mapped because of a shortage.
    pub fn put_back(&mut self, epoch: Epoch, fd: F) {
        self.lanes.push_front((epoch, fd));
    }

    /// Takes the memory of the message `id`; attachments arrive in the order of their records. Returns `None` when
    /// none has arrived.
    ///
    /// # Errors
    /// [`PeerFault::Memory`] when the first one is for another message; it stays.
    pub fn attachment(&mut self, id: u64) -> Result<Option<(Attachment, F)>, PeerFault> {
        match self.attachments.front() {
            Some((next, _)) if next.id != id => {
                let why = "it was announced for another message";
                Err(PeerFault::Memory { what: "a message", why })
            }
            _ => Ok(self.attachments.pop_front()),
        }
    }

    /// Marks the memory of the message `id` as unwanted before it was received.
    ///
    /// # Errors
    /// [`PeerFault::Memory`] when more were given up than a control socket holds.
    pub fn give_up(&mut self, id: u64) -> Result<(), PeerFault> {
        if self.given_up.len() >= MAX_GIVEN_UP {
            return Err(PeerFault::Memory {
                what: "messages",
                why: "their records came without it",
            });
        }
        self.given_up.push_back(id);
        Ok(())
    }

    /// Returns whether so many descriptors are pending that no more should be received before a record asks for one.
    pub fn is_full(&self) -> bool {
        self.lanes.len() + self.attachments.len() >= MAX_PENDING
    }

    /// Takes unwanted memory that has arrived, to close where closing may block.
    pub fn unwanted(&mut self) -> Vec<F> {
        core::mem::take(&mut self.unwanted)
    }

    /// Takes everything, to close where closing may block.
    pub fn drain(&mut self) -> Vec<F> {
        let lanes = self.lanes.drain(..).map(|(_, fd)| fd).chain(self.unwanted.drain(..));
        lanes.chain(self.attachments.drain(..).map(|(_, fd)| fd)).collect()
    }
}

/// Returns the memory of a message in whole pages.
fn pages(attachment: &Attachment) -> u64 {
    attachment.len.checked_next_multiple_of(PAGE_SIZE as u64).unwrap_or(u64::MAX)
}
