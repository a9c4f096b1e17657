//! What a peer passes over the control socket while the session goes on: descriptors, for records that refer to them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::lane::{Epoch, MOST_ATTACHED, MOST_OUTSTANDING};
use crate::wire::{Attachment, Message, PAGE_SIZE};
use crate::{Limits, PeerFault};

/// More than a control socket holds: it is full with some 300 messages.
const MOST_GIVEN_UP: usize = 1024;
/// Descriptors that are worth taking in before a record asks for them.
const CROWD: usize = 8;

/// Descriptors that were received and that no record has asked for yet, of a transport's type `F`.
///
/// It holds at most [`MOST_OUTSTANDING`] lanes and [`MOST_ATTACHED`] attachments, and no more shared memory than the
/// limit: an honest peer passes no more.
#[derive(Debug)]
pub struct Mailbox<F> {
    limits: Limits,
    lanes: VecDeque<(Epoch, F)>,
    attachments: VecDeque<(Attachment, F)>,
    /// Messages whose memory was given up before it was taken in.
    given_up: VecDeque<u64>,
    unwanted: Vec<F>,
}

/// A message that no honest peer sends, and the descriptors that came with it.
#[derive(Debug)]
pub struct Rejected<F> {
    /// What was wrong: the session is poisoned.
    pub fault: PeerFault,
    /// To be closed where closing may block.
    pub descriptors: Vec<F>,
}

impl<F> Mailbox<F> {
    /// Empty, for a peer that was told these limits.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            lanes: VecDeque::new(),
            attachments: VecDeque::new(),
            given_up: VecDeque::new(),
            unwanted: Vec::new(),
        }
    }

    /// Takes a message in that came with these descriptors. A ring is only a ring.
    ///
    /// # Errors
    /// [`Rejected`]: no honest peer sends it now.
    pub fn take_in(&mut self, bytes: &[u8], mut descriptors: Vec<F>) -> Result<(), Rejected<F>> {
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
            (Message::Lane(_), 1) if self.lanes.len() >= MOST_OUTSTANDING => "too many lanes",
            (Message::Lane(epoch), 1) if epoch.size > self.limits.max_lane => {
                "a lane above the limit"
            }
            (Message::Attachment(_), 1) if self.attachments.len() >= MOST_ATTACHED => {
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

    /// Whether `bytes` more are above what a peer may have on its way.
    fn exceeds(&self, bytes: u64) -> bool {
        let lanes = self.lanes.iter().map(|(epoch, _)| epoch.size.size());
        let attachments = self.attachments.iter().map(|(attachment, _)| pages(attachment));
        let held = lanes.chain(attachments).fold(bytes, u64::saturating_add);
        held > self.limits.max_shared_bytes_per_session
    }

    /// Whether the memory of a lane's next epoch is there.
    pub fn has_lane(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Whether a message's memory is there.
    pub fn has_attachment(&self) -> bool {
        !self.attachments.is_empty()
    }

    /// The memory that was passed for `epoch`: lanes come in their order. `None` when nothing was passed.
    ///
    /// # Errors
    /// [`PeerFault::Memory`] when the first one is that of another epoch, which stays.
    pub fn lane(&mut self, epoch: Epoch) -> Result<Option<F>, PeerFault> {
        match self.lanes.front() {
            Some((next, _)) if *next != epoch => {
                let why = "it was announced with another epoch or size";
                Err(PeerFault::Memory { what: "a lane", why })
            }
            _ => Ok(self.lanes.pop_front().map(|(_, fd)| fd)),
        }
    }

    /// Puts the memory of an epoch back that could not be mapped for lack of something.
    pub fn put_back(&mut self, epoch: Epoch, fd: F) {
        self.lanes.push_front((epoch, fd));
    }

    /// The memory of the message `id`: attachments come in the order of their records. `None` when nothing was
    /// passed.
    ///
    /// # Errors
    /// [`PeerFault::Memory`] when the first one is that of another message, which stays.
    pub fn attachment(&mut self, id: u64) -> Result<Option<(Attachment, F)>, PeerFault> {
        match self.attachments.front() {
            Some((next, _)) if next.id != id => {
                let why = "it was announced for another message";
                Err(PeerFault::Memory { what: "a message", why })
            }
            _ => Ok(self.attachments.pop_front()),
        }
    }

    /// Notes that nobody will ask for the memory of the message `id`, which was passed and not taken in yet.
    ///
    /// # Errors
    /// [`PeerFault::Memory`] when so many were given up that no control socket holds their memory.
    pub fn give_up(&mut self, id: u64) -> Result<(), PeerFault> {
        if self.given_up.len() >= MOST_GIVEN_UP {
            return Err(PeerFault::Memory {
                what: "messages",
                why: "their records came without it",
            });
        }
        self.given_up.push_back(id);
        Ok(())
    }

    /// Whether so many descriptors wait for their records that no more should be taken in before one asks.
    pub fn is_crowded(&self) -> bool {
        self.lanes.len() + self.attachments.len() >= CROWD
    }

    /// Memory that was given up and has come since, to be closed where closing may block.
    pub fn unwanted(&mut self) -> Vec<F> {
        core::mem::take(&mut self.unwanted)
    }

    /// Everything, to be closed where closing may block.
    pub fn drain(&mut self) -> Vec<F> {
        let lanes = self.lanes.drain(..).map(|(_, fd)| fd).chain(self.unwanted.drain(..));
        lanes.chain(self.attachments.drain(..).map(|(_, fd)| fd)).collect()
    }
}

/// The memory of a message, in whole pages.
fn pages(attachment: &Attachment) -> u64 {
    attachment.len.checked_next_multiple_of(PAGE_SIZE as u64).unwrap_or(u64::MAX)
}
