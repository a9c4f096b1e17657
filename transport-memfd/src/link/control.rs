//! What a [`Link`] does on its control socket once the handshake is over: rings, lanes and attachments, sent and
//! taken in.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bellwire_core::lane::Epoch;
use bellwire_core::mailbox::Mailbox;
use bellwire_core::resize::{FollowError, Resource, Shortage};
use bellwire_core::wire::{Attachment, MAX_CONTROL, Message};
use bellwire_core::{Limits, PeerFault};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::Link;
use crate::pass::{self, ReceiveError, SendError};
use crate::region::{OwnRegion, PeerRegion, VerifyError};
use crate::sealed::shortage;
use crate::snapshot::{Snapshot, SnapshotMap};
use crate::{reaper, spare};

/// How many messages are taken in at once: a peer that floods the socket holds nobody up.
const MOST_AT_ONCE: usize = 1024;
/// More descriptors than any message has: a count that is off is told by the mailbox.
const MAX_FDS: usize = 16;

/// The control socket and what was taken off it. Dropped, what the peer sent and nobody verified is closed on the
/// reaper thread, since closing it may block: if there is any.
#[derive(Debug)]
pub(super) struct Control {
    socket: Option<OwnedFd>,
    pub(super) mailbox: Mailbox<OwnedFd>,
}

impl Control {
    pub(super) fn new(socket: OwnedFd, limits: Limits) -> Self {
        Self { socket: Some(socket), mailbox: Mailbox::new(limits) }
    }

    /// Gives the socket away.
    pub(super) fn into_socket(mut self) -> Option<OwnedFd> {
        self.socket.take()
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Some(socket) => socket.as_fd(),
            // Only `into_socket` takes it, and nobody has this after that. It is no socket: every use fails.
            None => rustix::fs::CWD,
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        reaper::reap_all(self.mailbox.drain());
        if let Some(socket) = self.socket.take() {
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            // Nothing, or the end: there is no descriptor in it.
            match rustix::net::recv(&socket, &mut [0_u8; 1], flags) {
                Err(Errno::AGAIN) | Ok((_, 0)) => drop(socket),
                Err(_) | Ok(_) => reaper::reap(socket),
            }
        }
    }
}

/// What there is on the control socket, after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing: all was taken in.
    Nothing,
    /// More: enough descriptors wait for their records, or there was more than one turn takes.
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

impl Link {
    /// Takes in what the peer has sent by now: rings are only rings, memory is kept for the record that refers to
    /// it.
    ///
    /// # Errors
    /// [`FollowError`]: the peer sent what has no place here, or this process has no descriptor left; the message
    /// is still there then.
    pub fn take_control(&mut self) -> Result<Heard, FollowError> {
        for _ in 0..MOST_AT_ONCE {
            if self.control.mailbox.is_crowded() {
                return Ok(Heard::More);
            }
            let taken = self.take_one();
            reaper::reap_all(self.control.mailbox.unwanted());
            match taken? {
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
        self.pass(&message, len, sealed.as_fd())
    }

    /// Takes the memory of the attach record `id`, checks it and maps it.
    ///
    /// # Errors
    /// [`FollowError`]; after a shortage the message is lost, and the session is usable.
    pub fn take_attachment(&mut self, id: u64) -> Result<(Attachment, SnapshotMap), FollowError> {
        let mut left = MOST_AT_ONCE;
        let (attachment, fd) = loop {
            left = left.checked_sub(1).ok_or_else(|| missing("a message"))?;
            if let Some(found) = self.control.mailbox.attachment(id)? {
                break found;
            }
            let taken = self.take_one();
            reaper::reap_all(self.control.mailbox.unwanted());
            match taken {
                Ok(Taken::One) => {}
                Ok(Taken::None | Taken::End) => return Err(missing("a message").into()),
                Err(error) => {
                    self.control.mailbox.give_up(id)?;
                    return Err(error);
                }
            }
        };
        let len = usize::try_from(attachment.len).unwrap_or(usize::MAX);
        let map = SnapshotMap::verify_and_map(fd, len, len);
        spare::keep();
        match map {
            Ok(map) => Ok((attachment, map)),
            Err(error) => Err(unmapped("a message", attachment.len, &error)),
        }
    }

    pub(super) fn offer_lane(&mut self, epoch: Epoch) -> Result<(), Shortage> {
        let bytes = epoch.size.size();
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let made = OwnRegion::create(&self.lane_name, size, |_| {});
        let (lane, fd) = made.map_err(|error| error.shortage(bytes))?;
        self.pass(&Message::Lane(epoch), bytes, fd.as_fd())?;
        self.offered = Some(lane);
        Ok(())
    }

    pub(super) fn follow_lane(&mut self, epoch: Epoch) -> Result<(), FollowError> {
        let mut left = MOST_AT_ONCE;
        while !self.control.mailbox.has_lane() {
            left = left.checked_sub(1).ok_or_else(|| missing("a lane"))?;
            if !matches!(self.take_one()?, Taken::One) {
                return Err(missing("a lane").into());
            }
        }
        let Some(fd) = self.control.mailbox.lane(epoch)? else {
            return Err(missing("a lane").into());
        };
        let bytes = epoch.size.size();
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let followed = match PeerRegion::check_and_map(fd.as_fd(), size) {
            Ok(lane) => {
                // It has all seals of a memfd: closing it cannot block.
                drop(fd);
                self.peer.lane = lane;
                Ok(())
            }
            Err(error) => {
                let error = unmapped("a lane", bytes, &error);
                match error {
                    FollowError::Short(_) => self.control.mailbox.put_back(epoch, fd),
                    FollowError::Lied(_) => reaper::reap(fd),
                }
                Err(error)
            }
        };
        spare::keep();
        followed
    }

    pub(super) fn ring_socket(&self) {
        let mut message = [0; MAX_CONTROL];
        let len = Message::Ring.encode(0, &mut message);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // A full socket was rung already; a closed one has nobody to ring.
        let _ = rustix::net::send(&self.control, message.get(..len).unwrap_or(&message), flags);
    }

    fn take_one(&mut self) -> Result<Taken, FollowError> {
        let mut bytes = [0; MAX_CONTROL];
        let mut received = pass::receive_or_leave(self.control.as_fd(), &mut bytes, MAX_FDS);
        if matches!(received, Err(ReceiveError::FdsLost)) && spare::release() {
            received = pass::receive_or_leave(self.control.as_fd(), &mut bytes, MAX_FDS);
        }
        let lied = |fds, why| FollowError::Lied(PeerFault::Control { len: bytes.len(), fds, why });
        let received = match received {
            Ok(received) => received,
            Err(ReceiveError::WouldBlock) => return Ok(Taken::None),
            Err(ReceiveError::Closed) => return Ok(Taken::End),
            Err(ReceiveError::TooManyFds { count, .. }) => {
                return Err(lied(count, "more descriptors than any message has"));
            }
            Err(ReceiveError::TooLong { .. }) => return Err(lied(0, "longer than any message")),
            Err(ReceiveError::FdsLost) => {
                return Err(Shortage { resource: Resource::Descriptors, bytes: 0, code: 0 }.into());
            }
            Err(ReceiveError::System { source }) => return Err(shortage(0, source).into()),
        };
        let message = bytes.get(..received.len).unwrap_or(&bytes);
        match self.control.mailbox.take_in(message, received.into_fds().collect()) {
            Ok(()) => Ok(Taken::One),
            Err(rejected) => {
                reaper::reap_all(rejected.descriptors);
                Err(rejected.fault.into())
            }
        }
    }

    fn pass(&self, message: &Message, bytes: u64, fd: BorrowedFd<'_>) -> Result<(), Shortage> {
        let mut encoded = [0; MAX_CONTROL];
        let len = message.encode(1, &mut encoded);
        let encoded = encoded.get(..len).unwrap_or(&encoded);
        let short = |resource, code| Err(Shortage { resource, bytes, code });
        match pass::send(self.control.as_fd(), encoded, &[fd]) {
            // Nobody will read what comes either: the next wait says that the peer is gone.
            Ok(()) | Err(SendError::Gone) => Ok(()),
            Err(SendError::WouldBlock) => {
                short(Resource::ControlSocket, Errno::AGAIN.raw_os_error())
            }
            Err(SendError::TooManyInFlight) => {
                short(Resource::InFlight, Errno::TOOMANYREFS.raw_os_error())
            }
            Err(SendError::System { source }) => Err(shortage(bytes, source)),
            Err(SendError::TooManyFds { .. }) => short(Resource::Other, 0),
        }
    }
}

fn missing(what: &'static str) -> PeerFault {
    PeerFault::Memory { what, why: "its record came without it" }
}

fn unmapped(what: &'static str, bytes: u64, error: &VerifyError) -> FollowError {
    let why = match error {
        VerifyError::System { source } => {
            let resource = Resource::Maps;
            return Shortage { resource, bytes, code: source.raw_os_error() }.into();
        }
        VerifyError::NotMemfd { .. } => "it is no memfd",
        VerifyError::Seals { .. } => "a seal is missing",
        VerifyError::NotRegular => "it is no regular file",
        VerifyError::Size { .. } => "it has another size than announced",
        VerifyError::Limit { .. } => "its length is above the limit",
        VerifyError::Sparse { .. } => "its pages are not allocated",
        VerifyError::HugePages => "it lies on huge pages",
        VerifyError::Unreadable => "it cannot be read",
        VerifyError::NotEventfd => "it is no eventfd",
    };
    PeerFault::Memory { what, why }.into()
}
