//! What a [`Link`] does on its control socket after the handshake. [`bellwire_core::control`] defines what the messages mean;
//! this module moves them and their descriptors.

use crate::Linux;
use crate::prelude::*;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use bellwire_core::control::{self, ControlTransport, ReceiveOutcome};
use bellwire_core::lane::Epoch;
use bellwire_core::resize::{FollowError, Shortage};
use bellwire_core::wire::{Attachment, BroadcastRing, MAX_CONTROL};
use bellwire_core::{Limits, PeerFault};
use bellwire_shm::platform;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Link;
use crate::fork::OwnerProcess;
use crate::pass::{self, Channel, ReceiveError};
use crate::region::{OwnRegion, PeerRegion};
use crate::snapshot::{Snapshot, SnapshotMap};
use crate::{reaper, spare};

pub use bellwire_core::control::DrainOutcome;

/// More descriptors than any message has: the core reports a wrong count.
const MAX_FDS: usize = 16;

/// The control socket and the messages taken off it.
#[derive(Debug)]
pub(super) struct Control {
    // Before the socket: messages taken off it are dropped first.
    taken: control::Control<Socket>,
    socket: Socket,
}

/// The control socket. On drop it is closed on the reaper thread if it holds anything unverified, since closing that may
/// block.
#[derive(Debug)]
struct Socket {
    channel: Option<Channel>,
    owner_process: OwnerProcess,
}

impl Control {
    pub(super) fn new(channel: Channel, limits: Limits) -> Self {
        let socket = Socket { channel: Some(channel), owner_process: OwnerProcess::current() };
        Self { taken: control::Control::new(limits), socket }
    }

    /// Takes the socket out.
    pub(super) fn into_channel(mut self) -> Option<Channel> {
        self.socket.channel.take()
    }

    /// Processes pending messages, for a wait.
    pub(super) fn drain_before_wait(&mut self) -> DrainOutcome {
        self.taken.drain_before_wait(&self.socket)
    }

    pub(super) fn fault(&self) -> Option<PeerFault> {
        self.taken.fault()
    }

    /// Rings by the socket, unless a quarter of its buffer is unread: the peer is woken by that already, and one that never reads
    /// would have the kernel hold more and more for this process.
    pub(super) fn ring(&self) {
        let mut socket = [PollFd::new(&self.socket, PollFlags::OUT)];
        if poll(&mut socket, Some(&Timespec::default())) != Ok(0) {
            control::ring(&self.socket);
        }
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.channel {
            Some(channel) => channel.as_fd(),
            // Only `into_channel` takes it, and the value is gone after that. CWD is not a socket: every use fails.
            None => rustix::fs::CWD,
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // In a child of fork it is the parent's.
        let channel = self.channel.take().filter(|_| self.owner_process.is_owner_process());
        channel.into_iter().for_each(Channel::reap);
    }
}

impl ControlTransport for Socket {
    type Memory = OwnedFd;
    type BorrowedMemory<'a> = BorrowedFd<'a>;

    fn send(&self, message: &[u8], memory: Option<BorrowedFd<'_>>) -> Result<(), Shortage> {
        let sent = pass::send(self.as_fd(), message, memory.as_slice());
        sent.or_else(|error| error.shortage().map_or(Ok(()), Err))
    }

    fn receive(
        &self,
        into: &mut [u8; MAX_CONTROL],
    ) -> Result<ReceiveOutcome<OwnedFd>, FollowError> {
        let mut received = pass::receive_or_leave(self.as_fd(), into, MAX_FDS);
        if matches!(received, Err(ReceiveError::Short { .. })) && spare::release() {
            received = pass::receive_or_leave(self.as_fd(), into, MAX_FDS);
        }
        ReceiveError::outcome(received)
    }

    fn close(memory: Vec<OwnedFd>) {
        memory.into_iter().for_each(reaper::reap);
    }
}

impl Link {
    /// Charges memory to the quota of the peer's user, if there is one, and returns the descriptor to pass.
    fn lend(&self, sealed: &Snapshot) -> Result<Option<Arc<OwnedFd>>, Shortage> {
        let lend =
            |account| sealed.lend(account).map_err(|error| error.shortage(sealed.len() as u64));
        self.account.as_ref().map(lend).transpose()
    }

    pub(super) fn offer_lane(&mut self, epoch: Epoch) -> Result<(), Shortage> {
        let bytes = epoch.size.size();
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let made = match &self.account {
            Some(account) => OwnRegion::lend(account, &self.lane_name, size, |_| {}),
            None => OwnRegion::create(&self.lane_name, size, |_| {}),
        };
        let (lane, fd) = made.map_err(|error| error.shortage(bytes))?;
        control::pass_lane(&self.control.socket, epoch, fd.as_fd())?;
        self.offered = Some(lane);
        Ok(())
    }

    pub(super) fn follow_lane(&mut self, epoch: Epoch) -> Result<(), FollowError> {
        let bytes = epoch.size.size();
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let Control { taken, socket } = &mut self.control;
        let lane = taken.follow(socket, epoch, |fd| {
            PeerRegion::check_and_map(fd.as_fd(), size)
                .map_err(|error| error.refusal("a lane", bytes))
        });
        spare::keep();
        self.peer.lane = lane?;
        Ok(())
    }
}

impl platform::PassMemory<Linux> for Link {
    fn take_control(&mut self) -> Result<DrainOutcome, FollowError> {
        self.control.taken.receive_all(&self.control.socket)
    }

    fn charge_attachment(&self, sealed: &Snapshot) -> Result<(), Shortage> {
        self.lend(sealed).map(drop)
    }

    fn pass_attachment(&self, id: u64, generation: u64, sealed: &Snapshot) -> Result<(), Shortage> {
        let attachment = Attachment { id, generation, len: sealed.len() as u64 };
        let lent = self.lend(sealed)?;
        let passed = lent.as_ref().map_or(sealed.as_fd(), AsFd::as_fd);
        control::pass_attachment(&self.control.socket, attachment, passed)
    }

    fn take_attachment(&mut self, id: u64) -> Result<(Attachment, SnapshotMap), FollowError> {
        let Control { taken, socket } = &mut self.control;
        let (attachment, fd) = taken.take_attachment(socket, id)?;
        let len = usize::try_from(attachment.len).unwrap_or(usize::MAX);
        let map = SnapshotMap::verify_and_map(fd, len, len);
        spare::keep();
        match map {
            Ok(map) => Ok((attachment, map)),
            Err(error) => Err(error.refusal("a message", attachment.len)),
        }
    }

    fn pass_ring(
        &self,
        id: u64,
        ring: BroadcastRing,
        memory: BorrowedFd<'_>,
    ) -> Result<(), Shortage> {
        control::pass_attachment(&self.control.socket, ring.attachment(id), memory)
    }

    fn take_ring(&mut self, id: u64) -> Result<(BroadcastRing, PeerRegion), FollowError> {
        let Control { taken, socket } = &mut self.control;
        let (attachment, fd) = taken.take_attachment(socket, id)?;
        let Some(ring) = BroadcastRing::of_attachment(&attachment) else {
            reaper::reap(fd);
            return Err(PeerFault::Memory { what: "a ring", why: "it is announced as none" }.into());
        };
        let map = PeerRegion::verify_and_map(fd, ring.memory());
        spare::keep();
        let map = map.map_err(|error| error.refusal("a ring", attachment.len))?;
        Ok((ring, map))
    }
}
