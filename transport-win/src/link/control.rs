//! What a [`Link`] does on its pipe once the handshake is over: rings, lanes and attachments, sent and taken in.

use std::os::windows::io::{AsHandle, BorrowedHandle, OwnedHandle};

use bellwire_core::lane::Epoch;
use bellwire_core::mailbox::Mailbox;
use bellwire_core::resize::{FollowError, Resource, Shortage};
use bellwire_core::wire::{Attachment, MAX_CONTROL, Message};
use bellwire_core::{Limits, PeerFault};
use windows_sys::Win32::Foundation::ERROR_BROKEN_PIPE;

use super::Link;
use crate::pass::{ReceiveError, SendError};
use crate::region::{OwnRegion, PeerRegion, VerifyError};
use crate::snapshot::{Snapshot, SnapshotMap};
use crate::{OsError, reaper};

/// How many messages are taken in at once: a peer that floods the pipe holds nobody up.
const MOST_AT_ONCE: usize = 1024;
/// More handles than any message has: a count that is off is told by the mailbox.
const MAX_HANDLES: usize = 16;

/// What was taken off the pipe and no record has asked for yet. Dropped, what the peer sent and nobody verified is
/// closed on the reaper thread, since closing it may wait.
#[derive(Debug)]
pub(super) struct Inbox(Mailbox<OwnedHandle>);

/// What there is on the control pipe, after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing: all was taken in.
    Nothing,
    /// More: enough handles wait for their records, or there was more than one turn takes.
    More,
    /// The end: the peer has closed it, and everything before was taken in.
    End,
}

/// What taking one message in came to.
enum Taken {
    One,
    None,
    End,
}

impl Inbox {
    pub(super) fn new(limits: Limits) -> Self {
        Self(Mailbox::new(limits))
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        reaper::reap_all(self.0.drain());
    }
}

impl Link {
    /// Takes in what the peer has sent by now: rings are only rings, memory is kept for the record that refers to
    /// it.
    ///
    /// # Errors
    /// [`FollowError`]: the peer sent what has no place here, or this process cannot have a handle more; the
    /// message is still there then.
    pub fn take_control(&self) -> Result<Heard, FollowError> {
        for _ in 0..MOST_AT_ONCE {
            if self.inbox.borrow().0.is_crowded() {
                return Ok(Heard::More);
            }
            match self.take_one()? {
                Taken::One => {}
                Taken::None => return Ok(Heard::Nothing),
                Taken::End => return Ok(Heard::End),
            }
        }
        Ok(Heard::More)
    }

    /// Passes a message of its own memory, for the attach record `id`.
    ///
    /// # Errors
    /// [`Shortage`]: it was not passed.
    pub fn pass_attachment(
        &self,
        id: u64,
        generation: u64,
        sealed: &Snapshot,
    ) -> Result<(), Shortage> {
        let len = sealed.len() as u64;
        let message = Message::Attachment(Attachment { id, generation, len });
        self.pass(&message, len, sealed.as_handle())
    }

    /// Takes the memory of the attach record `id`, checks it and maps it; that of a peer that is not trusted is copied.
    ///
    /// # Errors
    /// [`FollowError`]; after a shortage the message is lost, and the session is usable.
    pub fn take_attachment(&self, id: u64) -> Result<(Attachment, SnapshotMap), FollowError> {
        let (attachment, section) = loop {
            let found = self.inbox.borrow_mut().0.attachment(id)?;
            if let Some(found) = found {
                break found;
            }
            let taken = self.take_announced();
            reaper::reap_all(self.inbox.borrow_mut().0.unwanted());
            match taken {
                Ok(Taken::One) => {}
                Ok(Taken::None | Taken::End) => return Err(self.missing("a message", 0)),
                Err(error) => {
                    self.inbox.borrow_mut().0.give_up(id)?;
                    return Err(error);
                }
            }
        };
        let len = usize::try_from(attachment.len).unwrap_or(usize::MAX);
        let map = match self.trusts_peer {
            true => SnapshotMap::verify_and_map(section, len, len),
            false => SnapshotMap::verify_and_copy(section, len, len),
        };
        match map {
            Ok(map) => Ok((attachment, map)),
            Err(error) => Err(unmapped("a message", attachment.len, error)),
        }
    }

    pub(super) fn offer_lane(&mut self, epoch: Epoch) -> Result<(), Shortage> {
        let bytes = epoch.size.size();
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let made = OwnRegion::create("lane", size, |_| {});
        let (lane, section) = made.map_err(|error| error.shortage(bytes))?;
        self.pass(&Message::Lane(epoch), bytes, section.as_handle())?;
        self.offered = Some(lane);
        Ok(())
    }

    pub(super) fn follow_lane(&mut self, epoch: Epoch) -> Result<(), FollowError> {
        let bytes = epoch.size.size();
        while !self.inbox.get_mut().0.has_lane() {
            if !matches!(self.take_announced()?, Taken::One) {
                return Err(self.missing("a lane", bytes));
            }
        }
        let Some(section) = self.inbox.get_mut().0.lane(epoch)? else {
            return Err(self.missing("a lane", bytes));
        };
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        match PeerRegion::check_and_map(section.as_handle(), size) {
            Ok(lane) => {
                self.peer.lane = lane;
                Ok(())
            }
            Err(error @ VerifyError::System { .. }) => {
                self.inbox.get_mut().0.put_back(epoch, section);
                Err(unmapped("a lane", bytes, error))
            }
            Err(error) => {
                reaper::reap(section);
                Err(unmapped("a lane", bytes, error))
            }
        }
    }

    pub(super) fn ring_pipe(&self) {
        let mut message = [0; MAX_CONTROL];
        let len = Message::Ring.encode(0, &mut message);
        // A full pipe was rung already; a closed one has nobody to ring.
        let _ = self.channel.send(message.get(..len).unwrap_or(&message), &[]);
    }

    /// Takes in what has come, for a wait. A fault ends the session at the next look.
    pub(super) fn hear(&self) -> Heard {
        match self.take_control() {
            Ok(heard) => heard,
            Err(FollowError::Lied(fault)) => {
                self.fault.set(self.fault.get().or(Some(fault)));
                Heard::End
            }
            Err(FollowError::Short(_)) => Heard::More,
        }
    }

    /// A record has come without its memory. That is no lie of a peer that is gone: see [`crate::pass`].
    fn missing(&self, what: &'static str, bytes: u64) -> FollowError {
        if self.peer_gone() {
            return short(Resource::Other, bytes, OsError::new(ERROR_BROKEN_PIPE)).into();
        }
        PeerFault::Memory { what, why: "its record came without it" }.into()
    }

    /// Takes in a message that was sent before the record that refers to it.
    fn take_announced(&self) -> Result<Taken, FollowError> {
        match self.take_one()? {
            Taken::None => {
                self.channel.catch_up();
                self.take_one()
            }
            taken => Ok(taken),
        }
    }

    fn take_one(&self) -> Result<Taken, FollowError> {
        let mut bytes = [0; MAX_CONTROL];
        let len = bytes.len();
        let lied = |fds, why| FollowError::Lied(PeerFault::Control { len, fds, why });
        let received = match self.channel.receive(&mut bytes, MAX_HANDLES) {
            Ok(received) => received,
            Err(ReceiveError::WouldBlock) => return Ok(Taken::None),
            Err(ReceiveError::Closed) => return Ok(Taken::End),
            Err(ReceiveError::TooManyHandles { count, .. }) => {
                return Err(lied(count, "more descriptors than any message has"));
            }
            Err(ReceiveError::TooLong { .. }) => return Err(lied(0, "longer than any message")),
            Err(ReceiveError::TooShort) => return Err(lied(0, "it is cut off")),
            // What a client had offered and nobody had taken yet went with it.
            Err(ReceiveError::Handle { .. }) if self.peer_gone() => return Ok(Taken::End),
            Err(ReceiveError::NoHandle | ReceiveError::Handle { .. }) => {
                return Err(lied(1, "it names what is no handle"));
            }
            Err(ReceiveError::Short { source }) => {
                return Err(short(Resource::Descriptors, 0, source).into());
            }
            Err(ReceiveError::System { source }) => {
                return Err(short(Resource::Other, 0, source).into());
            }
        };
        let message = bytes.get(..received.len).unwrap_or(&bytes);
        match self.inbox.borrow_mut().0.take_in(message, received.into_objects()) {
            Ok(()) => Ok(Taken::One),
            Err(rejected) => {
                reaper::reap_all(rejected.descriptors);
                Err(rejected.fault.into())
            }
        }
    }

    fn pass(
        &self,
        message: &Message,
        bytes: u64,
        section: BorrowedHandle<'_>,
    ) -> Result<(), Shortage> {
        let mut encoded = [0; MAX_CONTROL];
        let len = message.encode(1, &mut encoded);
        let none = OsError::new(0);
        match self.channel.send(encoded.get(..len).unwrap_or(&encoded), &[section]) {
            // Nobody will read what comes either: the next wait says that the peer is gone.
            Ok(()) | Err(SendError::Gone) => Ok(()),
            Err(SendError::WouldBlock) => Err(short(Resource::ControlSocket, bytes, none)),
            Err(SendError::Handle { source }) => Err(short(Resource::Descriptors, bytes, source)),
            Err(SendError::System { source }) => Err(short(Resource::Other, bytes, source)),
            Err(_) => Err(short(Resource::Other, bytes, none)),
        }
    }
}

fn short(resource: Resource, bytes: u64, source: OsError) -> Shortage {
    Shortage { resource, bytes, code: source.code().cast_signed() }
}

fn unmapped(what: &'static str, bytes: u64, error: VerifyError) -> FollowError {
    let why = match error {
        VerifyError::System { source } => return short(Resource::Maps, bytes, source).into(),
        VerifyError::NotSection => "it is no section",
        VerifyError::NotReadable => "it may not be read",
        VerifyError::FileBacked => "it is a section of a file",
        VerifyError::Special => "it is special memory",
        VerifyError::Size { .. } => "it has another size than announced",
        VerifyError::Limit { .. } => "its length is above the limit",
        VerifyError::Sparse => "its pages have no memory",
    };
    PeerFault::Memory { what, why }.into()
}
