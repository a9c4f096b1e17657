#![allow(unsafe_code, reason = "says whose attachments may be mapped rather than copied")]
//! What a [`Link`] does on its pipe after the handshake. [`bellwire_core::control`] defines what the messages mean; this
//! module moves them and their handles.

use crate::Windows;
use crate::prelude::*;
use std::os::windows::io::{AsHandle, BorrowedHandle, OwnedHandle};

use bellwire_core::PeerFault;
use bellwire_core::control::{self, ControlTransport, ReceiveOutcome};
use bellwire_core::lane::Epoch;
use bellwire_core::resize::{FollowError, Resource, Shortage};
use bellwire_core::wire::{Attachment, BroadcastRing, MAX_CONTROL};
use bellwire_shm::OverQuota;
use bellwire_shm::platform;
use windows_sys::Win32::Foundation::ERROR_BROKEN_PIPE;

use super::Link;
use crate::pass::ReceiveError;
use crate::reaper;
use crate::region::{OwnRegion, PeerRegion};
use crate::snapshot::{Snapshot, SnapshotMap};

pub use bellwire_core::control::DrainOutcome;

/// More handles than any message has: the core reports a wrong count.
const MAX_HANDLES: usize = 16;

impl ControlTransport for Link {
    type Memory = OwnedHandle;
    type BorrowedMemory<'a> = BorrowedHandle<'a>;

    fn send(&self, message: &[u8], memory: Option<BorrowedHandle<'_>>) -> Result<(), Shortage> {
        let sent = self.channel.send(message, memory.as_slice());
        sent.or_else(|error| error.shortage().map_or(Ok(()), Err))
    }

    fn receive(
        &self,
        into: &mut [u8; MAX_CONTROL],
    ) -> Result<ReceiveOutcome<OwnedHandle>, FollowError> {
        match self.channel.receive(into, MAX_HANDLES) {
            // Handles that a client had offered and the server had not taken are lost with the client.
            Err(ReceiveError::Handle { .. }) if self.peer_gone() => Ok(ReceiveOutcome::End),
            received => ReceiveError::outcome(received),
        }
    }

    fn close(memory: Vec<OwnedHandle>) {
        memory.into_iter().for_each(reaper::reap);
    }

    fn catch_up(&self) -> bool {
        self.channel.catch_up();
        true
    }

    /// Returns an error if handles were lost: those that a client offered and the server did not take end with the client.
    /// See [`crate::pass`].
    fn lost(&self) -> Option<Shortage> {
        let code = ERROR_BROKEN_PIPE.cast_signed();
        self.peer_gone().then_some(Shortage { resource: Resource::Other, bytes: 0, code })
    }
}

impl Link {
    /// Charges memory to the quota of the peer's user, if there is one, and returns the handle to pass.
    fn lend<'s>(&self, sealed: &'s Snapshot) -> Result<BorrowedHandle<'s>, Shortage> {
        let Some(account) = &self.account else { return Ok(sealed.as_handle()) };
        let over = |OverQuota { bytes, .. }| Shortage { resource: Resource::Quota, bytes, code: 0 };
        sealed.lend(account).map_err(over)
    }

    pub(super) fn offer_lane(&mut self, epoch: Epoch) -> Result<(), Shortage> {
        let bytes = epoch.size.size();
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let made = match &self.account {
            Some(account) => OwnRegion::lend(account, "lane", size, |_| {}),
            None => OwnRegion::create("lane", size, |_| {}),
        };
        let (lane, section) = made.map_err(|error| error.shortage(bytes))?;
        control::pass_lane(self, epoch, section.as_handle())?;
        self.offered = Some(lane);
        Ok(())
    }

    pub(super) fn follow_lane(&mut self, epoch: Epoch) -> Result<(), FollowError> {
        let bytes = epoch.size.size();
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let lane = self.control.borrow_mut().follow(self, epoch, |section| {
            PeerRegion::check_and_map(section.as_handle(), size)
                .map_err(|error| error.refusal("a lane", bytes))
        })?;
        self.peer.lane = lane;
        Ok(())
    }

    /// Processes pending messages, for a wait. A fault ends the session at the next check.
    pub(super) fn drain_before_wait(&self) -> DrainOutcome {
        self.control.borrow_mut().drain_before_wait(self)
    }
}

impl platform::PassMemory<Windows> for Link {
    fn charge_attachment(&self, sealed: &Snapshot) -> Result<(), Shortage> {
        self.lend(sealed).map(|_| ())
    }

    fn take_control(&mut self) -> Result<DrainOutcome, FollowError> {
        self.control.borrow_mut().receive_all(self)
    }

    fn pass_attachment(&self, id: u64, generation: u64, sealed: &Snapshot) -> Result<(), Shortage> {
        let attachment = Attachment { id, generation, len: sealed.len() as u64 };
        control::pass_attachment(self, attachment, self.lend(sealed)?)
    }

    fn take_attachment(&mut self, id: u64) -> Result<(Attachment, SnapshotMap), FollowError> {
        let (attachment, section) = self.control.borrow_mut().take_attachment(self, id)?;
        let len = usize::try_from(attachment.len).unwrap_or(usize::MAX);
        let map = if self.trusts_peer {
            // SAFETY: the peer is trusted, which `Parts` says of one that may write this process's memory anyway, to keep no
            // way to write what it attaches.
            unsafe { SnapshotMap::verify_and_map(section, len, len) }
        } else {
            SnapshotMap::verify_and_copy(section, len, len)
        };
        match map {
            Ok(map) => Ok((attachment, map)),
            Err(error) => Err(error.refusal("a message", attachment.len)),
        }
    }

    fn pass_ring(
        &self,
        id: u64,
        ring: BroadcastRing,
        memory: BorrowedHandle<'_>,
    ) -> Result<(), Shortage> {
        control::pass_attachment(self, ring.attachment(id), memory)
    }

    fn take_ring(&mut self, id: u64) -> Result<(BroadcastRing, PeerRegion), FollowError> {
        let (attachment, section) = self.control.borrow_mut().take_attachment(self, id)?;
        let Some(ring) = BroadcastRing::of_attachment(&attachment) else {
            reaper::reap(section);
            return Err(PeerFault::Memory { what: "a ring", why: "it is announced as none" }.into());
        };
        let map = PeerRegion::verify_and_map(section, ring.memory());
        let map = map.map_err(|error| error.refusal("a ring", attachment.len))?;
        Ok((ring, map))
    }
}
